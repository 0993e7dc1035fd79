"""Whole records by example: the envelope byte for byte, keys, tombstones, and what is refused."""

from __future__ import annotations

import json
from importlib.metadata import version
from zlib import crc32

import pytest

import cdc
from cdc.changes import UNCHANGED, Change, Op, Origin, Record
from cdc.completion import complete, departed, unchanged_columns
from cdc.envelope import TableEncoder
from cdc.errors import OperatorError, RecordError
from tests.support import frames

ORIGIN = Origin(26_512_200, 740, 1_794_998_413_512_345)
NOW_MS = 1_794_998_413_777
CUSTOMERS = frames.table("customers", [("id", 23), ("name", 25), ("ok", 16), ("made", 1184)])
PAIRS = frames.table("pairs", [("b", 25), ("v", 1700), ("a", 20)], ["a", "b"])
SOURCE = (
    f'{{"version":"{cdc.__version__}","connector":"postgresql","name":"shop","ts_ms":1794998413512,"snapshot":"false",'
    '"db":"shopdb","schema":"public","table":"customers","txId":740,"lsn":26512200,"commit_lsn":26512200,"ordinal":%d}'
)
ADA = ("1", 'Ada "É"\n', "t", "2026-11-18 10:40:13.5+00")
ADA_JSON = '{"id":1,"name":"Ada \\"É\\"\\n","ok":true,"made":"2026-11-18T10:40:13.5Z"}'
NOBODY = ("1", None, None, None)
NOBODY_JSON = '{"id":1,"name":null,"ok":null,"made":null}'


def encoder(table=CUSTOMERS, partitions=4):
    return TableEncoder("shop", "shopdb", table, partitions)


def records(change, table=CUSTOMERS, partitions=4):
    return encoder(table, partitions).change_records(change, ORIGIN, 5, NOW_MS)


def record(key, value, position=None, partitions=4):
    encoded = value.encode() if value is not None else None
    return Record("shop.public.customers", crc32(key.encode()) % partitions, key.encode(), encoded, position)


def value(before, after, op, ordinal=5):
    return f'{{"before":{before},"after":{after},"source":{SOURCE % ordinal},"op":"{op}","ts_ms":{NOW_MS}}}'


def test_an_insert():
    change = Change(Op.CREATE, CUSTOMERS, None, ADA)
    assert records(change) == [record('{"id":1}', value("null", ADA_JSON, "c"))]


def test_an_update_under_the_default_identity():
    change = Change(Op.UPDATE, CUSTOMERS, None, NOBODY)
    assert records(change) == [record('{"id":1}', value("null", NOBODY_JSON, "u"))]


def test_an_update_under_the_full_identity():
    change = Change(Op.UPDATE, CUSTOMERS, ADA, NOBODY)
    assert records(change) == [record('{"id":1}', value(ADA_JSON, NOBODY_JSON, "u"))]


def test_an_update_with_an_old_key_that_is_the_same():
    change = Change(Op.UPDATE, CUSTOMERS, NOBODY, ADA, old_is_key=True)
    assert records(change) == [record('{"id":1}', value("null", ADA_JSON, "u"))]


def test_a_delete_under_the_default_identity():
    change = Change(Op.DELETE, CUSTOMERS, NOBODY, None, old_is_key=True)
    assert records(change) == [
        record('{"id":1}', value('{"id":1}', "null", "d")),
        record('{"id":1}', None, "26512200:5"),
    ]


def test_a_delete_under_the_full_identity():
    change = Change(Op.DELETE, CUSTOMERS, ADA, None)
    assert records(change) == [
        record('{"id":1}', value(ADA_JSON, "null", "d")),
        record('{"id":1}', None, "26512200:5"),
    ]


@pytest.mark.parametrize(
    ("old", "old_is_key", "before"), [(NOBODY, True, '{"id":1}'), (ADA, False, ADA_JSON)], ids=["default", "full"]
)
def test_a_key_change_is_a_delete_and_an_insert(old, old_is_key, before):
    change = Change(Op.UPDATE, CUSTOMERS, old, ("2", *ADA[1:]), old_is_key=old_is_key)
    assert records(change) == [
        record('{"id":1}', value(before, "null", "d")),
        record('{"id":1}', None, "26512200:5"),
        record('{"id":2}', value("null", ADA_JSON.replace('"id":1', '"id":2'), "c", 6)),
    ]


def test_a_truncate_voids_every_partition():
    truncated = records(Change(Op.TRUNCATE, CUSTOMERS, None, None), partitions=3)
    assert [(each.partition, each.key, each.value) for each in truncated] == [
        (partition, b"{}", value("null", "null", "t").encode()) for partition in range(3)
    ]


def test_a_snapshot_row():
    read = encoder().read_record(ADA, Origin(26_512_200, None, ORIGIN.commit_ts_us), NOW_MS)
    expected = value("null", ADA_JSON, "r", 0).replace('"snapshot":"false"', '"snapshot":"true"')
    assert read == record('{"id":1}', expected.replace('"txId":740', '"txId":null'))


def test_snapshot_and_stream_may_share_an_origin():
    both = encoder()
    assert b'"snapshot":"true"' in both.read_record(ADA, ORIGIN, NOW_MS).value
    streamed = both.change_records(Change(Op.CREATE, CUSTOMERS, None, ADA), ORIGIN, 5, NOW_MS)
    assert streamed == [record('{"id":1}', value("null", ADA_JSON, "c"))]


def test_each_transaction_has_its_own_source():
    both = encoder()
    change = Change(Op.CREATE, CUSTOMERS, None, ADA)
    both.change_records(change, ORIGIN, 1, NOW_MS)
    (later,) = both.change_records(change, Origin(26_512_300, 741, 1_794_998_414_000_000), 2, NOW_MS)
    source = json.loads(later.value)["source"]
    assert (source["commit_lsn"], source["txId"], source["ts_ms"], source["ordinal"]) == (
        26_512_300,
        741,
        1_794_998_414_000,
        2,
    )


def test_a_composite_key_is_in_column_order():
    (created,) = records(Change(Op.CREATE, PAIRS, None, ('x"é', "1.50", "7")), PAIRS)
    assert created.key == '{"b":"x\\"é","a":7}'.encode()
    assert json.loads(created.value)["after"] == {"b": 'x"é', "v": "1.50", "a": 7}


def test_hostile_names_stay_names():
    name = "'] + [\"; x = {}\\\n"
    table = frames.table('t"\\', [(name, 23), ("join", 25), ("value0", 25), ("row", 25)], [name], schema="s'\n")
    (created,) = records(Change(Op.CREATE, table, None, ("1", "a", "b", "c")), table)
    assert json.loads(created.key) == {name: 1}
    decoded = json.loads(created.value)
    assert decoded["after"] == {name: 1, "join": "a", "value0": "b", "row": "c"}
    assert (decoded["source"]["schema"], decoded["source"]["table"]) == ("s'\n", 't"\\')
    assert created.topic == "shop.s-27-0a.t-22-5c"


def test_a_table_of_sixteen_hundred_columns():
    table = frames.table("wide", [(f"c{number}", 23) for number in range(1600)], ["c0"])
    row = tuple(map(str, range(1600)))
    (created,) = records(Change(Op.CREATE, table, None, row), table)
    assert json.loads(created.value)["after"] == {f"c{number}": number for number in range(1600)}


def test_an_unchanged_value_comes_from_the_whole_old_row():
    change = Change(Op.UPDATE, CUSTOMERS, ADA, ("1", UNCHANGED, "t", UNCHANGED))
    assert records(change) == [record('{"id":1}', value(ADA_JSON, ADA_JSON, "u"))]
    assert complete(change) == Change(Op.UPDATE, CUSTOMERS, ADA, ADA)


def test_an_unchanged_key_comes_from_the_old_key():
    long_key = frames.table("docs", [("path", 25), ("n", 23)], ["path"])
    change = Change(Op.UPDATE, long_key, ("p" * 3000, None), (UNCHANGED, "2"), old_is_key=True)
    (updated,) = records(change, long_key)
    assert json.loads(updated.key) == {"path": "p" * 3000}
    assert json.loads(updated.value)["after"] == {"path": "p" * 3000, "n": 2}


@pytest.mark.parametrize(
    "change",
    [
        Change(Op.UPDATE, CUSTOMERS, None, ("1", UNCHANGED, "t", None)),
        Change(Op.UPDATE, CUSTOMERS, NOBODY, ("1", UNCHANGED, "t", None), old_is_key=True),
        Change(Op.UPDATE, CUSTOMERS, NOBODY, ("2", UNCHANGED, "t", None), old_is_key=True),
    ],
    ids=["no old row", "same key", "another key"],
)
def test_a_value_that_nobody_knows_is_refused(change):
    with pytest.raises(RecordError) as raised:
        records(change)
    assert raised.value.code == "UNCHANGED_VALUE"
    assert "public.customers" in raised.value.message
    assert "name" in raised.value.message
    assert unchanged_columns(complete(change)) == ("name",)


@pytest.mark.parametrize("type_oid", [16, 17, 20, 23, 25, 701, 1007, 1009, 1114, 1184, 1700, 3802, 16500])
def test_an_unchanged_value_of_any_type_is_refused(type_oid):
    table = frames.table("t", [("id", 23), ("v", type_oid)])
    with pytest.raises(RecordError) as raised:
        records(Change(Op.UPDATE, table, None, ("1", UNCHANGED)), table)
    assert raised.value.code == "UNCHANGED_VALUE"


@pytest.mark.parametrize(
    ("row", "column"),
    [(("1", "x", "secret", None), "ok"), (("1", "x", "t", "2026-11-18 secret+01"), "made")],
)
def test_a_value_that_its_type_does_not_print_is_refused_without_showing_it(row, column):
    with pytest.raises(RecordError) as raised:
        records(Change(Op.CREATE, CUSTOMERS, None, row))
    assert f"public.customers: column {column}" in raised.value.message
    assert "secret" not in f"{raised.value.message}{raised.value.hint}"
    with pytest.raises(RecordError):
        encoder().read_record(row, ORIGIN, NOW_MS)


def test_a_key_that_is_null_is_refused():
    with pytest.raises(RecordError, match="key column is NULL"):
        records(Change(Op.DELETE, CUSTOMERS, (None, "x", None, None), None, old_is_key=True))


def test_a_table_without_a_key_is_refused():
    with pytest.raises(OperatorError) as raised:
        encoder(frames.table(key=()))
    assert raised.value.code == "NO_KEY"


def test_completing_leaves_other_changes_alone():
    for change in (
        Change(Op.CREATE, CUSTOMERS, None, ADA),
        Change(Op.DELETE, CUSTOMERS, ADA, None),
        Change(Op.UPDATE, CUSTOMERS, NOBODY, ("1", UNCHANGED, None, None), old_is_key=True),
    ):
        assert complete(change) is change
    assert unchanged_columns(Change(Op.DELETE, CUSTOMERS, ADA, None)) == ()


def test_the_version_in_the_envelope_is_the_distributions():
    assert cdc.__version__ == version("afterimage")


def test_of_an_update_whose_row_is_gone_the_delete_of_its_old_key_is_left():
    key_only = ("0", None, None, None)
    moved = Change(Op.UPDATE, CUSTOMERS, key_only, ("1", UNCHANGED, "t", None), old_is_key=True)
    assert departed(moved) == Change(Op.DELETE, CUSTOMERS, key_only, None, old_is_key=True)
    assert departed(Change(Op.UPDATE, CUSTOMERS, None, ("1", UNCHANGED, "t", None))) is None
    assert departed(Change(Op.UPDATE, CUSTOMERS, ("1", None, None, None), moved.new, old_is_key=True)) is None
