"""One simulated run: everything set up from a seed, set loose with faults, then healed and brought to rest.

In: a world. Out: its counts; a Violation carries the seed and the trace. Keeps true at the end: topics and all sinks
have caught up with the source, at one LSN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cdc.errors import CdcError, OperatorError, ProtocolError
from jobs.batch import Target
from jobs.control.records import Kind
from tests.simulation.applying import ApplyProcess, Control
from tests.simulation.broker import Broker
from tests.simulation.capturing import NOT_FROZEN_HERE, CaptureProcess
from tests.simulation.declaring import print_of
from tests.simulation.editing import NONE, Changes, Editor
from tests.simulation.published import Published
from tests.simulation.queries import QUERIES, READ
from tests.simulation.sinks import open_sink
from tests.simulation.source import Source
from tests.simulation.stores import Stores
from tests.simulation.views import TARGETS
from tests.simulation.world import OneFault, Steps, Violation, World, require, violated

STEPS: Final = 900
HEALED_STEPS_MAX: Final = 20_000
TAKEN: Final = {"FENCED", "APPLY_TAKEN_OVER", "SLOT_IN_USE"}
"""What a process may stop with that is not alone; it is started again, or has been replaced."""


class Scenario:
    """All models and processes of one run."""

    def __init__(self, world: World, steps: int = STEPS, changes: Changes = NONE) -> None:
        self.world = world
        self._changes = changes
        self._steps = steps
        self.source = Source(world)
        self.broker = Broker(world)
        self.published = Published(world, self.source, self.broker)
        self.stores = Stores(world, self.source, self.published)
        self.control = Control()
        count = world.rng.choice((1, 2, len(TARGETS)))
        self.targets: list[Target] = world.rng.sample(TARGETS, count)
        if world.has_queries:
            self.targets += [target for target in (*READ, *QUERIES) if target not in self.targets]
        self._editor = Editor(world, self.control.files, self.targets)
        self._running: dict[str, Steps] = {}
        self._at: dict[str, str] = {}
        self._zombies: list[Steps] = []
        self._applying: list[Steps] = []
        self._work = world.rng.randint(8, 26)

    def run(self) -> None:
        """Faults first, then none."""
        for _ in range(self.world.rng.randint(0, 4)):
            self.source.commit()
        for _ in range(self._steps):
            self._step()
        self._heal()
        for step in range(HEALED_STEPS_MAX):
            if step % 16 == 0 and self._at_rest():
                break
            self._step()
        else:
            violated("did not come to rest after all faults ended", self._standings())
        self.published.check_whole()
        self.stores.check_readers()

    def _step(self) -> None:
        world = self.world
        world.now_s += 0.0005
        if self.control.files.kept:
            self._editor.change(self._changes)
            self._changes = NONE
        drawn = world.rng.random()
        if drawn < 0.44:
            self._advance("capture", self._new_capture, "capture killed", "capture frozen while another takes over")
        elif drawn < 0.88:
            self._advance("apply", self._new_apply, "apply killed", "apply frozen while another takes over")
        else:
            world.rng.choice(self._surroundings())()

    def _surroundings(self) -> list[Callable[[], None]]:
        if self.world.healed:
            return [self._wake_zombie, self.world.deliver_late, self.broker.mark_one]
        return [
            self._commit, self._commit, self._commit, self.source.work_elsewhere,
            self._wake_zombie, self.world.deliver_late, self.broker.mark_one, self._trouble, self._ask,
            self.stores.check_readers, self.source.end_transactions,
        ]  # fmt: skip

    def _commit(self) -> None:
        if self._work > 0:
            self._work -= 1
            if self.world.chance(0.04):
                self.source.add_column()
            self.source.commit()

    def _trouble(self) -> None:
        world = self.world
        if world.happens("table stuck"):
            self.source.get_stuck()
        if world.happens("table freed"):
            self.source.get_free()
        if world.happens("postgres restarted"):
            self.source.restart()
        if world.happens("transaction timed out"):
            self.broker.time_out()
        if world.happens("the night passes"):
            world.now_s += world.rng.choice((13, 40)) * 3600
            self.control.release(everything=True)
            # A batch reads what a boundary names within the compaction lag; nobody sleeps over one.
            self._end_all_apply()
        if self.published.boundaries and world.happens("records compacted"):
            self.broker.compact(self.published.boundaries[-1].ends)
        if world.happens("store lost"):
            self.stores.lose(world.rng.choice(self.targets))
        self._editor.draw()

    def _end_all_apply(self) -> None:
        self._zombies = [zombie for zombie in self._zombies if zombie not in self._applying]
        self._running.pop("apply", None)

    def _ask(self) -> None:
        world = self.world
        if world.happens("hold asked"):
            ahead = world.rng.choice((0, 0, 50, 400))
            self.control.ask(Kind.HOLD, lsn=self.source.wal_end + ahead)
        if world.happens("pause asked"):
            self.control.ask(Kind.PAUSE)
        if world.happens("rebuild asked"):
            self.control.ask(Kind.REBUILD, view=world.rng.choice(self.targets).view)
        if world.chance(0.2):
            self.control.release()

    def _advance(self, name: str, start: Callable[[], Steps], killed: str, frozen: str) -> None:
        world = self.world
        process = self._running.get(name)
        if process is not None and world.happens(killed):
            process.close()
            if name == "capture" and world.chance(0.8):
                self.source.cut()
            process = None
        elif process is not None and self._at[name] != NOT_FROZEN_HERE and world.happens(frozen):
            self._zombies.append(process)
            process = None
        if process is None:
            process = self._running[name] = start()
        label = self._resume(process)
        if label is None:
            del self._running[name]
        else:
            self._at[name] = label
            world.note(name, label)

    def _new_capture(self) -> Steps:
        self.world.note("capture process starts")
        return CaptureProcess(self.world, self.source, self.broker).run()

    def _new_apply(self) -> Steps:
        self.world.note("apply process starts")
        self._applying.append(ApplyProcess(self.world, self.broker, self.stores, self.control, self.targets).run())
        return self._applying[-1]

    def _resume(self, process: Steps) -> str | None:
        """One step; None when the process has ended, which only one that was replaced may do."""
        try:
            return next(process)
        except (OperatorError, ProtocolError) as error:
            # A zombie that reconnects is sent what follows after its successor's progress.
            may_stop = error.code in TAKEN or (process in self._zombies and error.code == "PART_LOST")
            require(may_stop, "a process stopped for good", error.code, error.message)
            self.world.note("process ends", error.code)
            self.world.saw("process ended:", error.code)
            return None

    def _wake_zombie(self) -> None:
        if self._zombies and self._at.get("capture") != NOT_FROZEN_HERE:
            zombie = self.world.rng.choice(self._zombies)
            self.world.note("zombie goes on")
            steps, label = self.world.rng.randint(1, 12), None
            while steps > 0 or label == NOT_FROZEN_HERE:
                steps -= 1
                label = self._resume(zombie)
                # Two processes may fight for long: in the end somebody stops one of them.
                if label is None or (label == "backoff" and self.world.healed):
                    self._zombies.remove(zombie)
                    self.source.work_elsewhere()  # the log never rests, and so apply looks again
                    break

    def _heal(self) -> None:
        self.world.healed = True
        self.world.note("healed")
        self.control.release(everything=True)
        self.source.get_free()
        self.broker.mark_all()
        while self._work > 0:
            self._commit()
        self.source.end_transactions()
        self.source.work_elsewhere()  # apply sees that a store is gone when there is something to write

    def _standings(self) -> dict[str, object]:
        said = self.control.files.said
        sinks = {
            target: open_sink(self.world, self.stores, target, print_of(target.view, said)) for target in self.targets
        }
        return {f"{target.view}/{target.sink}": sink.position() for target, sink in sinks.items()}

    def _at_rest(self) -> bool:
        """Everything is where the log ends, everywhere."""
        source, newest = self.source, self.published.newest
        if newest is None or not newest.is_boundary or newest.lsn < source.wal_end:
            return False
        if any(stop.is_open for stop in newest.stopped.values()):
            return False
        if source.slot is None or source.slot.confirmed < source.wal_end or self.control.rebuilds:
            return False
        stay, forms = self.stores.fails, self.control.files.forms
        stores = {
            at: store
            for at, store in self.stores.versioned.items()
            if store.standing is not None and store.form == forms.get(at, 0)
        }
        lsns = {
            store.standing.lsn
            for at, store in stores.items()
            if store.standing is not None and not stay(at, store.declared)
        }
        ledger = self.stores.ledger[-1] if self.stores.ledger else {}
        declared = {target: self.stores.delta[target][row.version].declared for target, row in ledger.items()}
        lsns |= {row.position.lsn for target, row in ledger.items() if not stay(target, declared[target])}
        shown = {**declared, **{target: store.declared for target, store in stores.items()}}
        named = [target for target in self.targets if forms.get(target, 0) is not None]
        filed = {target: print_of(target.view, self.control.files.said) for target in named}
        if any(shown.get(target) != each and not stay(target, each) for target, each in filed.items()):
            return False
        return lsns == {newest.lsn} and not self.world.late and not self._zombies


def simulate(seed: int, rates: Mapping[str, float] | None = None) -> World:
    """Run one seed, with some faults more likely; a Violation says how to run it again."""
    world = World(seed)
    world.rates |= rates or {}
    run(world, f"AFTERIMAGE_SEED={seed} pytest tests/simulation -k seeds")
    return world


def simulate_one_fault(
    seed: int, kind: str, number: int, steps: int, rebuilt: str | None = None, changes: Changes = NONE
) -> OneFault:
    """Run one seed with this fault alone, the `number`th time that it could happen, and a view rebuilt, or changes."""
    world = OneFault(seed, kind, number)
    again = f"simulate_one_fault({seed}, {kind!r}, {number}, {steps}, {rebuilt!r}, {changes!r})"
    run(world, again, steps, rebuilt, changes)
    return world


def run(world: World, again: str, steps: int = STEPS, rebuilt: str | None = None, changes: Changes = NONE) -> None:
    """Run a scenario; a Violation shows the last steps and how to run it again."""
    try:
        scenario = Scenario(world, steps, changes)
        if rebuilt is not None:
            scenario.control.ask(Kind.REBUILD, view=rebuilt)
        scenario.run()
    except (AssertionError, CdcError, LookupError) as error:
        trace = "\n".join(" ".join(map(str, step)) for step in world.trace)
        raise Violation(f"seed {world.seed}: {error}\n{trace}\nreplay: {again}") from error
