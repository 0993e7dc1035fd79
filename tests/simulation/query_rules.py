"""The rules of queries over Delta tables, broken."""

from __future__ import annotations

from typing import Final

import jobs.batch
import jobs.machine
from tests.simulation import applying, refreshing
from tests.simulation.mutants import broken

QUERIES: Final = (
    broken(
        "bring followers to where their table stands before it moves on",
        jobs.batch,
        "_caught_up",
        "position is not None and position.lsn < table.lsn",
        "False",
        store_request_late=0.2,
        apply_killed=0.05,
    ),
    broken("note the rows that were read", refreshing, "noted", "held.numbers", "(*held.numbers[:2], held.turn + 1)"),
    broken(
        "refresh a query's table before what follows it",
        applying,
        "stages",
        "groupby(ordered, key=lambda task: task.stage)",
        "groupby(ordered, key=lambda task: min(task.stage, 1))",
    ),
    broken(
        "refresh a query after the tables that it reads",
        jobs.batch,
        "_derived",
        "position.lsn, goal, target.level)",
        "position.lsn, goal, target.level if target.sink != TABLE else 0)",
    ),
    broken(
        "take the batch's changes only from where it began",
        refreshing,
        "way",
        "before.generation == now.generation and before.has_rows_of(known)",
        "before.generation == now.generation",
    ),
    broken("look at all relations for changes", refreshing, "is_unchanged", "return all(", "return any("),
    broken("hold back what reads a query that failed", applying, "held_back", "task.stage > 0 and", "False and"),
    broken(
        "let a query that failed stay where it stands",
        jobs.machine,
        "_run",
        "if _got_there(task, state.stayed):",
        "if True:",
    ),
    broken(
        "try a query that failed again when what it reads has changed",
        refreshing.SimulatedRefresher,
        "run",
        "is_unchanged(read, now)",
        "True",
    ),
    broken(
        "recompute the keys of rows as they were",
        refreshing.SimulatedRefresher,
        "_images",
        "(before.get(key), new)",
        "(new,)",
    ),
    broken(
        "compare a follower's rows with those that it was computed from",
        refreshing.SimulatedRefresher,
        "_follow",
        "_difference(table.rows_at(known), ",
        "_difference(table.rows_at(now), ",
        store_request_late=0.1,
        apply_killed=0.03,
    ),
)

STOPPED: Final = (
    broken(
        "leave a query over a stopped table where it is",
        jobs.batch,
        "_derived",
        "if is_stopped(target, boundary, ceiling_lsn):",
        "if False:",
    ),
)
