"""Apply against the models: the real machine and the real plan under a thin driver.

In: the world. Out: a generator that stops at every effect and inside each task, where it may be killed or frozen.
Tasks of one Run go on side by side; after an error everything is thrown away and located anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cdc.errors import OperatorError, TransientError
from cdc.progress import Progress
from jobs.batch import TABLE, Mode, Target, Task, held_back, stages
from jobs.control.halt import Step, next_step
from jobs.control.records import Kind, Request
from jobs.machine import Ask, Asked, Effect, Load, Locate, Record, Run, Swap, apply_machine
from jobs.twins import is_twin
from tests.simulation.broker import PROGRESS, Broker
from tests.simulation.declaring import DECLARED, Declared, Files, Print, declared
from tests.simulation.rebuilding import SimulatedRebuilds
from tests.simulation.refreshing import SimulatedRefresher
from tests.simulation.sinks import DeltaSink, SimulatedSink, open_sink
from tests.simulation.stores import Stores
from tests.simulation.views import Range, ViewChanges, read_changes
from tests.simulation.world import Steps, World, require


@dataclass(slots=True)
class Control:
    """Who is the apply process, and what is asked of it."""

    owner: int = 0
    requests: list[Request] = field(default_factory=list)
    rebuilds: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    files: Files = field(default_factory=Files)

    def ask(self, kind: Kind, *, lsn: int | None = None, view: str | None = None) -> None:
        """A new request."""
        self.asked += 1
        if kind is Kind.REBUILD:
            assert view is not None
            self.rebuilds[f"r{self.asked}"] = view
        else:
            self.requests.append(Request(f"r{self.asked}", kind, 0, 60, "test", lsn))

    def release(self, *, everything: bool = False) -> None:
        """The client lets go."""
        if everything:
            self.requests.clear()
        elif self.requests:
            self.requests.pop(0)


class ApplyProcess:
    """One `afterimage apply`. `run` ends when another process has taken over."""

    def __init__(self, world: World, broker: Broker, stores: Stores, control: Control, targets: list[Target]) -> None:
        self._world = world
        self._broker = broker
        self._stores = stores
        self._control = control
        self._targets = targets
        self._refresher = SimulatedRefresher(world, {}, {})
        self._declared: Declared
        self._files: tuple[object, ...] = ()
        self._rebuilds: SimulatedRebuilds
        self._boundary: Progress | None = None
        self._read_to = 0
        self._ledger_at: int | None = None
        control.owner += 1
        self._me = control.owner

    def run(self) -> Steps:
        """Machine after machine."""
        while True:
            try:
                yield from self._drive()
            except TransientError as error:
                self._world.note("apply starts over", error.message)
                yield "backoff"

    def _drive(self) -> Steps:
        targets = self._captured(self._newest_boundary())
        self._files = self._control.files.state()
        self._declared = declared(targets, self._control.files, self._stands, lambda: bool(self._stores.ledger))
        live = self._declared.live
        sinks = {at: self._open(at, live[at.view], form or 0) for at, form in self._declared.sinks.items()}
        self._refresher = SimulatedRefresher(self._world, sinks, live)
        self._ledger_at = None
        machine = self._machine()
        answer: Any = None
        while True:
            effect = machine.send(answer)
            yield f"before {type(effect).__name__}"
            answer = yield from self._carry_out(effect)
            yield f"after {type(effect).__name__}"

    def _open(self, target: Target, declared: Print, form: int) -> SimulatedSink:
        return open_sink(self._world, self._stores, target, declared, form, self._is_owner)

    def _stands(self, target: Target, declared: Print, form: int) -> bool:
        return self._open(target, declared, form).position() is not None

    def _machine(self) -> Any:
        return apply_machine()

    def _carry_out(self, effect: Effect) -> Steps:
        match effect:
            case Locate():
                self._confirm_owner()
                found = {target: sink.position() for target, sink in self._sinks.items()}
                self._refresher.locate(found)
                process = self._world, self._broker, self._stores
                self._rebuilds = SimulatedRebuilds(*process, self._refresher, self._control.rebuilds, self._declared)
                return found
            case Ask():
                return self._ask(effect.lsn)
            case Run():
                return (yield from self._run(list(effect.tasks)))
            case Load():
                return self._rebuilds.load(effect)
            case Swap():
                self._confirm_owner()
                return (yield from self._rebuilds.swap(effect))
            case Record():
                return (yield from self._record(effect))

    def _ask(self, lsn: int | None) -> Asked:
        self._confirm_owner()
        step: Step = next_step(self._control.requests, lsn or 0)
        self._world.saw("apply may:", type(step).__name__)
        boundary = self._newest_boundary()
        if len(self._captured(boundary)) > len(self._declared.targets):
            raise TransientError("a table has come")
        if self._files != self._control.files.state():
            raise TransientError("a file has changed")
        for view in self._control.rebuilds.values():
            self._refresher.try_again(view)
        return Asked(boundary, step, self._rebuilds.wanted(boundary), self._world.wall_us)

    @property
    def _sinks(self) -> dict[Target, SimulatedSink]:
        return self._refresher.sinks

    def _captured(self, boundary: Progress | None) -> list[Target]:
        """Those views whose tables are captured by then."""
        ends = boundary.ends if boundary is not None else {}
        return [target for target in self._targets if all(topic in ends for topic in target.topics)]

    def _confirm_owner(self) -> None:
        if not self._is_owner():
            raise OperatorError("another process has taken over apply", code="APPLY_TAKEN_OVER")

    def _is_owner(self) -> bool:
        return self._control.owner == self._me

    def _newest_boundary(self) -> Progress | None:
        """A consumer may be behind, but not at its start; it never goes back."""
        if self._boundary is None or not self._world.chance(0.2):
            log = self._broker.topics[PROGRESS][0]
            for _, entry in log.committed(self._read_to, len(log.log)):
                progress = Progress.from_bytes(entry.record.value or b"")
                self._boundary = progress if progress.is_boundary else self._boundary
            self._read_to = log.stable_end
        return self._boundary

    def _run(self, tasks: list[Task]) -> Steps:
        """Stage by stage; the targets of queries that failed, and of what depends on them."""
        self._world.note("apply runs", *[(t.target.view, t.target.sink, t.mode.value, t.position.lsn) for t in tasks])
        self._require_beside(tasks)
        stayed: set[Target] = set()
        try:
            for stage in stages(tasks):
                failed = {target.view for target in stayed}
                held = [task.target for task in stage if held_back(task, failed)]
                self._refresher.hold_back(held)
                got_there = yield from self._stage([task for task in stage if task.target not in held])
                stayed |= {*held, *(task.target for task in stage if task.target not in [*held, *got_there])}
        finally:
            self._refresher.end_batch()
        self._rebuilds.failed()
        return frozenset(stayed)

    def _stage(self, tasks: list[Task]) -> Steps:
        """Side by side; the first error is raised when all have come to rest. Who got there."""
        going = [self._task(task) for task in tasks]
        got_there: list[Target] = []
        errors: list[TransientError] = []
        while going:
            task = self._world.rng.choice(going)
            try:
                yield next(task)
            except StopIteration as ended:
                going.remove(task)
                got_there += ended.value
            except TransientError as error:
                going.remove(task)
                errors.append(error)
        if errors:
            raise errors[0]
        return got_there

    def _task(self, task: Task) -> Steps:
        sink = self._sinks[task.target]
        self._world.saw("task:", task.mode.value, task.target.sink)
        yield "task begun"
        if task.target.is_derived:
            return [task.target] if (yield from self._refresher.run(task)) else []
        if task.mode is Mode.ADVANCE:
            yield from sink.advance(task.position)
            return [task.target]
        read = self._read(task)
        if read.truncated:
            self._world.saw("truncate:", task.mode.value, task.target.sink)
        yield "range read"
        if task.mode is Mode.REPLACE or read.truncated:
            yield from sink.replace(read.upserts, task.position)
        elif read.changes:
            before = sink.held() if isinstance(sink, DeltaSink) else None
            yield from sink.write(read.changes, task.position)
            if before is not None:
                self._refresher.note(task.target.view, before, read.changes)
        else:
            yield from sink.advance(task.position)
        return [task.target]

    def _require_beside(self, tasks: list[Task]) -> None:
        """Nobody waits for a view that is new."""
        replaced = {task.target.view for task in tasks if task.mode is Mode.REPLACE and not is_twin(task.target)}
        require(not any(map(self._is_new, replaced)), "all views wait for one that is new", replaced)
        for task in tasks:
            if task.mode is Mode.REPLACE and not is_twin(task.target) and task.target.sink != TABLE:
                require(not self._has_other_form(task.target), "all views wait for other options", task.target)

    def _has_other_form(self, target: Target) -> bool:
        """Whether it holds the rows of its view as other options say, as its table does, and the text was kept."""
        store, files, live = self._stores.versioned[target], self._control.files, self._declared
        is_told = target.view in files.kept and files.kept_forms.get(target, 0) == store.form
        is_same = store.standing is not None and store.declared == live.live[target.view]
        if not (is_told and is_same and store.form != live.sinks[target]):
            return False
        tables = [self._stores.delta[at][-1] for at in self._sinks if (at.view, at.sink) == (target.view, TABLE)]
        return any(table.position is not None and table.declared == store.declared for table in tables)

    def _is_new(self, view: str) -> bool:
        """Whether nothing of the view has ever been shown, while others are live."""
        return bool(self._stores.ledger) and view in DECLARED and view not in self._stores.known

    def _read(self, task: Task) -> ViewChanges:
        wanted = Range(task.start, task.end, task.floor_lsn, task.position.lsn)
        return read_changes(self._broker, task.target, self._refresher.declared[task.target.view], wanted)

    def _record(self, effect: Record) -> Steps:
        self._confirm_owner()
        stores = self._stores
        rows = {
            target: sink.ledger_row(self._refresher.marked(target, effect.positions[target]))
            for target, sink in self._sinks.items()
            if isinstance(sink, DeltaSink) and target in effect.positions
        }
        if self._ledger_at is not None and self._ledger_at != len(stores.ledger):
            raise TransientError("another process wrote the ledger")
        if not stores.ledger:
            stores.known |= {target.view for target in self._sinks}
        stores.commit_ledger(rows)
        self._ledger_at = len(stores.ledger)
        files, texts = self._control.files, self._declared.texts | self._rebuilds.changed
        forms = {**self._declared.forms, **self._rebuilds.reformed}
        if not texts.items() <= files.kept.items() or not forms.items() <= files.kept_forms.items():
            yield "ledger written"
        files.kept |= texts
        files.kept_forms = {**files.kept_forms, **forms}
        self._rebuilds.answer(effect.rebuilt)
        if self._rebuilds.changed:
            raise TransientError("views are declared otherwise")
