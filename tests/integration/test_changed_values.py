"""Values and columns of real topics: each type arrives exactly however it is read, and what fits none is named."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal

import pytest

from cdc.errors import OperatorError, ProtocolError
from cdc.values import encoder
from jobs.tables import ColumnInfo
from jobs.unfit import Watch, digest
from sinks.protocol import AT, DELETE, OP, UPSERT
from tests.support.events import EventLog, table
from tests.support.reading import (
    ID,
    NAME,
    PRICE,
    each_way,  # noqa: F401
    found,
    orders_log,  # noqa: F401
    orders_table,  # noqa: F401
    range_reader,  # noqa: F401
    row,
)


def test_rows_that_fit_no_type_are_named_where_they_may_be(log, read, orders):
    log.transaction(10, ("c", row(1)), ("c", row(2, price="NaN")), ("c", row(3)), ("c", row(4, price="NaN")))
    log.transaction(20, ("u", row(3, price="123456789.00")), ("u", row(4)), ("d", {"id": 5}))
    changes = read(watch=Watch(unfit_max=2))
    assert {key: each[3] for key, each in found(changes).items()} == {
        1: Decimal("1.00"),
        2: None,
        3: None,
        4: Decimal("1.00"),
        5: None,
    }
    assert {(each.key, each.lsn, each.columns) for each in changes.unfit} == {
        (digest(b'{"id":2}'), 10, ("price",)),
        (digest(b'{"id":3}'), 20, ("price",)),
    }
    assert {each.at for each in changes.unfit} == {each[AT] for each in changes.frame.collect() if each["id"] in (2, 3)}
    assert changes.touched == frozenset()
    with pytest.raises(OperatorError) as caught:
        read(watch=Watch(unfit_max=1))
    assert caught.value.code == "DEAD_LETTERS"


def test_known_keys_that_changed_are_told(log, read):
    known = frozenset(digest(b'{"id":%d}' % key) for key in (1, 2, 3, 9))
    log.transaction(10, ("c", row(3)), ("c", row(9)))
    start = log.ends
    log.transaction(20, ("u", row(1)), ("d", {"id": 2}), ("c", row(4)))
    changes = read(start=start, watch=Watch(known, 0))
    assert changes.touched == {digest(b'{"id":1}'), digest(b'{"id":2}')}
    assert changes.unfit == ()
    # Also where such values stop apply now.
    assert read(start=start, watch=Watch(known)).touched == changes.touched


def test_a_truncate_voids_rows_that_fit_no_type_too(log, read):
    log.transaction(10, *(("c", row(key, price="NaN")) for key in range(20)))
    log.transaction(20, ("t", None), ("c", row(2, price="NaN")))
    [only] = read(watch=Watch(unfit_max=1)).unfit
    assert only.key == digest(b'{"id":2}')


def test_a_key_that_fits_no_type_is_in_no_frame(kafka, pipeline_name, read):
    info = table(pipeline_name, [ColumnInfo("id", "date", 1082, 1082, key=True, nullable=False), NAME, PRICE])
    log = EventLog(kafka.address, replace(info, topic=f"{info.topic}-days"))
    info = replace(info, topic=f"{info.topic}-days")
    log.transaction(10, ("c", row("infinity")), ("c", row("-infinity")), ("c", row("2026-11-18")))
    log.transaction(20, ("d", {"id": "-infinity"}))
    changes = read(start=log.start, end=log.ends, info=info, watch=Watch(unfit_max=1))
    assert found(changes).keys() == {dt.date(2026, 11, 18)}
    [only] = changes.unfit
    assert (only.key, only.columns) == (digest(b'{"id":"infinity"}'), ("id",))


ONLY_SPARK = pytest.mark.parametrize("way", ["spark"], indirect=True)
"""The driver leaves whatever is odd to Spark, so once is enough."""


def test_the_driver_leaves_what_is_odd_to_spark(log, read):
    log.transaction(10, ("c", row(1, price="NaN")))
    with pytest.raises(OperatorError) as caught:
        read()
    assert caught.value.code == "VALUE_UNFIT"


@ONLY_SPARK
@pytest.mark.parametrize(
    ("column", "value"),
    [
        (PRICE, "NaN"),
        (PRICE, "123456789.00"),
        (ColumnInfo("x", "date", 1082, 1082), "infinity"),
        (ColumnInfo("x", "date", 1082, 1082), "0044-03-15 BC"),
        (ColumnInfo("x", "timestamp with time zone", 1184, 1184), "-infinity"),
        (ColumnInfo("x", "timestamp", 1114, 1114), "0044-03-15 00:00:00 BC"),
        (ColumnInfo("x", "smallint", 21, 21), 40000),
        (ColumnInfo("x", "boolean", 16, 16), "canary-7731"),
        (ColumnInfo("x", "bytea", 17, 17), "canary-7731"),
    ],
)
def test_a_value_without_a_counterpart_stops_with_its_place(kafka, pipeline_name, read, column, value):
    info = table(pipeline_name, [ID, column], name="bad")
    log = EventLog(kafka.address, info)
    log.transaction(10, ("c", {"id": 1, column.name: value}))
    with pytest.raises(OperatorError) as caught:
        read(start=log.start, end=log.ends, info=info)
    assert caught.value.code == "VALUE_UNFIT"
    partition = log.ends.index(1)
    assert f"{info.topic}@{partition}:0" in caught.value.message
    assert f"public.bad, column {column.name}" in caught.value.message
    assert str(value) not in caught.value.message
    assert caught.value.__cause__ is None


@ONLY_SPARK
@pytest.mark.parametrize(
    "value",
    [
        b"canary-7731",
        b'{"op":"c"}',
        b'{"op":"x","after":null,"source":{"commit_lsn":1,"ordinal":1}}',
        b'{"op":"u","after":null,"source":{"commit_lsn":1,"ordinal":1}}',
        None,
    ],
)
def test_a_record_that_is_no_event_stops_with_its_place(log, read, orders, value):
    log.raw(1, b'{"id":1}', value)
    with pytest.raises(ProtocolError) as caught:
        read()
    assert caught.value.code == "RECORD_MALFORMED"
    assert f"{orders.topic}@1:0" in caught.value.message
    assert "canary" not in caught.value.message


TYPES = [
    ("boolean", 16, -1, ["t", "f"]),
    ("smallint", 21, -1, ["-32768", "32767"]),
    ("integer", 23, -1, ["-2147483648", "0"]),
    ("oid", 26, -1, ["4294967295", "0"]),
    ("real", 700, -1, ["0.1", "NaN"]),
    ("double precision", 701, -1, ["1e+22", "-Infinity"]),
    ("numeric(38,4)", 1700, (38 << 16 | 4) + 4, ["-1234567890123456789012345678901234.5678", "0.0000"]),
    ("numeric", 1700, -1, ["NaN", "1.50"]),
    ("date", 1082, -1, ["0001-01-01", "2026-11-18"]),
    ("timestamp", 1114, -1, ["1969-12-31 23:59:59.5", "2026-03-29 02:30:00.000001"]),
    ("timestamptz", 1184, -1, ["2026-03-29 01:30:00+00", "0001-01-01 00:00:00.1+00"]),
    ("bytea", 17, -1, ["\\x", "\\x00ff"]),
    ("text", 25, -1, ["", '[1,2] "é"\\ \n\u2028 𝄞']),
    ("json", 114, -1, ['{"a": [1, 2.50]}', "[1, 2]"]),
    ("numrange", 3906, -1, ["[1,2]", "empty"]),
    ("time", 1083, -1, ["24:00:00", "00:00:00.000001"]),
    ("integer[]", 1007, -1, ["{1,NULL,3}", "[0:1]={5,6}"]),
    ("text[]", 1009, -1, ['{a,"b c",NULL,"NULL",""}', "{{a,b},{c,d}}"]),
    ("boolean[]", 1000, -1, ["{t,f}", "{}"]),
    ("timestamptz[]", 1185, -1, ['{"2026-11-18 10:00:00.5+00",infinity}', "{NULL}"]),
    ("bytea[]", 1001, -1, ['{"\\\\x00ff"}', "{}"]),
    ("double precision[]", 1022, -1, ["{1e+22,0.1,NaN,-0}", "{}"]),
]
UTC = dt.UTC
NATIVE = {
    "boolean": [True, False],
    "smallint": [-32768, 32767],
    "integer": [-(2**31), 0],
    "oid": [4294967295, 0],
    "double precision": [1e22, float("-inf")],
    "numeric(38,4)": [Decimal("-1234567890123456789012345678901234.5678"), Decimal("0.0000")],
    "date": [dt.date(1, 1, 1), dt.date(2026, 11, 18)],
    "timestamp": [dt.datetime(1969, 12, 31, 23, 59, 59, 500000), dt.datetime(2026, 3, 29, 2, 30, 0, 1)],  # noqa: DTZ001
    "timestamptz": [dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 0, 100000, UTC)],
    "bytea": [b"", b"\x00\xff"],
}


def test_every_type_arrives_exactly(kafka, pipeline_name, read):
    columns = [ColumnInfo(name, name, oid, oid, type_mod=mod) for name, oid, mod, _ in TYPES]
    info = table(pipeline_name, [ID, *columns], name="types")
    log = EventLog(kafka.address, info)
    for key in (0, 1):
        values = {name: json.loads(encoder(oid)(texts[key])) for name, oid, _, texts in TYPES}
        log.transaction(10 + key, ("c", {"id": key, **values}))
    log.transaction(12, ("c", {"id": 2, **{name: None for name, *_ in TYPES}}))
    frame = read(start=log.start, end=log.ends, info=info).frame
    rows = {each["id"]: each for each in frame.toArrow().to_pylist()}
    for place, (name, _, _, texts) in enumerate(TYPES, 1):
        stored = frame.columns[place]
        expected = NATIVE.get(name, texts)
        if name == "real":
            assert rows[0][stored] == pytest.approx(0.1, rel=1e-7)
            assert rows[1][stored] != rows[1][stored]
        else:
            assert [rows[key][stored] for key in (0, 1)] == expected, name
        assert rows[2][stored] is None


def test_hostile_names_and_several_key_columns(kafka, pipeline_name, read):
    names = ['"; drop table x; --', "../é", "Id", "ID", "a.b", "`", "$", "__op", "select", "[x]"]
    columns = [ColumnInfo(name, "text", 25, 25, key=place in (2, 3)) for place, name in enumerate(names)]
    info = table(pipeline_name, columns, name="x y")
    log = EventLog(kafka.address, info)
    log.transaction(10, ("c", {name: f"value of {name}" for name in names}))
    log.transaction(20, ("d", {"Id": "another", "ID": "key"}))
    frame = read(start=log.start, end=log.ends, info=info).frame
    rows = {each[OP]: each for each in frame.toArrow().to_pylist()}
    assert list(rows[UPSERT].values())[: len(names)] == [f"value of {name}" for name in names]
    assert list(rows[DELETE].values())[: len(names)] == [None, None, "another", "key", *[None] * 6]


def test_a_column_that_came_later_is_null_in_older_records(log, read, orders):
    log.transaction(10, ("c", row(1)))
    wider = replace(orders, columns=(*orders.columns, ColumnInfo("later", "text", 25, 25)))
    assert [each["later"] for each in read(info=wider).frame.collect()] == [None]


def test_a_table_of_key_columns_alone(kafka, pipeline_name, read):
    info = table(pipeline_name, [ID], name="keys")
    log = EventLog(kafka.address, info)
    log.transaction(10, ("c", {"id": 1}), ("c", {"id": 2}), ("d", {"id": 1}))
    got = read(start=log.start, end=log.ends, info=info)
    assert {each["id"]: each[OP] for each in got.frame.collect()} == {1: DELETE, 2: UPSERT}
