"""A model of jobs/rebuild: a view's twin loaded beside, brought along by batches, swapped in every sink.

In: requests, the machine's Load and Swap. Out: Rebuild values, rows in sinks, in steps. Keeps to jobs.rebuild.rebuilds,
loading, from_tables and from_topics: a load goes on between batches, and reads topics alone where somebody asks for
that; a swap is one step in each sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc.progress import Progress
from jobs.batch import TABLE, Target, is_stopped, plan
from jobs.control.records import Kind, Request
from jobs.machine import Load, Rebuild, Swap
from jobs.rebuild.wishes import Wish, wishes
from jobs.refresh.ways import noted
from jobs.twins import is_twin, is_twin_name, live_name, twin_name
from sinks.delta.held import Held
from sinks.protocol import Position
from tests.simulation.broker import Broker
from tests.simulation.declaring import Declared, Print
from tests.simulation.queries import RELATIONS, Failed, computed
from tests.simulation.refreshing import SimulatedRefresher
from tests.simulation.sinks import Changes, DeltaSink, SimulatedSink, open_sink, open_twin
from tests.simulation.stores import Stores
from tests.simulation.tables import Values
from tests.simulation.views import Range, read_changes
from tests.simulation.world import Steps, World

STEPS_MAX = 2


class SimulatedRebuilds:
    """Of one session; what a former one loaded is thrown away."""

    def __init__(
        self,
        world: World,
        broker: Broker,
        stores: Stores,
        refresher: SimulatedRefresher,
        asked: dict[str, str],
        declared: Declared,
    ) -> None:
        self._world = world
        self._broker = broker
        self._stores = stores
        self._refresher = refresher
        self._asked = asked
        self._declared = declared
        self._before = dict(refresher.sinks)
        self._wishes: dict[str, Wish] = {}
        self._unshown: set[tuple[str, ...]] = set()
        self._loading: tuple[Wish, Steps] | None = None
        self._from_tables = False
        self._loaded: tuple[Wish, Mapping[Target, Position]] | None = None
        self._may_swap = False
        self.changed: dict[str, int] = {}
        """What views are declared as since they were shown."""
        self.reformed: dict[Target, int | None] = {}
        """And their sinks."""
        self._coming: dict[Target, SimulatedSink] = {}
        for target, form in declared.becomes.items():
            print_ = declared.coming[target.view]
            is_live = (declared.live.get(target.view), declared.sinks.get(target)) == (print_, form)
            made = open_sink(world, stores, target, print_, form or 0)
            self._coming[target] = refresher.sinks[target] if is_live else made
        for sink in (*self._coming.values(), *refresher.sinks.values()):
            sink.clear()

    def wanted(self, boundary: Progress | None) -> dict[str, Rebuild]:
        """In the order of asking; a load goes on for some steps. Over a stopped table there is none."""
        for request, view in list(self._asked.items()):
            if self._is_stopped([view], boundary):
                self._asked.pop(request)
        requests = [Request(name, Kind.REBUILD, 0, 60, "test", view=view) for name, view in self._asked.items()]
        self._unshown -= {group for group in self._unshown if set(group) & set(self._asked.values())}
        if self._unshown and self._world.chance(0.1):
            self._unshown.clear()  # after a while it is tried again
        groups = [each for each in self._declared.groups if each not in self._unshown]
        self._wishes = wishes(requests, [group for group in groups if not self._is_stopped(group, boundary)])
        self._forget()
        if self._loading is not None:
            self._go_on(*self._loading)
        known = {name: self._rebuild(wish) for name, wish in self._wishes.items()}
        if self._loaded is not None:
            wish, positions = self._loaded
            self._may_swap = self._may_swap or self._world.chance(0.5) or self._world.healed
            wanted = replace(known.pop(wish.id), loaded=positions, may_swap=self._may_swap)
            return {wish.id: wanted} | known
        if self._loading is None:
            return known
        wish, _ = self._loading
        return {wish.id: replace(known.pop(wish.id), is_loading=True)} | known

    def load(self, effect: Load) -> None:
        """Begin."""
        wish = self._wishes[effect.request]
        self._world.saw("change loads" if wish.is_change else "rebuild loads")
        self._may_swap = False
        twins = self._rebuild(wish).twins(self._refresher.sinks)
        read = {name for twin in twins.values() for name in twin.reads if not is_twin_name(name)}
        read |= {target.view for target in self._stays(wish) if target.sink == TABLE}
        if read & self._refresher.failing:
            self._world.saw("change waits")
            self._fail(wish)
            return
        held = {name: self._refresher.held(name) for name in read}
        self._from_tables = wish.is_change and not wish.requests
        self._loading = wish, self._load(effect, wish, twins, held)

    def swap(self, effect: Swap) -> Steps:
        """The tables first; a query's other sinks name its rows."""
        assert self._loaded is not None
        wish, sinks = self._loaded[0], self._refresher.sinks
        for target, twin in effect.twins.items():
            position = self._position(effect, target, twin)
            yield "before swap"
            if wish.is_change:
                former = sinks.get(target)
                self._refresher.renew(target, self._coming[target])
                if former is None:
                    sinks[target].position()  # nobody has looked yet at what may have been left there
                yield from sinks[target].supersede(former, sinks[twin], position)
                what = "sink of" if self._stays(wish) else "changed:" if former is not None else "new:"
                self._world.saw(what, target.sink, "query" if target.is_derived else "row-wise")
            else:
                yield from sinks[target].adopt(sinks[twin], position)
                self._world.saw("swapped:", target.sink, "query" if target.is_derived else "row-wise")
            self._refresher.swapped(target, position)
            yield "sink swapped"
        if wish.is_change:
            new = {*wish.views} - self._declared.live.keys()
            what = "new" if len(new) == len(wish.views) else "new and changed" if new else "changed"
            if self._stays(wish):
                what = "sinks of"
            self._world.saw(what, "group" if len(wish.views) > 1 else "view")
            self.changed = {view: self._declared.coming[view][0] for view in wish.views}
            self.reformed = {
                at: self._declared.becomes.get(at) for at in self._declared.targets if at.view in wish.views
            }
        self._drop(wish)

    def failed(self) -> None:
        """A query that fails can't be rebuilt; whoever waits hears that. A file's declaration must not fail."""
        for wish in list(self._wishes.values()):
            is_new_one = wish.is_change and not self._stays(wish)
            failing = {*map(twin_name, wish.views), *(() if is_new_one else wish.views)}
            if failing & self._refresher.failing:
                self._fail(wish)
        self._forget()

    def answer(self, rebuilt: Mapping[str, str]) -> None:
        """These are done."""
        for name in rebuilt:
            for request in self._wishes[name].requests:
                self._asked.pop(request.id, None)

    def _fail(self, wish: Wish) -> None:
        for request in wish.requests:
            self._asked.pop(request.id, None)
        if wish.is_change:
            self._world.saw("change fails")
            self._unshown.add(wish.views)
        self._wishes.pop(wish.id, None)

    def _is_stopped(self, views: Iterable[str], boundary: Progress | None) -> bool:
        targets = [target for target in self._declared.targets if target.view in views]
        return boundary is not None and any(is_stopped(target, boundary) for target in targets)

    def _rebuild(self, wish: Wish) -> Rebuild:
        becomes = tuple(target for target in self._coming if target.view in wish.views)
        return Rebuild(wish.views[0], becomes=becomes if wish.is_change else (), stays=self._stays(wish))

    def _stays(self, wish: Wish) -> frozenset[Target]:
        """What is live already as the files say."""
        live = {at for at, sink in self._coming.items() if at.view in wish.views and self._before.get(at) is sink}
        begun = any(each is not None and each[0].id == wish.id for each in (self._loading, self._loaded))
        is_rest = self._from_tables if begun else not wish.requests
        return frozenset(live if wish.is_change and is_rest else ())

    def _position(self, effect: Swap, target: Target, twin: Target) -> Position:
        """As jobs.rebuild.showing has it."""
        position = self._refresher.marked(twin, effect.positions[target])
        tables = {at.view: sink for at, sink in self._refresher.sinks.items() if isinstance(sink, DeltaSink)}
        if not target.is_derived:
            return position
        if target.sink != TABLE:
            return replace(position, offsets=noted({target.view: tables[target.view].held()}))
        shown = {
            live_name(name): tables[live_name(name)].held().numbers if is_twin_name(name) else numbers
            for name, numbers in position.offsets.items()
        }
        return replace(position, offsets=shown)

    def _forget(self) -> None:
        """What nobody waits for, and what somebody wants from offset zero that began with tables."""
        for under_way in (self._loading, self._loaded):
            if under_way is None:
                continue
            wish = self._wishes.get(under_way[0].id)
            if wish is None or (self._from_tables and wish.requests):
                self._loading = self._loaded = None
                for view in {target.view for target in self._refresher.sinks if is_twin(target)}:
                    self._refresher.leave(view)

    def _drop(self, wish: Wish) -> None:
        self._loaded = None
        for view in wish.views:
            self._refresher.leave(twin_name(view))

    def _go_on(self, wish: Wish, load: Steps) -> None:
        steps = 50 if self._world.healed else self._world.rng.randint(0, STEPS_MAX)
        try:
            for _ in range(steps):
                next(load)
        except StopIteration as ended:
            self._loading, self._loaded = None, (wish, ended.value)
            self._world.saw("rebuild loaded")
        except Failed:
            self._loading = None
            self._fail(wish)

    def _load(self, effect: Load, wish: Wish, twins: Mapping[Target, Target], held: Mapping[str, Held]) -> Steps:
        refresher, boundary = self._refresher, effect.boundary
        declared = {**self._declared.live, **(self._declared.coming if wish.is_change else {})}
        sinks = {
            twin: open_twin(self._world, self._stores, live, twin, declared[live.view]) for live, twin in twins.items()
        }
        tables = {twin.view: sink for twin, sink in sinks.items() if isinstance(sink, DeltaSink)}
        positions: dict[Target, Position] = {}
        for twin, sink in sinks.items():
            yield "load begins"
            if twin.is_derived:
                at = Position(boundary.lsn, boundary.source_ts_us, {})
                rows: Mapping[str, Values]
                if twin.sink == TABLE:
                    known = {name: tables[name].held() if name in tables else held[name] for name in twin.reads}
                    if self._from_tables:
                        read = {name: tables.get(name) or refresher.table(name) for name in twin.reads}
                        found = {live_name(name): table.rows_at(known[name]) for name, table in read.items()}
                        rows = computed(live_name(twin.view), declared[live_name(twin.view)][0], found)
                        self._world.saw("read from tables")
                    else:
                        rows = yield from self._answer(live_name(twin.view), declared, effect, twin.below)
                        self._world.saw("read from topics")
                    positions[twin] = replace(at, offsets=noted(known))
                else:
                    [name] = twin.reads
                    table = tables.get(name) or refresher.table(name)
                    known = {name: table.held() if name in tables else held[name]}
                    rows = table.rows_at(known[name])
                    positions[twin] = replace(at, offsets=noted(known))
                yield from sink.replace(_upserts(rows, boundary.lsn), positions[twin])
            else:
                view = live_name(twin.view)
                upserts, positions[twin] = self._read(twin, declared[view], effect)
                if view in held:
                    upserts = _upserts(refresher.table(view).rows_at(held[view]), boundary.lsn)
                yield from sink.replace(upserts, positions[twin])
            yield "sink loaded"
        refresher.join(sinks, positions, {twin_name(view): declared[view] for view in wish.views})
        return positions

    def _answer(self, view: str, declared: Mapping[str, Print], effect: Load, below: tuple[str, ...]) -> Steps:
        """A query over what the topics say; what is below it as well."""
        rows: dict[str, Mapping[str, Values]] = {}
        for name in RELATIONS[view]:
            yield "relation begins"
            if name in RELATIONS:
                rows[name] = yield from self._answer(name, declared, effect, below)
            else:
                topic = next(at.topic for at in self._refresher.sinks if (at.view, at.sink) == (name, TABLE))
                upserts, _ = self._read(Target(name, TABLE, topic), declared[name], effect)
                rows[name] = {key: row for key, (_, row) in upserts.items() if row is not None}
        return computed(view, declared[view][0], rows)

    def _read(self, target: Target, declared: Print, effect: Load) -> tuple[Changes, Position]:
        [task] = plan({target: None}, effect.boundary, effect.boundary.lsn)
        wanted = Range(task.start, task.end, task.floor_lsn, task.position.lsn)
        return read_changes(self._broker, target, declared, wanted).upserts, task.position


def _upserts(rows: Mapping[str, Values], lsn: int) -> Changes:
    return {key: (lsn, row) for key, row in rows.items()}
