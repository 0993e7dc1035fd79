"""Apply as a state machine: boundaries and requests in, batches out, as effects that it yields.

Keeps true: nothing is written beyond a boundary of the progress topic; a batch ends with all sinks at one LSN, but for
those of stopped tables and failed queries, and only then is it recorded; where sinks stand is asked of them alone. No
I/O, no clock here.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cdc.progress import Progress
from jobs.batch import Target, Task, is_stopped, plan
from jobs.control.halt import RunTo, Stand, Step
from sinks.protocol import Position


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask every sink where it stands. Answer: Target -> Position, or None where it must be replaced."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Wait for something to do, standing at `lsn` (None while the sinks differ). Answer: Asked."""

    lsn: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """The newest boundary, what commands want of apply, the views to be rebuilt by request id, and the wall clock."""

    boundary: Progress | None
    step: Step
    rebuild: Mapping[str, str] = field(default_factory=dict)
    now_us: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Carry out the tasks, stage by stage (jobs.batch.stages). Answer: the targets of queries that failed alone.

    They and what is held back by them (jobs.batch.held_back) stand where they stood; all other tasks are durable.
    """

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Record:
    """Write down where all sinks stand (the ledger), and answer the rebuilds that are done.

    Those of tables that stopped alone, and of queries that failed alone, stand behind the others.
    """

    positions: Mapping[Target, Position]
    rebuilt: Mapping[str, str]


Effect = Locate | Ask | Run | Record


def apply_machine(*, settled: bool = False) -> Generator[Effect, Any, NoReturn]:
    """Keep the sinks up to date for ever; `settled` when the last batch before this was complete."""
    positions: dict[Target, Position | None] = dict((yield Locate()))
    reached = common_lsn(positions)
    recorded = False
    stayed: frozenset[Target] = frozenset()
    tried_lsn: int | None = None
    while True:
        asked: Asked = yield Ask(reached)
        ceiling = _ceiling(asked, positions, settled=settled)
        if ceiling is None or asked.boundary is None:
            continue
        rebuild = set(asked.rebuild.values())
        tasks = plan(positions, asked.boundary, ceiling, rebuild, asked.now_us, {target.view for target in stayed})
        if ceiling == tried_lsn and not rebuild:
            # What failed there fails again; nothing that it reads has changed.
            tasks = [task for task in tasks if task.target not in stayed]
        elif tasks:
            stayed, tried_lsn = frozenset(), ceiling
        if tasks:
            stayed |= yield Run(tasks)
            positions |= {task.target: task.position for task in tasks if _got_there(task, stayed)}
        flowing = {
            target: position
            for target, position in positions.items()
            if target not in stayed and not is_stopped(target, asked.boundary, ceiling)
        }
        reached = common_lsn(flowing) if flowing else ceiling
        if tasks or not recorded:
            failed = {target.view for target in stayed}
            rebuilt = {request: view for request, view in asked.rebuild.items() if view not in failed}
            yield Record({target: position for target, position in positions.items() if position}, rebuilt)
            recorded = settled = True


def _got_there(task: Task, stayed: Collection[Target]) -> bool:
    """What failed in a later stage may have come to where its table stands in the first one."""
    return task.stage == 0 or task.target not in stayed


def common_lsn(positions: Mapping[Target, Position | None]) -> int | None:
    """The LSN at which all sinks stand, None while they differ."""
    lsns = {position.lsn if position is not None else None for position in positions.values()}
    return lsns.pop() if len(lsns) == 1 else None


def _ceiling(asked: Asked, positions: Mapping[Target, Position | None], *, settled: bool) -> int | None:
    """Where the next batch ends; None for no batch now.

    Not `settled`, index and cache may hold rows beyond their position, of a batch that was killed, and an empty sink
    may need a snapshot that is newer than the LSN asked for. The newest boundary alone is as far as all of that.
    """
    if asked.boundary is None or isinstance(asked.step, Stand):
        return None
    if not isinstance(asked.step, RunTo) or not settled:
        return asked.boundary.lsn
    if asked.step.lsn > asked.boundary.lsn:
        return None  # capture has not got there yet
    # What was lost before a recovery cannot be stood at.
    furthest = max((position.lsn for position in positions.values() if position is not None), default=0)
    furthest = max(furthest, asked.boundary.recovered_lsn)
    return asked.step.lsn if asked.step.lsn >= furthest else asked.boundary.lsn
