"""A pipeline as apply runs it: the captured tables, the views declared over them, and their sinks.

In: settings and the schema topic. Out: targets with their specs and sinks. A view file that is wrong stops here, with
file and position, before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc.lsn import format_lsn
from cdc.schema_log import read_schemas
from cdc.settings import Settings
from jobs.batch import TABLE, Target
from jobs.declare import OnError, load_views, mirror_spec
from jobs.tables import TableInfo
from sinks.history.columns import HISTORY
from sinks.protocol import Sink
from sinks.registry import make_sink
from sinks.spec import Kind, SinkOptions, ViewSpec


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that a batch needs to know, frozen until the tables or the files change."""

    tables: Mapping[str, TableInfo]
    """By topic."""
    specs: Mapping[str, ViewSpec]
    """By view name: mirrors and declared views."""
    sinks: Mapping[Target, Sink]


def captured_tables(settings: Settings) -> dict[tuple[str, str], TableInfo]:
    """The tables that the topics hold, by schema and name."""
    schemas = read_schemas(settings.kafka, settings.pipeline)
    return {key: TableInfo.from_json(record.value()) for key, record in schemas.items()}


def declared(
    settings: Settings, tables: Mapping[tuple[str, str], TableInfo], on_error: OnError | None = None
) -> dict[str, ViewSpec]:
    """A mirror of every table and every declared view, by name; nothing before anything is captured."""
    if not tables:
        return {}
    specs = [_with_history(mirror_spec(table), table, settings) for table in tables.values()]
    specs += load_views(settings.views, tables, on_error)
    read = {relation for spec in specs for relation in spec.relations}
    return {spec.name: _with_table(spec, is_read=spec.name in read) for spec in specs}


def _with_table(spec: ViewSpec, *, is_read: bool) -> ViewSpec:
    """A query's rows, and those that a query reads, are kept in Delta whatever other sinks there are."""
    has_one = any(option.name == TABLE for option in spec.sinks)
    if has_one or not (is_read or spec.kind is Kind.QUERY):
        return spec
    return replace(spec, sinks=(SinkOptions(TABLE), *spec.sinks))


def _with_history(spec: ViewSpec, table: TableInfo, settings: Settings) -> ViewSpec:
    """The mirror with one sink more, if the configuration wants a history of its table."""
    if not settings.history.covers(table.schema, table.table):
        return spec
    return replace(spec, sinks=(*spec.sinks, SinkOptions(HISTORY, {"shape_lsn": format_lsn(table.lsn)})))


def load_pipeline(settings: Settings, on_error: OnError | None = None) -> Pipeline:
    """The pipeline as the schema topic and the view files have it now.

    With `on_error`, a view that is wrong is told and left out: a table's new shape must not stop all the others.
    """
    tables = captured_tables(settings)
    specs = declared(settings, tables, on_error)
    topics = {key: table.topic for key, table in tables.items()}
    sinks = {
        target: make_sink(option, spec, settings)
        for spec in specs.values()
        for target, option in _targets(spec, specs, topics)
    }
    return Pipeline({table.topic: table for table in tables.values()}, specs, sinks)


def _targets(
    spec: ViewSpec, specs: Mapping[str, ViewSpec], topics: Mapping[tuple[str, str], str]
) -> Iterator[tuple[Target, SinkOptions]]:
    if spec.kind is not Kind.QUERY:
        topic = topics[spec.schema, spec.table]
        yield from ((Target(spec.name, option.name, topic), option) for option in spec.sinks)
        return
    depth, below = _depth(spec, specs), tuple(sorted({topics[table] for table in _tables(spec, specs)}))
    for option in spec.sinks:
        level = 2 * depth - 1 if option.name == TABLE else 2 * depth
        reads = spec.relations if option.name == TABLE else (spec.name,)
        yield Target(spec.name, option.name, "", level, below, reads), option


def lowest_first(specs: Sequence[ViewSpec]) -> list[ViewSpec]:
    """Those that are read before those that read them, as far as they are among these."""
    among = {spec.name: spec for spec in specs}

    def depth(spec: ViewSpec) -> int:
        return 1 + max((depth(among[name]) for name in spec.relations if name in among), default=0)

    return sorted(specs, key=lambda spec: (depth(spec), spec.kind is not Kind.MIRROR, spec.name))


def _depth(spec: ViewSpec, specs: Mapping[str, ViewSpec]) -> int:
    """How many queries lie above each other, up to this one."""
    return 1 + max((_depth(specs[name], specs) for name in spec.relations), default=0) if spec.plan is not None else 0


def _tables(spec: ViewSpec, specs: Mapping[str, ViewSpec]) -> frozenset[tuple[str, str]]:
    """The tables that a view is made of in the end."""
    if spec.kind is not Kind.QUERY:
        return frozenset({(spec.schema, spec.table)})
    return frozenset().union(*(_tables(specs[name], specs) for name in spec.relations))
