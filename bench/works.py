"""The works of the benchmark: which table, what is in it, and what fills the log.

In: a size. Out: SQL. All of it runs in Postgres, so that making the work costs no client.
"""

from __future__ import annotations

from dataclasses import dataclass

ACCOUNTS = (
    "CREATE TABLE {table} (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
    "INSERT INTO {table} SELECT g, (g - 1) / 100000 + 1, 0, '' FROM generate_series(1, {rows}) g",
)
WIDE = (
    """CREATE TABLE {table} (
    id bigint PRIMARY KEY, customer uuid NOT NULL, name text NOT NULL, email text, amount numeric(12,2), rate float8,
    is_paid boolean, created timestamptz NOT NULL, due date, tags text[], details jsonb, note text
)""",
    """INSERT INTO {table} SELECT
    g, md5(g::text)::uuid, 'customer ' || g, 'user' || g || '@mail.example', (g % 100000) / 100.0, g * 1.5e-3,
    g % 2 = 0, timestamptz '2026-01-01' + g * interval '1 second', date '2026-01-01' + g % 365,
    ARRAY['tag' || g % 10, 'other'],
    jsonb_build_object('source', 'web', 'score', g % 100, 'items', jsonb_build_array(g, g + 1)),
    CASE WHEN g % 3 = 0 THEN NULL ELSE 'a note with "quotes" and a tab' || chr(9) || g END
FROM generate_series(1, {rows}) g""",
)
SETTLED = "VACUUM (FREEZE, ANALYZE) {table}"

ONE_ROW = """
CREATE PROCEDURE fill(changes int, rows int) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..changes LOOP
        CASE n % 5
            WHEN 3 THEN INSERT INTO {table} VALUES (rows + n, 1, n, '');
            WHEN 4 THEN DELETE FROM {table} WHERE aid = rows + n - 1;
            ELSE UPDATE {table} SET abalance = n WHERE aid = 1 + (n::bigint * 7919) % rows;
        END CASE;
        COMMIT;
    END LOOP;
END $$
"""
HUNDRED_ROWS = """
CREATE PROCEDURE fill(changes int, rows int) LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..changes / 100 LOOP
        UPDATE {table} SET abalance = n WHERE aid BETWEEN 1 + (n * 100) % rows AND 100 + (n * 100) % rows;
        COMMIT;
    END LOOP;
END $$
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table read from nothing."""

    name: str
    ddl: tuple[str, ...]
    rows: int

    @property
    def records(self) -> int:
        """How many records the topic must get."""
        return self.rows


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A log that was written while nobody read it."""

    name: str
    procedure: str
    changes: int
    rows: int
    """In the table before the log begins."""
    records_per_change: float
    """Deletes are followed by a tombstone."""

    @property
    def records(self) -> int:
        """How many records the topic must get."""
        return round(self.changes * self.records_per_change)


def snapshots(scale: float) -> list[Snapshot]:
    """The whole ones at `scale` 1."""
    rows = int(1_000_000 * scale)
    return [Snapshot("snapshot", ACCOUNTS, rows), Snapshot("snapshot_wide", WIDE, rows)]


def catch_ups(scale: float) -> list[CatchUp]:
    """The whole ones at `scale` 1."""
    changes, rows = int(500_000 * scale), int(100_000 * min(1.0, scale * 2))
    return [
        CatchUp("catchup_1row", ONE_ROW, changes, rows, 1.2),
        CatchUp("catchup_100row", HUNDRED_ROWS, changes, rows, 1.0),
    ]
