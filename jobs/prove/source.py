"""The source as it was at one position of its log: a snapshot exported by a temporary slot, read by the role `read`.

In: settings. Out: a cut, and the rows of a view's own SQL in it, as Postgres prints them. Keeps true: the cut shows
every transaction whose commit record lies before its LSN, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from cdc.changes import Column
from cdc.errors import ConfigError, OperatorError
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.settings import Settings
from cdc.sqlstate import translate, translated
from sinks.spec import Concealed, ViewSpec
from snapshot.cut import cut_of_source

SNAPSHOT_TIMEOUT_S: Final = 60.0
_APPLICATION: Final = "afterimage prove"

# A partitioned table stands for its partitions; it has no rows of its own.
_INHERITED: Final = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r'
  AND EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid)
"""

TextRow = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ColumnType:
    """What Postgres says a view's column is; domains are looked through."""

    oid: int
    mod: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """The planner's guess."""

    rows: float
    cost: float


@dataclass(frozen=True, slots=True)
class SourceCut:
    """The source at `lsn`, for as long as its connection's transaction lives."""

    lsn: int
    connection: psycopg.Connection[Any]
    privacy: Privacy = field(default_factory=Privacy)

    def types(self, spec: ViewSpec) -> tuple[ColumnType, ...]:
        """The types of the view's columns; OperatorError if its SQL no longer runs or gives other columns."""
        try:
            with self.connection.transaction():
                cursor = self.connection.execute(f"SELECT * FROM ({self._sql(spec)}) v LIMIT 0".encode())  # noqa: S608
        except psycopg.Error as error:
            cause = translate(error)
            raise type(cause)(f"view {spec.name}: {cause.message}", cause.hint, code=cause.code) from error
        result = cursor.pgresult
        assert result is not None
        if result.nfields != len(spec.columns):
            raise OperatorError(
                f"view {spec.name} has {len(spec.columns)} columns, its SQL gives {result.nfields} in Postgres",
                f"rebuild it: afterimage rebuild {spec.name}",
            )
        found = [ColumnType(result.ftype(column), result.fmod(column)) for column in range(result.nfields)]
        for name, concealed in spec.concealed.items():
            found[spec.columns.index(name)] = ColumnType(concealed.base_oid, concealed.type_mod)
        return tuple(found)

    def rows(self, spec: ViewSpec, condition: str | None = None) -> Iterator[TextRow]:
        """The view's rows, each value as the type's output function prints it, or as it was concealed.

        With a condition over the columns c1, c2, .. only those rows.
        """
        conceal = {spec.columns.index(name): self._concealment(spec, each) for name, each in spec.concealed.items()}
        sql = self._sql(spec) if condition is None else self._select(spec, "*", condition)
        # The savepoint keeps the snapshot when the SQL fails midway or the caller reads no further.
        with (
            translated(),
            self.connection.transaction(),
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY ({sql}) TO STDOUT".encode()) as copy,
        ):
            rows: Iterator[TextRow] = copy.rows()
            yield from (_concealed(row, conceal) for row in rows) if conceal else rows

    def key_at(self, spec: ViewSpec, columns: Sequence[str], condition: str, place: int) -> tuple[str, ...] | None:
        """Sorted by these columns, what the row at `place` has in them; None where there are not so many rows.

        Place -1 is that of the last row.
        """
        way = " DESC" if place < 0 else ""
        ordered = f"ORDER BY {', '.join(column + way for column in columns)} OFFSET {max(0, place)} LIMIT 1"
        sql = f"{self._select(spec, ', '.join(columns), condition)} {ordered}"
        with translated(), self.connection.transaction():
            result = self.connection.execute(sql.encode()).pgresult
        if result is None or not result.ntuples:
            return None
        # As Postgres sent them: a cast to text would drop the blanks of char(n).
        return tuple((result.get_value(0, at) or b"").decode() for at in range(result.nfields))

    def estimate(self, spec: ViewSpec, condition: str = "true", first: str = "") -> Estimate:
        """What Postgres expects of reading the view, or of the `first` rows (an ORDER BY with LIMIT) of a condition."""
        sql = f"EXPLAIN (FORMAT JSON) {self._select(spec, '*', condition)} {first}"
        with translated(), self.connection.transaction():
            row = self.connection.execute(sql.encode()).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return Estimate(plan["Plan Rows"], plan["Total Cost"])

    def _select(self, spec: ViewSpec, what: str, condition: str) -> str:
        names = ", ".join(column_name(at) for at in range(len(spec.columns)))
        return f"SELECT {what} FROM ({self._sql(spec)}) v({names}) WHERE {condition}"  # noqa: S608  the view's own SQL

    def _concealment(self, spec: ViewSpec, concealed: Concealed) -> Callable[[str], str]:
        column = Column(concealed.column, concealed.base_oid, concealed.type_mod, "", concealed.base_oid, is_key=False)
        rule = self.privacy.rule(spec.schema, spec.table, concealed.column)
        if rule is None:
            raise ConfigError(
                f"view {spec.name}: column {concealed.column} arrived concealed, and source.columns has no rule for it",
                "prove with the configuration that capture runs with",
                code="COLUMN_RULE",
            )
        return self.privacy.treatment(column, rule).conceal

    def _sql(self, spec: ViewSpec) -> str:
        """The view's SQL over the tables themselves, as the log has them: inheriting tables are others."""
        sql = spec.postgres_sql
        for named in sorted(spec.named, key=lambda each: each.at, reverse=True):
            if self.connection.execute(_INHERITED, (named.schema, named.table)).fetchone():
                sql = f"{sql[: named.at]}ONLY {sql[named.at :]}"
        # The line break ends a comment on the last line.
        return sql.strip().rstrip(";") + "\n"


def column_name(at: int) -> str:
    """What conditions call a view's column: its own name may be any, and others may have it too."""
    return f"c{at + 1}"


def _concealed(row: TextRow, conceal: Mapping[int, Callable[[str], str]]) -> TextRow:
    return tuple(value if value is None or at not in conceal else conceal[at](value) for at, value in enumerate(row))


@contextmanager
def source_at_lsn(settings: Settings, *, timeout_s: float = SNAPSHOT_TIMEOUT_S) -> Iterator[SourceCut]:
    """The source at an LSN of the server's choice, which is now or a moment ago."""
    with cut_of_source(settings, timeout_s=timeout_s, application=_APPLICATION) as cut:
        yield SourceCut(cut.lsn, cut.connection, Privacy.of(settings.source))


@contextmanager
def source_now(settings: Settings) -> Iterator[SourceCut]:
    """The source at no particular LSN: for what is to be known before apply is held."""
    with connect(settings.source, settings.source.read, application=_APPLICATION) as connection:
        yield SourceCut(0, connection, Privacy.of(settings.source))
