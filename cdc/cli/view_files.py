"""What `check` finds in the view files before anything runs: what no view may be, and what Postgres would not run.

In: the folder of views, the relations that would be captured, the source. Out: findings, and which sinks are needed.
Keeps true: tables are taken as Postgres has them now, so nothing has to be captured yet; each wrong file is one
finding, and the others are looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from cdc.changes import Relation
from cdc.check import Finding, of_error, ok
from cdc.errors import CdcError, ConfigError
from cdc.privacy import Privacy
from cdc.schema_record import SchemaRecord
from cdc.settings import Settings
from jobs.declarations import declared
from jobs.declare import view_texts
from jobs.declare.filed import named_sinks
from jobs.prove.agreed import disagreements
from jobs.prove.source import SourceCut, source_now
from jobs.tables import TableInfo
from sinks.spec import Kind, ViewSpec

_CODE: Final = "VIEW_IN_POSTGRES"
_NOT_RUN: Final = "run the file in a Postgres console until it works there as it is"
_DEFECT: Final = "write CAST(.. AS the type that it should have), and report it: our rules are wrong here"


def sinks_needed(settings: Settings) -> set[str]:
    """The sinks that some view goes to; a file that is wrong needs none."""
    found: set[str] = set()
    for source in view_texts(settings.views, lambda *_: None).values():
        found.update(named_sinks(source) or ())
    return found


def look_at_views(settings: Settings, relations: Sequence[Relation]) -> list[Finding]:
    """Declare every file over these tables, and have Postgres plan what was declared."""
    if not relations:
        # What stands in the way of all tables has been told; over none, every view would be wrong.
        return []
    wrong: dict[str, ConfigError] = {}
    specs = declared(settings, _tables(settings, relations), wrong.__setitem__)
    found = [of_error(error) for error in wrong.values()]
    views = [spec for spec in specs.values() if spec.kind is not Kind.MIRROR]
    try:
        with source_now(settings) as source:
            for spec in views:
                found += _asked(source, spec)
    except CdcError:
        # That the source does not let us in has been told.
        return found
    return found or [ok("VIEWS", f"{len(views)} views, each runs in Postgres as it is declared")]


def _tables(settings: Settings, relations: Collection[Relation]) -> Mapping[tuple[str, str], TableInfo]:
    """The tables as capture would describe them."""
    privacy = Privacy.of(settings.source)
    records = [SchemaRecord(0, privacy.published(relation), "", 1) for relation in relations]
    found = [TableInfo.from_json(record.value()) for record in records]
    return {(table.schema, table.table): table for table in found}


def _asked(source: SourceCut, spec: ViewSpec) -> Iterator[Finding]:
    try:
        types = source.types(spec)
    except CdcError as error:
        if error.code == "POSTGRES_UNAVAILABLE":
            raise
        yield of_error(ConfigError(f"{spec.file}: Postgres does not run it: {error.message}", _NOT_RUN, code=_CODE))
        return
    for message in disagreements(spec, types):
        yield of_error(ConfigError(f"{spec.file}: {message}", _DEFECT, code=_CODE))
