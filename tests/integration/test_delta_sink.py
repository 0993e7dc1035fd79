"""What the contract suite does not ask of a Delta table: its commits, its columns, its files and other tools."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

import sinks.delta.upkeep
from cdc.errors import OperatorError, TransientError
from cdc.settings import Delta
from jobs.failures import translated
from jobs.view import view_changes
from sinks.delta import DeltaSink, vouched
from sinks.delta.layout import Limits
from sinks.delta.upkeep import Upkeep
from sinks.delta.vectors import enable
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Position, Written
from sinks.spec import Kind, ViewSpec
from tests.support.delta_ways import (
    COLUMNS,
    at,
    each_way,  # noqa: F401
    frame_of,  # noqa: F401
    rows,
    sink_of,  # noqa: F401
    sink_of_ten,  # noqa: F401
    view,
)


def test_a_batch_is_one_commit_that_says_where_the_table_stands(sink, frame, way):
    if way == "marked":
        # The first marks of a table have commits before them which say that there are such.
        enable(DeltaTable(sink.path))
    version, generation = sink.version()
    batch = frame((UPSERT, (1, "changed", None)), (DELETE, (2,)), (UPSERT, (50, "new", None)), (DELETE, (99,)))
    assert sink.write(batch, at(200)) == Written(upserts=2, deletes=2)
    assert sink.version() == (version + 1, generation)
    assert sink.position() == at(200)
    found = rows(sink)
    assert set(found) == {0, 1, *range(3, 10), 50}
    assert found[1] == (1, "changed", None)
    (commit,) = DeltaTable(sink.path).history(1)
    assert json.loads(commit["userMetadata"]) == {
        "afterimage": 1,
        "view": "orders",
        "generation": generation,
        "fingerprint": "first",
        "lsn": "0/C8",
        "source_ts_us": 200_000,
        "offsets": {"t": [200, 400]},
    }
    assert DeltaTable(sink.path).transaction_version("shop/orders") == 2


def test_an_empty_batch_makes_no_commit(sink, frame, way):
    version = sink.version()
    assert sink.write(frame(), at(200)) == Written()
    sink.advance(at(300))
    assert sink.version() == version
    assert sink.position() == at(100)


def test_the_ledger_may_vouch_for_the_version_that_is_there(sink, frame):
    from jobs.ledger import LedgerRow

    version, generation = sink.version()
    line = LedgerRow(sink.folder, version, generation, 300, 300_000, {"t": (9, 9)})
    assert vouched(sink.position(), sink.version()[0], line) == Position(300, 300_000, {"t": (9, 9)})
    sink.write(frame((DELETE, (1,))), at(400))
    assert vouched(sink.position(), sink.version()[0], line) == at(400)


def test_a_new_column_is_added_and_null_in_present_rows(sink, frame, make, way):
    wider = {**COLUMNS, "note": "string", "seen": "timestamp_ntz"}
    grown = make(view(columns=wider))
    grown.write(frame((UPSERT, (1, "n1", None, "hello")), columns=wider), at(200))
    assert rows(grown)[1] == (1, "n1", None, "hello", None)
    assert rows(grown)[3] == (3, "n3", Decimal("1.00"), None, None)
    assert grown.position() == at(200)


def test_a_replace_may_change_everything(sink, frame, make):
    other = {"id": "string", "total": "double", "local": "timestamp_ntz"}
    changed = make(view(columns=other, fingerprint="second"))
    assert changed.position() is None
    with pytest.raises(TransientError):
        changed.write(frame((UPSERT, ("x", 1.0)), columns=other), at(200))
    changed.replace(frame((UPSERT, ("x", 1.0)), columns=other), at(200))
    assert list(changed.rows()) == [("x", 1.0, None)]
    assert changed.position() == at(200)
    assert changed.version()[1] > 0


def test_missing_files_are_named_with_the_remedy(sink, frame):
    for file in Path(sink.path).glob("*.parquet"):
        file.unlink()
    with pytest.raises(OperatorError) as caught:
        sink.write(frame((UPSERT, (1, "x", None))), at(200))
    assert caught.value.code == "DELTA_DAMAGED"
    assert "rebuild" in (caught.value.hint or "")


@pytest.mark.parametrize(("limits", "operation"), [({"small_max": 1}, "compact"), ({"overlap_max": 0.0}, "sort")])
def test_tidying_keeps_rows_position_turn_and_former_versions(sink, frame, monkeypatch, limits, operation):
    monkeypatch.setattr(sinks.delta.upkeep, "DUE_COMMITS", 3)
    told = list[dict[str, Any]]()
    monkeypatch.setattr(sinks.delta.upkeep._log, "info", lambda _, **fields: told.append(fields))
    sink._upkeep = Upkeep(sink.path, {}, ("id",), Limits(sort_bytes_min=0, **limits))
    for number in range(4):
        sink.write(frame((UPSERT, (100 + number, "new", None))), at(200 + number))
        held = sink.held()
        moved = sink.keep_up()
        assert moved == (sink.held().version != held.version)
        assert sink.held().has_rows_of(held)
        assert DeltaTable(sink.path, version=held.version).count() == 11 + number
    assert [fields["step"] for fields in told] == [operation]
    assert sink.position() == at(203)
    assert set(rows(sink)) == {*range(10), *range(100, 104)}
    assert sink.figures().rows == 14


def test_the_table_is_plain(frame, tmp_path):
    sink = DeltaSink(Delta(path=str(tmp_path)), "shop", view())
    sink.replace(frame((UPSERT, (1, "a", None))), at(1))
    table = DeltaTable(sink.path)
    metadata = table.metadata()
    assert "delta.columnMapping.mode" not in metadata.configuration
    assert metadata.configuration["delta.enableDeletionVectors"] == "false"
    assert metadata.configuration["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    assert metadata.partition_columns == []


def test_other_tools_read_it_without_options(make, frame, way):
    columns = {**COLUMNS, "seen": "timestamp", "local": "timestamp_ntz", "day": "date", "raw": "binary"}
    sink = make(view(columns=columns))
    sink.replace(frame((UPSERT, (1, "a", Decimal("1.50"))), (UPSERT, (2, "b", None)), columns=columns), at(1))
    sink.write(frame((UPSERT, (1, "c", Decimal("2.50"))), (DELETE, (2,)), columns=columns), at(2))
    assert polars.read_delta(sink.path).select("id", "name", "price").rows() == [(1, "c", Decimal("2.50"))]
    assert polars.scan_delta(sink.path).select(polars.len()).collect().item() == 1
    assert DeltaTable(sink.path).count() == 1


ORDERS = ViewSpec(
    "cheap",
    Kind.ROWWISE,
    "public",
    "t",
    ("k",),
    ("id",),
    ("k", "ratio"),
    "",
    "SELECT `id` AS `k`, 10 / `price` AS `ratio` FROM changes WHERE `price` > 0 AND `price` < 5",
    (),
    "f",
)


@pytest.mark.parametrize("expression", ["10 / `price`", "CAST(`name` AS int)"])
def test_a_view_that_fails_on_a_row_says_so_without_the_row(sink, frame, way, expression):
    columns = {"id": "bigint", "name": "string", "price": "decimal(10,2)"}
    sql = f"SELECT `id`, `name`, CAST({expression} AS decimal(10,2)) AS `price` FROM changes"
    spec = replace(view(), kind=Kind.ROWWISE, spark_sql=sql)
    changes = frame((UPSERT, (1, "canary-7731", Decimal("0.00"))), columns=columns)
    with pytest.raises(OperatorError) as caught, translated("view orders into delta"):
        sink.write(view_changes(changes, spec), at(200))
    assert caught.value.code == "VIEW_FAILED"
    assert "view orders into delta" in caught.value.message
    assert "canary" not in caught.value.message
    assert caught.value.__cause__ is None
    assert sink.position() == at(100)


def test_rows_that_leave_the_filter_become_deletes(frame):
    changes = frame(
        (UPSERT, (1, "in", Decimal("2.00"))),
        (UPSERT, (2, "out", Decimal("9.00"))),
        (UPSERT, (3, "would divide by zero", Decimal("0.00"))),
        (UPSERT, (4, "null", None)),
        (DELETE, (5,)),
    )
    got = view_changes(changes, ORDERS)
    assert got.columns == ["k", "ratio", OP, LSN, AT]
    found = {row["k"]: (row[OP], row["ratio"], row[LSN], row[AT]) for row in got.collect()}
    assert found == {
        1: (UPSERT, Decimal("5.0000000000000"), 7, "t@0:1"),
        **dict.fromkeys((2, 3, 4, 5), (DELETE, None, 7, "t@0:1")),
    }
