"""The rules of rebuilds beside the live views, broken."""

from __future__ import annotations

from typing import Final

import jobs.machine
from tests.simulation import rebuilding
from tests.simulation.mutants import broken

REBUILDS: Final = (
    broken(
        "go on from where the twin was loaded",
        jobs.machine,
        "_join",
        "state.twins.get(twin, position)",
        "state.twins.get(twin) or next(p for t, p in state.positions.items() if twin == twins_of([t], t.view).get(t))",
        rebuild_asked=0.2,
    ),
    broken(
        "note what relations held when the load began",
        rebuilding.SimulatedRebuilds,
        "_load",
        "positions[twin] = replace(at, offsets=noted(held))",
        "positions[twin] = replace(at, offsets=noted({name: refresher.held(name) for name in held}))",
        rebuild_asked=0.5,
        apply_killed=0,
        store_lost=0,
        delta_conflict=0,
        delta_reply_lost=0,
        store_request_late=0,
    ),
    broken(
        "show a twin only where the live view stands",
        jobs.machine,
        "_run",
        "(state.twins if task.target in state.twins else state.positions)[task.target] = task.position",
        "state.positions[task.target] = task.position",
        rebuild_asked=0.2,
    ),
    broken(
        "read what a load wants from offset zero",
        rebuilding.SimulatedRebuilds,
        "_read",
        "Range(task.start, ",
        "Range(tuple(at // 2 for at in task.end), ",
        rebuild_asked=0.2,
    ),
)
