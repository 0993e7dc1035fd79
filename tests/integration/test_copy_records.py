"""A table's COPY as records: the same whether compiled code takes the rows from libpq or Python does."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import cdc.copy_data
import snapshot.copy_records
from cdc import compiled, oids
from cdc.changes import Origin
from cdc.envelope import TableEncoder
from cdc.errors import CdcError
from cdc.progress import checksum
from snapshot.copy_records import BATCH_ROWS, Copied, copy_records
from tests.support import frames
from tests.support.compiling import built
from tests.support.servers import Database

ORIGIN = Origin(99, None, 1_700_000_000_123_456)
TABLE = frames.table(columns=[("id", oids.INT8), ("note", oids.TEXT), ("paid", oids.BOOL)], key=["id"])
ROWS = 3 * BATCH_ROWS + 7
AWKWARD = f"""COPY (
    SELECT g, CASE g % 4 WHEN 0 THEN NULL WHEN 1 THEN E'tab\\there \\\\ "é" \\n' WHEN 2 THEN repeat('x', g % 500)
           ELSE '' END, g % 2 = 0
    FROM generate_series(1, {ROWS}) g
) TO STDOUT"""


@pytest.fixture(autouse=True)
def encoder_of_this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "records", built())
    monkeypatch.setattr(snapshot.copy_records, "_now_ms", lambda: 77)


def copied(connection: Any, statement: str) -> list[Copied]:
    return list(copy_records(connection, statement.encode(), TableEncoder("shop", "db", TABLE, 3), ORIGIN))


def test_compiled_rows_are_those_of_python(pg_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with pg_database.connect() as connection:
        fast = copied(connection, AWKWARD)
        monkeypatch.setattr(cdc.copy_data, "copy_functions", lambda: None)
        slow = copied(connection, AWKWARD)

    assert [record for batch in fast for record in batch.records] == [r for batch in slow for r in batch.records]
    assert len(fast) > ROWS // BATCH_ROWS
    assert all(batch.checksum == checksum(batch.records) for batch in fast)


def test_a_row_that_is_not_plain_is_left_to_python(pg_database: Database) -> None:
    # Closed in the middle of a COPY, as capture does it.
    with closing(pg_database.connect()) as connection, pytest.raises(CdcError) as raised:
        copied(
            connection,
            "COPY (SELECT CASE WHEN g < 2500 THEN g END, 'x', true FROM generate_series(1, 5000) g) TO STDOUT",
        )

    assert "null" in str(raised.value).lower()


def test_an_error_of_the_server_is_raised_and_not_taken_for_the_end(pg_database: Database) -> None:
    with pg_database.connect() as connection:
        with pytest.raises(CdcError):
            copied(connection, "COPY (SELECT 1 / (4000 - g), 'x', true FROM generate_series(1, 5000) g) TO STDOUT")
        assert len(copied(connection, "COPY (SELECT 1, 'still usable', true) TO STDOUT")[0].records) == 1


def test_it_waits_for_a_server_that_takes_its_time(pg_database: Database) -> None:
    slowly = "COPY (SELECT g, pg_sleep(0.2)::text, true FROM generate_series(1, 3) g) TO STDOUT"
    with pg_database.connect() as connection:
        assert sum(len(batch.records) for batch in copied(connection, slowly)) == 3
