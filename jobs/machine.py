"""Apply as a state machine: boundaries and requests in, batches out, as effects that it yields.

Keeps true: nothing is written beyond a boundary of the progress topic; a batch ends with all sinks at one LSN, but for
those of stopped tables and failed queries, and only then is it recorded; what was loaded beside is shown only where it
stands at the LSN of what it replaces; where sinks stand is asked of them alone. No I/O, no clock here.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cdc.progress import Progress
from jobs.batch import Target, Task, is_stopped, plan
from jobs.control.halt import RunTo, Stand, Step
from jobs.twins import twins_of, without_twin
from sinks.protocol import Position


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask every sink where it stands. Answer: Target -> Position, or None where it must be replaced."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Wait for something to do, standing at `lsn` (None while the sinks differ). Answer: Asked."""

    lsn: int | None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A view that somebody wants anew; `loaded` says where its twins stood once they were loaded, and is None before.

    Once it `is_loading` nobody begins it. Twins are not shown before they `may_swap`: they may have to be proved.
    `in_place`: batches can't go on meanwhile, since the live rows are damaged, so a batch replaces these. Of a view
    that is declared otherwise now, or of several that read each other, the twins are those of all that it `becomes`,
    but for what `stays` as it is.
    """

    view: str
    loaded: Mapping[Target, Position] | None = None
    is_loading: bool = False
    may_swap: bool = True
    in_place: bool = False
    becomes: tuple[Target, ...] = ()
    stays: frozenset[Target] = frozenset()

    @property
    def is_new_declaration(self) -> bool:
        """Whether nothing of the live rows has a part in it."""
        return bool(self.becomes) and not self.stays

    @property
    def views(self) -> frozenset[str]:
        """All that are shown at once."""
        return frozenset({self.view, *(target.view for target in self.becomes)})

    def twins(self, live: Collection[Target]) -> dict[Target, Target]:
        """What is shown in the end, with its twins."""
        return twins_of([each for each in self.becomes or live if each not in self.stays], *self.views)


@dataclass(frozen=True, slots=True)
class Asked:
    """The newest boundary, what commands want of apply, the rebuilds by request id, and the wall clock."""

    boundary: Progress | None
    step: Step
    rebuild: Mapping[str, Rebuild] = field(default_factory=dict)
    now_us: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """Carry out the tasks, stage by stage (jobs.batch.stages). Answer: the targets of queries that failed alone.

    They and what is held back by them (jobs.batch.held_back) stand where they stood; all other tasks are durable.
    """

    tasks: Sequence[Task]


@dataclass(frozen=True, slots=True)
class Load:
    """Begin to load a view's twins from offset zero, as of the boundary at which all views stand. No answer.

    It goes on beside the batches; Asked says when it is done.
    """

    request: str
    view: str
    boundary: Progress


@dataclass(frozen=True, slots=True)
class Swap:
    """Show the twins' rows instead of the live ones: live target -> twin, the table first; `position` is both's.

    Each sink in one atomic step. No answer.
    """

    twins: Mapping[Target, Target]
    positions: Mapping[Target, Position]


@dataclass(frozen=True, slots=True)
class Record:
    """Write down where all sinks stand (the ledger), and answer the rebuilds that are done.

    Those of tables that stopped alone, and of queries that failed alone, stand behind the others.
    """

    positions: Mapping[Target, Position]
    rebuilt: Mapping[str, str]


Effect = Locate | Ask | Run | Load | Swap | Record
Effects = Generator[Effect, Any, Any]


@dataclass(slots=True)
class _State:
    """What a run of the machine remembers."""

    positions: dict[Target, Position | None]
    twins: dict[Target, Position] = field(default_factory=dict)
    stayed: frozenset[Target] = frozenset()
    tried_lsn: int | None = None
    seen: frozenset[str] = frozenset()
    """The rebuilds that were asked for by the last batch."""
    has_swapped: bool = False
    """Since the last record."""


def apply_machine(*, settled: bool = False) -> Generator[Effect, Any, NoReturn]:
    """Keep the sinks up to date for ever; `settled` when the last batch before this was complete."""
    state = _State(dict((yield Locate())))
    reached = common_lsn(state.positions)
    recorded = False
    while True:
        asked: Asked = yield Ask(reached)
        ceiling = _ceiling(asked, state.positions, settled=settled)
        if ceiling is None or asked.boundary is None:
            continue
        request, wanted = next(iter(asked.rebuild.items()), (None, None))
        _join(state, wanted)
        tasks = _tasks(state, asked, ceiling)
        if tasks:
            yield from _run(state, tasks)
        flowing = {
            target: position
            for target, position in state.positions.items()
            if target not in state.stayed and not is_stopped(target, asked.boundary, ceiling)
        }
        reached = common_lsn(flowing) if flowing else ceiling
        failed = {target.view for target in state.stayed}
        rebuilt = {name: each.view for name, each in asked.rebuild.items() if each.in_place and each.view not in failed}
        # A query that fails goes on nowhere; what it is declared as now may not fail.
        may = wanted is not None and (wanted.is_new_declaration or wanted.view not in failed)
        if request is not None and wanted is not None and reached == asked.boundary.lsn and may:
            is_done = yield from _brought_on(state, asked, request, wanted)
            rebuilt |= {request: wanted.view} if is_done else {}
        if tasks or rebuilt or state.has_swapped or not recorded:
            yield Record({target: position for target, position in state.positions.items() if position}, rebuilt)
            recorded, settled, state.has_swapped = True, True, False


def _brought_on(state: _State, asked: Asked, request: str, wanted: Rebuild) -> Generator[Effect, Any, bool]:
    """Begin a rebuild, or end it where its twins stand where the live ones do; whether it is done."""
    assert asked.boundary is not None
    if wanted.in_place:
        return False
    if wanted.loaded is None:
        if not wanted.is_loading:
            yield Load(request, wanted.view, asked.boundary)
    elif wanted.may_swap and _may_be_shown(state, wanted, asked.boundary):
        yield from _swap(state, asked, wanted)
        return wanted.view not in {target.view for target in state.stayed}
    return False


def _join(state: _State, wanted: Rebuild | None) -> None:
    """The twins of the rebuild that is under way, and of no other one, go along with the batches."""
    loaded = wanted.loaded if wanted is not None else None
    state.twins = {twin: state.twins.get(twin, position) for twin, position in (loaded or {}).items()}


def _tasks(state: _State, asked: Asked, ceiling: int) -> list[Task]:
    assert asked.boundary is not None
    stayed = {target.view for target in state.stayed}
    damaged = {each.view for each in asked.rebuild.values() if each.in_place}
    anew = [target for target in state.positions if target.view in damaged]
    tasks = plan(state.positions | state.twins, asked.boundary, ceiling, anew, asked.now_us, stayed)
    news = asked.rebuild.keys() - state.seen
    state.seen = frozenset(asked.rebuild)
    if ceiling == state.tried_lsn and not news:
        # What failed there fails again; nothing that it reads has changed.
        return [task for task in tasks if task.target not in state.stayed]
    if tasks:
        state.stayed, state.tried_lsn = frozenset(), ceiling
    return tasks


def _run(state: _State, tasks: Sequence[Task]) -> Effects:
    state.stayed |= yield Run(tasks)
    for task in tasks:
        if _got_there(task, state.stayed):
            (state.twins if task.target in state.twins else state.positions)[task.target] = task.position


def _swap(state: _State, asked: Asked, wanted: Rebuild) -> Effects:
    """Then what has no twin is replaced by itself, in a batch of its own; of another declaration, in the next one."""
    assert asked.boundary is not None
    twins = wanted.twins(state.positions)
    if twins:
        yield Swap(twins, {live: state.twins[twin] for live, twin in twins.items()})
        if wanted.becomes:
            others = {at: each for at, each in state.positions.items() if at.view not in wanted.views}
            state.positions = others | {at: state.positions.get(at) for at in wanted.becomes if at in wanted.stays}
            state.positions |= dict.fromkeys(at for at in wanted.becomes if at not in wanted.stays)
            state.stayed = frozenset(target for target in state.stayed if target.view not in wanted.views)
        state.positions |= {live: state.twins[twin] for live, twin in twins.items()}
        state.twins, state.has_swapped = {}, True
    if wanted.becomes:
        return
    rest = without_twin(state.positions, *wanted.views)
    those = {target: state.positions[target] for target in rest}
    tasks = plan(those, asked.boundary, asked.boundary.lsn, rest, asked.now_us)
    if tasks:
        yield from _run(state, tasks)


def _may_be_shown(state: _State, wanted: Rebuild, boundary: Progress) -> bool:
    """Whether each twin stands where all views do, and so does what it replaces; of another declaration it may fail."""
    twins = wanted.twins(state.positions)
    return all(
        twin in state.twins
        and twin not in state.stayed
        and state.twins[twin].lsn == boundary.lsn
        and (bool(wanted.becomes) or (live not in state.stayed and _stands(state, live, boundary)))
        for live, twin in twins.items()
    )


def _stands(state: _State, live: Target, boundary: Progress) -> bool:
    position = state.positions[live]
    return position is not None and position.lsn == boundary.lsn


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
