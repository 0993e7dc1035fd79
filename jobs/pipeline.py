"""A pipeline as apply runs it: the captured tables, the views declared over them, and their sinks.

In: settings and the schema topic. Out: targets with their specs and sinks. A view file that is wrong stops here, with
file and position, before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc.progress import Progress
from cdc.settings import Settings
from jobs.batch import TABLE, Target, is_stopped
from jobs.control import Kind, Request
from jobs.declarations import Declarations, captured_tables, declarations
from jobs.declare import OnError
from jobs.tables import TableInfo
from sinks.delta import DeltaSink
from sinks.protocol import Sink
from sinks.registry import make_sink
from sinks.spec import Kind as ViewKind
from sinks.spec import SinkOptions, ViewSpec


@dataclass(frozen=True, slots=True)
class Coming:
    """What files declare while the live rows still follow former ones; the views of a group are shown together.

    A sink that holds the very rows that it is to hold is the live one.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    specs: Mapping[str, ViewSpec] = field(default_factory=dict)
    sinks: Mapping[Target, Sink] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that a batch needs to know, frozen until the tables or the files change."""

    tables: Mapping[str, TableInfo]
    """By topic."""
    specs: Mapping[str, ViewSpec]
    """By view name: mirrors and declared views."""
    sinks: Mapping[Target, Sink]
    texts: Mapping[str, str] = field(default_factory=dict)
    """Of the declared views: the files, to the letter, whose declarations the live rows follow."""
    coming: Coming = field(default_factory=Coming)

    def stays(self, views: Collection[str]) -> frozenset[Target]:
        """What these views' files declare and is live already."""
        coming = self.coming.sinks.items()
        return frozenset(at for at, sink in coming if at.view in views and self.sinks.get(at) is sink)

    def renewed(self, views: Collection[str]) -> Pipeline:
        """The pipeline in which these views are what their files declare."""
        coming = self.coming
        kept = {target: sink for target, sink in self.sinks.items() if target.view not in views}
        sinks = {target: sink for target, sink in coming.sinks.items() if target.view in views}
        specs = {name: spec for name, spec in coming.specs.items() if name in views}
        texts = {name: text for name, text in coming.texts.items() if name in views}
        return replace(self, specs={**self.specs, **specs}, sinks=kept | sinks, texts={**self.texts, **texts})

    def following(self, boundary: Progress, failing: Collection[str]) -> dict[Target, Sink]:
        """The sinks that stand where all do: not those of what has stopped alone."""
        sinks = self.sinks.items()
        return {at: sink for at, sink in sinks if not is_stopped(at, boundary) and at.view not in failing}

    def is_asked_otherwise(self, requests: Iterable[Request]) -> bool:
        """Whether somebody wants a view that is not known here rebuilt, or one that is known dropped.

        Who asks goes by the files as they are: these may be newer.
        """
        known = {*self.specs, *self.coming.specs}
        asked = [(each.kind, each.view in known) for each in requests]
        return (Kind.REBUILD, False) in asked or (Kind.DROP, True) in asked


def load_pipeline(settings: Settings, on_error: OnError | None = None, *, as_filed: bool = False) -> Pipeline:
    """The pipeline as the schema topic and the view files have it now; `as_filed` keeps to no former declaration.

    With `on_error`, a view that is wrong is told and left out: a table's new shape must not stop all the others.
    """
    tables = captured_tables(settings)
    found = declarations(settings, tables, on_error, as_filed=as_filed)
    topics = {key: table.topic for key, table in tables.items()}
    by_topic = {table.topic: table for table in tables.values()}
    live = Pipeline(by_topic, found.live, _sinks(settings, found.live, found.live, topics), found.texts)
    if not found.groups:
        return live
    sinks = _sinks(settings, found.coming, {**found.live, **found.coming}, topics)
    sinks |= {target: live.sinks[target] for target in sinks if _is_same(target, found)}
    return replace(live, coming=Coming(found.groups, found.coming, sinks, found.coming_texts))


def _is_same(target: Target, found: Declarations) -> bool:
    """Whether what is coming is what is live already."""
    specs = (found.live.get(target.view), found.coming[target.view])
    one, other = ((spec.fingerprint, _option(spec, target.sink)) if spec is not None else None for spec in specs)
    return one == other


def _option(spec: ViewSpec, sink: str) -> SinkOptions | None:
    return next((option for option in spec.sinks if option.name == sink), None)


def _sinks(
    settings: Settings,
    specs: Mapping[str, ViewSpec],
    known: Mapping[str, ViewSpec],
    topics: Mapping[tuple[str, str], str],
) -> dict[Target, Sink]:
    return {
        target: make_sink(option, spec, settings)
        for spec in specs.values()
        for target, option in _targets(spec, known, topics)
    }


def _targets(
    spec: ViewSpec, specs: Mapping[str, ViewSpec], topics: Mapping[tuple[str, str], str]
) -> Iterator[tuple[Target, SinkOptions]]:
    if spec.kind is not ViewKind.QUERY:
        topic = topics[spec.schema, spec.table]
        yield from ((Target(spec.name, option.name, topic), option) for option in spec.sinks)
        return
    depth, below = _depth(spec, specs), tuple(sorted({topics[table] for table in _tables(spec, specs)}))
    for option in spec.sinks:
        level = 2 * depth - 1 if option.name == TABLE else 2 * depth
        reads = spec.relations if option.name == TABLE else (spec.name,)
        yield Target(spec.name, option.name, "", level, below, reads), option


def held_tables(sinks: Mapping[Target, Sink]) -> dict[str, DeltaSink]:
    """Views' own tables, by view; a history is a sink of the same kind, of the same name."""
    return {at.view: sink for at, sink in sinks.items() if at.sink == TABLE and isinstance(sink, DeltaSink)}


def lowest_first(specs: Sequence[ViewSpec]) -> list[ViewSpec]:
    """Those that are read before those that read them, as far as they are among these."""
    among = {spec.name: spec for spec in specs}

    def depth(spec: ViewSpec) -> int:
        return 1 + max((depth(among[name]) for name in spec.relations if name in among), default=0)

    return sorted(specs, key=lambda spec: (depth(spec), spec.kind is not ViewKind.MIRROR, spec.name))


def _depth(spec: ViewSpec, specs: Mapping[str, ViewSpec]) -> int:
    """How many queries lie above each other, up to this one."""
    return 1 + max((_depth(specs[name], specs) for name in spec.relations), default=0) if spec.plan is not None else 0


def _tables(spec: ViewSpec, specs: Mapping[str, ViewSpec]) -> frozenset[tuple[str, str]]:
    """The tables that a view is made of in the end."""
    if spec.kind is not ViewKind.QUERY:
        return frozenset({(spec.schema, spec.table)})
    return frozenset().union(*(_tables(specs[name], specs) for name in spec.relations))
