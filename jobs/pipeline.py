"""A pipeline as apply runs it: the captured tables, the views declared over them, and their sinks.

In: settings and the schema topic. Out: targets with their specs and sinks. A view file that is wrong stops here, with
file and position, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.schema_log import read_schemas
from cdc.settings import Settings
from jobs.batch import Target
from jobs.declare import OnError, load_views, mirror_spec
from jobs.tables import TableInfo
from sinks.protocol import Sink
from sinks.registry import make_sink
from sinks.spec import ViewSpec


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
    specs = [mirror_spec(table) for table in tables.values()]
    specs += load_views(settings.views, tables, on_error)
    return {spec.name: spec for spec in specs}


def load_pipeline(settings: Settings, on_error: OnError | None = None) -> Pipeline:
    """The pipeline as the schema topic and the view files have it now.

    With `on_error`, a view that is wrong is told and left out: a table's new shape must not stop all the others.
    """
    tables = captured_tables(settings)
    specs = declared(settings, tables, on_error)
    sinks = {}
    for spec in specs.values():
        topic = tables[spec.schema, spec.table].topic
        for option in spec.sinks:
            sinks[Target(spec.name, option.name, topic)] = make_sink(option, spec, settings)
    return Pipeline({table.topic: table for table in tables.values()}, specs, sinks)
