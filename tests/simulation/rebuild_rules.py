"""The rules of rebuilds beside the live views, and of views whose files change or are new, broken."""

from __future__ import annotations

from typing import Final

import jobs.declarations
import jobs.machine
import jobs.other_sinks
import jobs.twins
from tests.simulation import applying, declaring, rebuilding, sinks
from tests.simulation.mutants import broken

REBUILDS: Final = (
    broken(
        "go on from where the twin was loaded",
        jobs.machine,
        "_join",
        "state.twins.get(twin, position)",
        "state.twins.get(twin) or next((p for t, p in state.positions.items() "
        "if twin == twins_of(state.positions, t.view).get(t)), position)",
        rebuild_asked=0.2,
    ),
    broken(
        "note what relations held when the load began",
        rebuilding.SimulatedRebuilds,
        "_load",
        "tables[name].held() if name in tables else held[name]",
        "tables[name].held() if name in tables else refresher.held(name)",
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

CHANGES: Final = (
    broken(
        "show views together that read each other",
        jobs.declarations,
        "groups_of",
        "linked = [group for group in groups if group & read or name in _readers(group, filed, former)]",
        "linked = []",
        declaration_edited=0.5,
    ),
    broken(
        "read the twins of what is loaded together",
        jobs.twins,
        "_twin",
        "twin_name(name) if name in tables else name",
        "twin_name(name) if name == target.view else name",
        declaration_edited=0.5,
    ),
    broken(
        "take no rows of another declaration for one's own",
        sinks.DeltaSink,
        "position",
        "or latest.declared != self._declared",
        "",
        declaration_edited=0.5,
    ),
    broken(
        "evaluate what is loaded as its file says",
        rebuilding.SimulatedRebuilds,
        "_load",
        "(self._declared.coming if wish.is_change else {})",
        "{}",
        declaration_edited=0.5,
    ),
)

NEW_VIEWS: Final = (
    broken(
        "load a new view beside those that are live",
        declaring,
        "new_views",
        "untold and are_live()",
        "False",
        view_added=0.3,
    ),
    broken(
        "load a new view beside although what it reads is replaced",
        declaring,
        "chosen",
        "left = live.keys() & new",
        "left = set()",
        view_added=0.5,
        declaration_edited=0.5,
        store_lost=0.1,
    ),
    broken(
        "keep the text of what is shown",
        applying,
        "declared",
        "for name, said in follow.items() if name in DECLARED",
        "for name, said in {**dict.fromkeys(coming, files.said), **follow}.items() if name in DECLARED",
        view_added=0.5,
    ),
    broken(
        "load no view that reads one which stopped alone",
        rebuilding.SimulatedRebuilds,
        "load",
        "if read & self._refresher.failing:",
        "if False:",
        view_added=0.5,
    ),
    broken(
        "load what other options need beside",
        jobs.other_sinks,
        "live_sinks",
        "if not lacking:",
        "if True:",
        options_edited=0.5,
    ),
)
