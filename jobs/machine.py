"""Apply as a state machine: boundaries and requests in, batches out, as effects that it yields.

Keeps true: nothing is written beyond a boundary of the progress topic; a batch ends with all sinks at one LSN, but for
those of stopped tables, and only then is it recorded; where sinks stand is asked of them alone. No I/O, no clock here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
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
    """Carry out the tasks, stage by stage (jobs.batch.stages). No answer: every one of them is durable."""

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Record:
    """Write down where all sinks stand (the ledger), and answer the rebuilds that are done.

    Those of tables that stopped alone stand behind the others.
    """

    positions: Mapping[Target, Position]
    rebuilt: Mapping[str, str]


Effect = Locate | Ask | Run | Record


def apply_machine(*, settled: bool = False) -> Generator[Effect, Any, NoReturn]:
    """Keep the sinks up to date for ever; `settled` when the last batch before this was complete."""
    positions: dict[Target, Position | None] = dict((yield Locate()))
    reached = common_lsn(positions)
    recorded = False
    while True:
        asked: Asked = yield Ask(reached)
        ceiling = _ceiling(asked, positions, settled=settled)
        if ceiling is None or asked.boundary is None:
            continue
        tasks = plan(positions, asked.boundary, ceiling, set(asked.rebuild.values()), asked.now_us)
        if tasks:
            yield Run(tasks)
            positions |= {task.target: task.position for task in tasks}
        flowing = {each: at for each, at in positions.items() if not is_stopped(each, asked.boundary, ceiling)}
        reached = common_lsn(flowing) if flowing else ceiling
        if tasks or not recorded:
            yield Record({target: position for target, position in positions.items() if position}, asked.rebuild)
            recorded = settled = True


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
