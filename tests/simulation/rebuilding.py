"""A model of jobs/rebuild: a view's twin loaded beside, brought along by batches, swapped in every sink.

In: requests, the machine's Load and Swap. Out: Rebuild values, rows in sinks, in steps. Keeps to jobs.rebuild.rebuilds,
loading and from_topics: a load reads topics alone and goes on between batches; a swap is one step in each sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.progress import Progress
from jobs.batch import TABLE, Target, is_stopped, plan
from jobs.machine import Load, Rebuild, Swap
from jobs.refresh.ways import noted
from jobs.twins import is_twin, twin_name, twins_of
from sinks.delta.held import Held
from sinks.protocol import Position
from tests.simulation.broker import Broker
from tests.simulation.queries import RELATIONS, Failed, computed
from tests.simulation.refreshing import SimulatedRefresher
from tests.simulation.sinks import Changes, DeltaSink, open_twin
from tests.simulation.stores import Stores
from tests.simulation.tables import Values
from tests.simulation.views import Range, read_changes
from tests.simulation.world import Steps, World

STEPS_MAX = 2


class SimulatedRebuilds:
    """Of one session; what a former one loaded is thrown away."""

    def __init__(
        self, world: World, broker: Broker, stores: Stores, refresher: SimulatedRefresher, asked: dict[str, str]
    ) -> None:
        self._world = world
        self._broker = broker
        self._stores = stores
        self._refresher = refresher
        self._asked = asked
        self._loading: tuple[str, Steps] | None = None
        self._loaded: tuple[str, Mapping[Target, Position]] | None = None
        self._may_swap = False
        for target, sink in refresher.sinks.items():
            if not is_twin(target):
                sink.clear()

    def wanted(self, boundary: Progress | None) -> dict[str, Rebuild]:
        """In the order of asking; a load goes on for some steps. Over a stopped table there is none."""
        for request, view in list(self._asked.items()):
            targets = [target for target in self._refresher.sinks if target.view == view]
            if boundary is not None and any(is_stopped(target, boundary) for target in targets):
                self._asked.pop(request)
        self._forget()
        if self._loading is not None:
            self._go_on(*self._loading)
        known = {request: Rebuild(view) for request, view in self._asked.items()}
        if self._loaded is not None:
            request, positions = self._loaded
            self._may_swap = self._may_swap or self._world.chance(0.5) or self._world.healed
            known[request] = Rebuild(known[request].view, positions, self._may_swap)
        return known

    def load(self, effect: Load) -> None:
        """Begin."""
        self._world.saw("rebuild loads")
        self._may_swap = False
        held = {name: self._refresher.held(name) for name in RELATIONS.get(effect.view, ())}
        self._loading = effect.request, self._load(effect, held)

    def swap(self, effect: Swap) -> Steps:
        """The table first; a query's other sinks name its rows."""
        sinks = self._refresher.sinks
        for target, twin in effect.twins.items():
            position = self._refresher.marked(twin, effect.positions[target])
            if target.is_derived and target.sink != TABLE:
                table = sinks[next(each for each in effect.twins if each.sink == TABLE)]
                assert isinstance(table, DeltaSink)
                position = replace(position, offsets=noted({target.view: table.held()}))
            yield "before swap"
            yield from sinks[target].adopt(sinks[twin], position)
            self._world.saw("swapped:", target.sink, "query" if target.is_derived else "row-wise")
            self._refresher.swapped(target, position)
            yield "sink swapped"
        self._drop(next(iter(effect.twins)).view)

    def failed(self) -> None:
        """A query that fails can't be rebuilt; whoever waits hears that."""
        for request, view in list(self._asked.items()):
            if {view, twin_name(view)} & self._refresher.failing:
                self._asked.pop(request)
        self._forget()

    def _forget(self) -> None:
        """What nobody waits for."""
        for under_way in (self._loading, self._loaded):
            if under_way is not None and under_way[0] not in self._asked:
                self._loading = self._loaded = None
                for view in {target.view for target in self._refresher.sinks if is_twin(target)}:
                    self._refresher.leave(view)

    def _drop(self, view: str) -> None:
        self._loaded = None
        self._refresher.leave(twin_name(view))

    def _go_on(self, request: str, load: Steps) -> None:
        steps = 50 if self._world.healed else self._world.rng.randint(0, STEPS_MAX)
        try:
            for _ in range(steps):
                next(load)
        except StopIteration as ended:
            self._loading, self._loaded = None, (request, ended.value)
            self._world.saw("rebuild loaded")
        except Failed:
            self._loading = None
            self._asked.pop(request)

    def _load(self, effect: Load, held: Mapping[str, Held]) -> Steps:
        refresher, boundary = self._refresher, effect.boundary
        twins = twins_of(refresher.sinks, effect.view)
        sinks = {twin: open_twin(self._world, self._stores, live, twin) for live, twin in twins.items()}
        positions: dict[Target, Position] = {}
        for twin, sink in sinks.items():
            yield "load begins"
            if twin.is_derived:
                at = Position(boundary.lsn, boundary.source_ts_us, {})
                if twin.sink == TABLE:
                    rows = yield from self._answer(effect.view, effect, twin.below)
                    positions[twin] = replace(at, offsets=noted(held))
                    table = sink
                else:
                    assert isinstance(table, DeltaSink)
                    rows = table.rows_at(table.held())
                    positions[twin] = replace(at, offsets=noted({twin.view: table.held()}))
                yield from sink.replace(_upserts(rows, boundary.lsn), positions[twin])
            else:
                upserts, positions[twin] = self._read(twin, effect)
                yield from sink.replace(upserts, positions[twin])
            yield "sink loaded"
        refresher.join(sinks, positions)
        return positions

    def _answer(self, view: str, effect: Load, below: tuple[str, ...]) -> Steps:
        """A query over what the topics say; what is below it as well."""
        rows: dict[str, Mapping[str, Values]] = {}
        for name in RELATIONS[view]:
            yield "relation begins"
            if name in RELATIONS:
                rows[name] = yield from self._answer(name, effect, below)
            else:
                topic = next(at.topic for at in self._refresher.sinks if (at.view, at.sink) == (name, TABLE))
                upserts, _ = self._read(Target(name, TABLE, topic), effect)
                rows[name] = {key: row for key, (_, row) in upserts.items() if row is not None}
        return computed(view, rows)

    def _read(self, target: Target, effect: Load) -> tuple[Changes, Position]:
        [task] = plan({target: None}, effect.boundary, effect.boundary.lsn)
        wanted = Range(task.start, task.end, task.floor_lsn, task.position.lsn)
        return read_changes(self._broker, target, wanted).upserts, task.position


def _upserts(rows: Mapping[str, Values], lsn: int) -> Changes:
    return {key: (lsn, row) for key, row in rows.items()}
