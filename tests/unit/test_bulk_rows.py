"""Records as Arrow columns: what differs from what capture writes is left to Spark, which names it or refuses it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import jobs.bulk.newest
from jobs.bulk.newest import Newest
from jobs.bulk.parse import parsed, require_plain
from jobs.bulk.scan import Records
from jobs.bulk.typed import typed
from jobs.native_rows import Unusual
from jobs.tables import ColumnInfo, TableInfo
from tests.support.events import dumps, table

ID = ColumnInfo("id", "bigint", 20, 20, key=True, nullable=False)
PRICE = ColumnInfo("price", "numeric(10,2)", 1700, 1700, type_mod=(10 << 16 | 2) + 4)
ORDERS = table("p", [ID, PRICE])


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "source": {"commit_lsn": 10, "ordinal": 1}, "op": "c"}


def read(info: TableInfo, *values: bytes) -> list[dict[str, Any]]:
    """Values of keys 0, 1, .."""
    require_plain(info)
    count = len(values)
    records = Records([b'{"id":%d}' % key for key in range(count)], [*values], [0] * count, [*range(count)])
    newest = Newest((0, 2**62))
    newest.add(parsed(records, info))
    rows: pa.Table = typed(newest.rows(), info)
    return rows.to_pylist()


def test_plain_records_are_rows():
    values = [dumps(envelope({"id": key, "price": f"{key}.50"})) for key in (0, 1)]
    assert [(row["id"], str(row["price"])) for row in read(ORDERS, *values)] == [(0, "0.50"), (1, "1.50")]


def test_more_keys_than_wanted_show_before_all_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs.bulk.newest, "FOLD_BYTES", 0)
    newest = Newest((0, 2**62), rows_max=2)
    value = dumps(envelope({"id": 1, "price": "1.00"}))
    for offset, key in enumerate((1, 2, 1, 2, 1, 2)):
        newest.add(parsed(Records([b'{"id":%d}' % key], [value], [0], [offset]), ORDERS))
    with pytest.raises(Unusual, match="rows"):
        newest.add(parsed(Records([b'{"id":3}'], [value], [0], [6]), ORDERS))


ODD_VALUES = [
    (PRICE, "NaN"),
    (PRICE, "123456789.00"),
    (PRICE, "1.005"),
    (PRICE, 12),
    (ColumnInfo("x", "numeric(38,0)", 1700, 1700, type_mod=(38 << 16) + 4), "9" * 39),
    (ColumnInfo("x", "date", 1082, 1082), "infinity"),
    (ColumnInfo("x", "timestamp with time zone", 1184, 1184), "-infinity"),
    (ColumnInfo("x", "timestamp with time zone", 1184, 1184), "2026-01-01T00:00:00"),
    (ColumnInfo("x", "timestamp", 1114, 1114), "0044-03-15 00:00:00 BC"),
    (ColumnInfo("x", "smallint", 21, 21), 40000),
    (ColumnInfo("x", "integer", 23, 23), "1"),
    (ColumnInfo("x", "integer", 23, 23), 1.5),
    (ColumnInfo("x", "bigint", 20, 20), 2**63),
    (ColumnInfo("x", "real", 700, 700), "NaN"),
    (ColumnInfo("x", "text", 25, 25), 1),
    (ColumnInfo("x", "text", 25, 25), {"a": 1}),
    (ColumnInfo("x", "boolean", 16, 16), "t"),
    (ColumnInfo("x", "bytea", 17, 17), "no base64"),
    (ColumnInfo("x", "integer[]", 1007, 1007), [1]),
]


@pytest.mark.parametrize(("column", "value"), ODD_VALUES)
def test_an_odd_value_is_left_to_spark(column, value):
    values = [dumps(envelope({"id": key, column.name: each})) for key, each in enumerate((None, value, None))]
    with pytest.raises(Unusual):
        read(table("p", [ID, column]), *values)


SOURCE = b'"source":{"commit_lsn":1,"ordinal":1}'
ODD_RECORDS = [
    b"canary-7731",
    b"null",
    b'{"before":null}null',
    b'{"before":null}\n{"before":null}',
    b'{"op":"c"}',
    b"",
    b'{"before":null,"after":null,%b,"op":"x"}' % SOURCE,
    b'{"before":null,"after":null,%b,"op":"u"}' % SOURCE,
    b'{"before":null,"after":{},%b,"op":"d"}' % SOURCE,
    b'{"before":null,"after":null,%b,"op":"t"}' % SOURCE,
    b'{"before":null,"after":{},"source":{"commit_lsn":1},"op":"c"}',
    b'{"before":null,"after":5,%b,"op":"c"}' % SOURCE,
    b'{"before":null,"after":{},%b,"op":"c"' % SOURCE,
]


@pytest.mark.parametrize("value", ODD_RECORDS)
def test_an_odd_record_is_left_to_spark(value):
    plain = dumps(envelope({"id": 2, "price": "1.00"}))
    with pytest.raises(Unusual):
        read(ORDERS, plain, value, plain)
