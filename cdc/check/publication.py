"""The publication: what it should be, what it is, and the difference.

In: a connection, the publication's name, the tables that it should have. Out: its state, and findings (pure).
Invariant: exactly the configured tables, whole (no column list, no filter), never FOR ALL TABLES.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.changes import Relation
from cdc.check.finding import Finding, Level, critical, ok, warning
from cdc.errors import OperatorError
from cdc.names import quote_ident
from cdc.sqlstate import translated

OPERATIONS: Final = ("insert", "update", "delete", "truncate")
_PG15: Final = 150_000
_PG18: Final = 180_000
_FIX: Final = "run: afterimage check --fix"


@dataclass(frozen=True, slots=True)
class Member:
    """A table of the publication; `is_partial` when rows or columns of it are left out."""

    oid: int
    qualified: str
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication as the catalogue has it."""

    name: str
    has_all_tables: bool
    schemas: tuple[str, ...]
    operations: tuple[str, ...]
    via_root: bool
    has_generated: bool
    members: tuple[Member, ...]


def read_publication(connection: psycopg.Connection[Any], name: str) -> Publication | None:
    """The publication, or None."""
    with translated():
        row = connection.execute(
            "SELECT p.oid::int8, to_jsonb(p) FROM pg_catalog.pg_publication p WHERE pubname = %s", [name]
        ).fetchone()
        if row is None:
            return None
        oid, fields = row
        version = connection.info.server_version
        return Publication(
            name,
            has_all_tables=fields["puballtables"],
            schemas=_schemas(connection, oid) if version >= _PG15 else (),
            operations=tuple(operation for operation in OPERATIONS if fields[f"pub{operation}"]),
            via_root=fields["pubviaroot"],
            has_generated=version < _PG18 or fields["pubgencols"] == "s",
            members=_members(connection, oid),
        )


def _schemas(connection: psycopg.Connection[Any], oid: int) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_publication_namespace p "
        "JOIN pg_catalog.pg_namespace n ON n.oid = p.pnnspid WHERE p.pnpubid = %s ORDER BY 1",
        [oid],
    )
    return tuple(row[0] for row in rows)


def _members(connection: psycopg.Connection[Any], oid: int) -> tuple[Member, ...]:
    rows = connection.execute(
        "SELECT c.oid::int8, n.nspname || '.' || c.relname, "
        "to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL "
        "FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_class c ON c.oid = r.prrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = %s ORDER BY 2",
        [oid],
    )
    return tuple(Member(*row) for row in rows)


def options(server_version: int) -> str:
    """What stands in the publication's WITH (..)."""
    generated = ", publish_generated_columns = stored" if server_version >= _PG18 else ""
    return f"publish = '{', '.join(OPERATIONS)}', publish_via_partition_root = true{generated}"


def findings_of(name: str, found: Publication | None, wanted: Sequence[Relation]) -> list[Finding]:
    """What is wrong with the publication; one OK when nothing is."""
    if found is None:
        return [critical("PUBLICATION_MISSING", f"the publication {name} does not exist", _FIX)]
    wrong = list(_unfixable(found)) or [*_wrong_options(found), *_wrong_tables(found, wanted)]
    return wrong or [ok("PUBLICATION", f"the publication {name} has {len(found.members)} tables")]


def require_publication(connection: psycopg.Connection[Any], name: str, wanted: Sequence[Relation]) -> None:
    """Raise the first thing that is critically wrong: from 18 on, a missing publication streams nothing, silently."""
    for finding in findings_of(name, read_publication(connection, name), wanted):
        if finding.level is Level.CRITICAL:
            raise OperatorError(finding.message, finding.remedy, code=finding.code)


def require_whole(connection: psycopg.Connection[Any], name: str) -> dict[int, Member]:
    """The publication's tables; an OperatorError for what is wrong with it as a whole."""
    found = read_publication(connection, name)
    wrong = findings_of(name, None, ()) if found is None else [*_unfixable(found), *_wrong_options(found)]
    for finding in wrong:
        raise OperatorError(finding.message, finding.remedy, code=finding.code)
    assert found is not None
    return {member.oid: member for member in found.members}


def _unfixable(found: Publication) -> Iterator[Finding]:
    # It may be there for others as well, so it is never changed by us.
    scope = "ALL TABLES" if found.has_all_tables else f"TABLES IN SCHEMA {', '.join(found.schemas)}"
    if found.has_all_tables or found.schemas:
        yield critical(
            "PUBLICATION_ALL_TABLES",
            f"the publication {found.name} is FOR {scope}: updates fail in every table that has no key",
            f"DROP PUBLICATION {quote_ident(found.name)}, then {_FIX}; or name another in source.publication",
        )


def _wrong_options(found: Publication) -> Iterator[Finding]:
    missing = [operation for operation in OPERATIONS if operation not in found.operations]
    if missing:
        yield critical("PUBLICATION_OPERATIONS", f"the publication {found.name} leaves out {', '.join(missing)}", _FIX)
    if not found.via_root:
        yield critical(
            "PUBLICATION_PARTITIONS",
            f"the publication {found.name} names partitions instead of their root",
            f"ALTER PUBLICATION {quote_ident(found.name)} SET (publish_via_partition_root = true), or {_FIX}",
        )
    if not found.has_generated:
        yield critical(
            "PUBLICATION_GENERATED",
            f"the publication {found.name} leaves out generated columns",
            f"ALTER PUBLICATION {quote_ident(found.name)} SET (publish_generated_columns = stored), or {_FIX}",
        )


def _wrong_tables(found: Publication, wanted: Sequence[Relation]) -> Iterator[Finding]:
    members = {member.oid for member in found.members}
    for relation in wanted:
        if relation.oid not in members:
            yield critical("PUBLICATION_LACKS", f"the publication {found.name} lacks {relation.qualified}", _FIX)
    captured = {relation.oid for relation in wanted}
    for member in found.members:
        if member.oid not in captured:
            message = f"the publication {found.name} has {member.qualified}, which is not captured"
            yield warning("PUBLICATION_EXTRA", message, _FIX)
        elif member.is_partial:
            message = f"the publication {found.name} leaves out rows or columns of {member.qualified}"
            yield critical("PUBLICATION_PARTIAL", message, _FIX)
