"""Keys of a Delta table, of any type, with NULLs and odd texts: each way of writing finds their rows and no others."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from cdc.settings import Delta
from sinks.delta import DeltaSink
from sinks.delta.literals import KeyColumn, keys_predicate
from sinks.delta.size import measured
from sinks.protocol import DELETE, OP, UPSERT
from tests.support.delta_ways import (
    WAYS,
    at,
    each_way,  # noqa: F401
    force,
    frame_of,  # noqa: F401
    rows,
    sink_of,  # noqa: F401
    sink_of_ten,  # noqa: F401
    view,
)


def test_a_null_in_a_key_is_a_value_like_any_other(sink, frame, way):
    sink.write(frame((UPSERT, (None, "none", None)), (UPSERT, (1, "one", None))), at(200))
    sink.write(frame((UPSERT, (None, "still one", None))), at(300))
    assert rows(sink)[None] == (None, "still one", None)
    sink.write(frame((DELETE, (None,)), (UPSERT, (70, "seventy", None))), at(400))
    assert set(rows(sink)) == {*range(10), 70}


def test_so_is_it_in_a_key_of_several_columns(make, frame, way):
    columns = {"a": "string", "b": "int", "v": "string"}
    sink = make(view(("a", "b"), columns))
    pairs = [("x", 1), ("x", None), (None, 1), (None, None)]
    sink.replace(frame(*((UPSERT, (*pair, "old")) for pair in pairs), columns=columns), at(100))
    sink.write(frame(*((UPSERT, (*pair, "new")) for pair in pairs[1:3]), columns=columns), at(200))
    sink.write(frame((DELETE, (None, None)), (UPSERT, ("y", None, "new")), columns=columns), at(300))
    expected = {("x", 1, "old"), ("x", None, "new"), (None, 1, "new"), ("y", None, "new")}
    assert sorted(sink.rows(), key=str) == sorted(expected, key=str)


def test_all_ways_give_the_same_table(make, frame, monkeypatch, tmp_path):
    columns = {"a": "string", "b": "int", "v": "string"}
    spec = view(("a", "b"), columns)
    texts = ["", "it's", "\\", '"', "${env:HOME}", "%", "`", "é 𝄞", "a,b", "x\ny", "NULL"]
    first = [(UPSERT, (text, number, "old")) for text in texts for number in (-1, 0, 1)]
    batch = [(DELETE if number == 1 else UPSERT, (text, number, "new")) for text in texts[::2] for number in (0, 1, 2)]
    tables = {}
    for way in WAYS:
        force(way, monkeypatch)
        sink = DeltaSink(Delta(path=str(tmp_path / way), deletion_vectors=way == "marked"), "shop", spec)
        sink.replace(frame(*first, columns=columns), at(100))
        sink.write(frame(*batch, columns=columns), at(200))
        tables[way] = set(sink.rows())
        (newest,) = DeltaTable(sink.path).history(1)
        assert newest["operation"] == ("WRITE" if way == "replace_keys" else "MERGE")
        engine = {"direct": "delta-rs", "marked": "Afterimage"}.get(way, "Spark")
        assert engine in newest["engineInfo"]
    expected = {row[:2]: row for _, row in first} | {row[:2]: row for op, row in batch if op == UPSERT}
    for op, row in batch:
        if op == DELETE:
            expected.pop(row[:2], None)
    assert all(table == set(expected.values()) for table in tables.values())


KEYS = {
    "boolean": ["TRUE", "FALSE"],
    "smallint": ["-32768S", "32767S"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "decimal(38,4)": ["-0.0001", "1234567890123456789012345678901234.5678"],
    "float": ["CAST('0.1' AS float)", "CAST('Infinity' AS float)", "CAST('NaN' AS float)"],
    "double": ["CAST('5e-324' AS double)", "0.1D"],
    "date": ["DATE'0001-01-01'", "DATE'2026-11-18'", "DATE'+12026-01-01'"],
    "timestamp": ["TIMESTAMP'0001-01-01 00:00:00.000001Z'", "TIMESTAMP'2026-03-29 01:30:00Z'"],
    "timestamp_ntz": ["TIMESTAMP_NTZ'2026-03-29 02:30:00.5'", "TIMESTAMP_NTZ'+12026-01-01 00:00:00'"],
    "binary": ["X''", "X'00ff'"],
    "string": ["''", "'it\\'s \\\\ \\n ${x}'"],
}


def test_a_predicate_names_exactly_the_keys(spark):
    """Every type, in one query: each key's predicate is true for its own row and for no other."""
    for kind, literals in KEYS.items():
        made = " UNION ALL ".join(f"SELECT CAST({text} AS {kind}) AS k" for text in literals)
        frame = spark.sql(made).withColumn(OP, F.lit(UPSERT))
        batch = measured(frame, ("k",))
        assert batch.keys is not None
        column = KeyColumn("k", kind)
        for key in batch.keys:
            assert frame.where(keys_predicate([column], [key])).count() == 1, (kind, key)
        assert frame.where(keys_predicate([column], batch.keys)).count() == len(literals), kind
