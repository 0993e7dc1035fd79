"""The tables as the catalogue has them now, held against what the topics say of them: what the log does not tell.

In: a connection and the schema records. Out: which tables can't be followed, which must be read again, which may join.
Keeps true: a table in doubt is named here before its changes are published any further.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from cdc.capture import RETRY_S
from cdc.catalog import Table, all_tables, is_configured, relations_by_oid
from cdc.changes import Relation, Trouble
from cdc.check import publication, tables
from cdc.evolution import Effect, changed, no_key, verdict
from cdc.look import Known, Look
from cdc.lsn import parse_lsn
from cdc.privacy import Privacy
from cdc.relations import partial
from cdc.schema_record import SchemaRecord
from cdc.settings import Settings
from cdc.slots import LOG_END
from cdc.sqlstate import translated


def look_at_tables(connection: psycopg.Connection[Any], settings: Settings, known: Known, privacy: Privacy) -> Look:
    """Compare now; critical faults of the publication as a whole, or of the rules of columns, are errors."""
    with translated(), connection.transaction():
        # One moment for all that is asked, or a table that is altered meanwhile is half there.
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return _compared(connection, settings, known, privacy)


def _compared(connection: psycopg.Connection[Any], settings: Settings, known: Known, privacy: Privacy) -> Look:
    source = settings.source
    there = all_tables(connection)
    configured = {
        (t.schema, t.name): t for t in there if is_configured(t.schema, t.name, source.tables, source.exclude)
    }
    by_oid = {table.oid: table for table in there}
    published = publication.require_whole(connection, settings.publication)
    wanted = {table.oid for table in configured.values()} | {record.shape.oid for record in known.values()}
    relations = relations_by_oid(connection, wanted)
    facts = {each.relation.oid: each for each in tables.table_facts(connection, list(relations.values()))}
    current: dict[tuple[str, str], Relation] = {}
    stuck: dict[tuple[str, str], Trouble] = {}
    again: dict[tuple[str, str], Trouble] = {}
    gone = set()
    for name in {*configured, *known}:
        record = known.get(name)
        table = _standing_for(name, record, by_oid, configured)
        trouble = _trouble(name, record, table, facts, published)
        if trouble is None and record is not None and table is not None:
            privacy.require_unchanged(record.shape, record.rules)
            trouble = privacy.renamed(relations[table.oid], record.shape, relations[table.oid])
        if trouble is not None:
            if not is_configured(*name, source.tables, source.exclude):
                gone.add(name)
            elif record is not None:
                stuck[name] = trouble
            continue
        assert table is not None
        current[name] = relations[table.oid]
        if record is not None and (reason := _difference(record.shape, privacy.published(current[name]))) is not None:
            again[name] = reason
    return Look(current, stuck, again, frozenset(gone), frozenset(by_oid))


def _standing_for(
    name: tuple[str, str], record: SchemaRecord | None, by_oid: Mapping[int, Table], named: Mapping[Any, Table]
) -> Table | None:
    """The table itself under whatever name, else another one that has taken its name."""
    own = by_oid.get(record.shape.oid) if record is not None else None
    if own is not None and (own.schema, own.name) == name:
        return own
    return named.get(name) or own


def _trouble(
    name: tuple[str, str],
    record: SchemaRecord | None,
    table: Table | None,
    facts: Mapping[int, tables.TableFacts],
    published: Mapping[int, publication.Member],
) -> Trouble | None:
    qualified = ".".join(name)
    if table is None:
        return Trouble(
            "TABLE_DROPPED",
            f"table {qualified} was dropped",
            "make it again, or take it out with source.exclude; its topic and views stay as they were",
        )
    if record is not None and (table.schema, table.name) != name:
        renamed = verdict(record.shape, facts[table.oid].relation).trouble
        assert renamed is not None
        return renamed
    if table.unfit is not None:
        return Trouble(
            "NOT_CAPTURED",
            f"table {qualified} is {table.unfit.value} now: its changes are not in the log",
            "make it an ordinary table again: capture then reads it again by itself; or add it to source.exclude",
        )
    return _unfit(facts[table.oid], published.get(table.oid))


def _unfit(facts: tables.TableFacts, member: publication.Member | None) -> Trouble | None:
    qualified = facts.relation.qualified
    if not facts.relation.key and not facts.key_is_deferrable:
        return no_key(facts.relation)
    if (found := tables.blocking(facts)) is not None:
        return Trouble(found.code, found.message, f"{found.remedy or ''}; capture then reads it again by itself")
    if member is None:
        return Trouble(
            "PUBLICATION_LACKS",
            f"the publication lacks {qualified}",
            "run: afterimage check --fix; capture then reads the table by itself",
        )
    return partial(qualified, "rows or columns") if member.is_partial else None


def _difference(before: Relation, after: Relation) -> Trouble | None:
    """Why the table must be read again, if so; what the log will tell in its place is left to it."""
    if before.oid != after.oid:
        return changed(after, "was dropped and made again")
    found = verdict(before, after)
    return found.trouble if found.effect is Effect.READ_AGAIN else None


Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]
Looking = Callable[[psycopg.Connection[Any]], Look]

_LEAVE_S: Final = 2.0


class Watch:
    """Looks again every few seconds, beside the stream, over a connection of its own: a look must not hold it up."""

    def __init__(self, connect: Connect, look: Looking, first: Look, interval_s: float, *, retry: bool) -> None:
        """With `retry`, a table could not be read just now, and is worth another attempt after a while."""
        self._connect = connect
        self._look = look
        self._summary = first.summary()
        self._interval_s = interval_s
        self._retry_s = time.monotonic() + RETRY_S if retry else None
        self._ended = threading.Event()
        self._found: BaseException | bool = False
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        # Over a line that is dead without saying so a look never ends; nobody waits for it then.
        self._thread.join(_LEAVE_S)

    def has_news(self) -> bool:
        """Whether there is something to do that was not there at the first look."""
        if isinstance(self._found, BaseException):
            raise self._found
        return self._found

    def _run(self) -> None:
        try:
            with self._connect() as connection:
                while not self._found and not self._ended.wait(self._interval_s):
                    is_time = self._retry_s is not None and time.monotonic() > self._retry_s
                    self._found = is_time or self._look(connection).summary() != self._summary
        except BaseException as error:  # noqa: BLE001  it is raised again where the stream is driven
            self._found = error


def log_end(connection: psycopg.Connection[Any]) -> int:
    """Where the source's log ends now."""
    with translated():
        row = connection.execute(f"SELECT ({LOG_END})::text".encode()).fetchone()
    assert row is not None
    return parse_lsn(row[0])
