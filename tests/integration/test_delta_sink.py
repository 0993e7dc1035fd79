"""What the contract suite does not ask of a Delta table: its commits, its two ways, other readers, and a kill."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import sinks.delta.direct
import sinks.delta.marked
import sinks.delta.size
import sinks.delta.upkeep
from cdc.errors import OperatorError, TransientError
from cdc.settings import Delta
from jobs.failures import translated
from jobs.view import view_changes
from sinks.delta import DeltaSink, vouched
from sinks.delta.commit import Commit, merge, replace_keys
from sinks.delta.direct import merge_directly
from sinks.delta.layout import Limits
from sinks.delta.literals import KeyColumn, keys_predicate
from sinks.delta.log import table_state
from sinks.delta.marked import mark_and_append
from sinks.delta.size import measured
from sinks.delta.upkeep import Upkeep
from sinks.delta.vectors import enable
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT, Position, Written
from sinks.spec import Kind, ViewSpec

COLUMNS = {"id": "bigint", "name": "string", "price": "decimal(10,2)"}
Row = tuple[Any, ...]


WAYS = ("marked", "direct", "replace_keys", "merge")


def force(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks.delta.marked, "TABLE_BYTES_MIN", 0 if way == "marked" else 1 << 40)
    monkeypatch.setattr(sinks.delta.direct, "TABLE_BYTES_MAX", 1 << 30 if way == "direct" else -1)
    monkeypatch.setattr(sinks.delta.size, "KEYS_MAX", 0 if way == "merge" else 1_000)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    force(request.param, monkeypatch)
    return request.param


def view(key: tuple[str, ...] = ("id",), columns: dict[str, str] = COLUMNS, fingerprint: str = "first") -> ViewSpec:
    return ViewSpec("orders", Kind.MIRROR, "public", "t", key, key, tuple(columns), "", "", (), fingerprint)


def at(lsn: int) -> Position:
    return Position(lsn, lsn * 1000, {"t": (lsn, 2 * lsn)})


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., DeltaSink]:
    return lambda spec=None: DeltaSink(Delta(path=str(tmp_path), deletion_vectors=True), "shop", spec or view())


@pytest.fixture
def frame(spark: SparkSession) -> Callable[..., DataFrame]:
    def frame(*changes: tuple[str, Row], columns: dict[str, str] = COLUMNS) -> DataFrame:
        rows = [(*row, *[None] * (len(columns) - len(row)), op, 7, "t@0:1") for op, row in changes]
        kinds = {**columns, OP: "string", LSN: "bigint", AT: "string"}
        return spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in kinds.items()))

    return frame


FIRST = [(UPSERT, (key, f"n{key}", Decimal("1.00"))) for key in range(10)]


@pytest.fixture
def sink(make, frame) -> DeltaSink:
    sink = make()
    sink.replace(frame(*FIRST), at(100))
    return sink


def rows(sink: DeltaSink) -> dict[Any, Row]:
    found = list(sink.rows())
    by_key = {row[0]: row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


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


def directly(rows: DataFrame, commit: Commit, batch: Any) -> None:
    merge_directly(rows.toArrow(), commit, [column.name for column in batch.key], {})


def marking(rows: DataFrame, commit: Commit, batch: Any) -> None:
    mark_and_append(rows.toArrow(), commit, [column.name for column in batch.key], {})


def test_delta_itself_takes_no_turn_twice(sink, frame, spark, way):
    """The sink looks first; this is for two writers at once, and for a commit that landed after its writer died."""
    write = {"replace_keys": replace_keys, "merge": merge, "direct": directly, "marked": marking}[way]
    changes = frame((UPSERT, (1, "doubled", None)), (DELETE, (2,)))
    sink.write(frame((UPSERT, (3, "once", None))), at(200))
    version, generation = sink.version()
    state = table_state(sink.path, {}, "shop/orders")
    commit = Commit(sink.path, state.stamp, "shop/orders", state.turn, spark)
    batch = measured(changes, ("id",)) if way == "replace_keys" else bounded(changes)
    # Spark passes over it in silence, and the sink looks what became of its commit.
    with pytest.raises(TransientError, match="another process") if way in ("direct", "marked") else nullcontext():
        write(changes.select("id", "name", "price", OP), commit, batch)
    assert sink.version() == (version, generation)
    assert rows(sink)[1][1] == "n1"


def bounded(changes: DataFrame):
    return sinks.delta.size._large(changes, (KeyColumn("id", "bigint"),))


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


def test_an_empty_batch_makes_no_commit(sink, frame, way):
    version = sink.version()
    assert sink.write(frame(), at(200)) == Written()
    sink.advance(at(300))
    assert sink.version() == version
    assert sink.position() == at(100)


def test_a_batch_that_changes_nothing_is_no_rival(sink, frame, way):
    sink.write(frame((DELETE, (77,)), (DELETE, (78,))), at(200))
    assert (sink.held().version, sink.held().generation) == sink.version()
    sink.write(frame((DELETE, (77,)), (UPSERT, (1, "changed", None))), at(300))
    assert sink.position() == at(300)
    assert rows(sink)[1] == (1, "changed", None)


def test_looking_at_a_table_that_another_process_writes_is_no_conflict(sink, frame, make):
    reader = make()
    assert reader.position() == at(100)
    sink.write(frame((DELETE, (1,))), at(200))
    assert reader.version() == sink.version()
    with pytest.raises(TransientError):
        reader.held()


def test_the_ledger_may_vouch_for_the_version_that_is_there(sink, frame):
    from jobs.ledger import LedgerRow

    version, generation = sink.version()
    line = LedgerRow(sink.folder, version, generation, 300, 300_000, {"t": (9, 9)})
    assert vouched(sink.position(), sink.version()[0], line) == Position(300, 300_000, {"t": (9, 9)})
    sink.write(frame((DELETE, (1,))), at(400))
    assert vouched(sink.position(), sink.version()[0], line) == at(400)


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


def test_other_commits_above_ours_do_not_move_the_view(sink, frame, spark):
    for _ in range(12):
        spark.sql(f"ALTER TABLE delta.`{sink.path}` SET TBLPROPERTIES ('note' = 'x')")
    assert sink.position() == at(100)
    sink.write(frame((DELETE, (1,))), at(200))
    assert sink.position() == at(200)


@pytest.mark.parametrize("by_replacing", [False, True])
def test_a_writer_that_is_overtaken_while_it_writes_writes_nothing(sink, frame, way, by_replacing):
    late = frame((UPSERT, (1, "late", None)))
    started, release = threading.Event(), threading.Event()
    path = sink.path

    class Rival(DeltaSink):
        """Lets another writer commit after this one has looked at the table."""

        def _commit(self, *args: Any) -> Commit:
            started.set()
            assert release.wait(60)
            return super()._commit(*args)

    slow = Rival(Delta(path=str(Path(path).parent.parent)), "shop", view())
    errors: list[BaseException] = []

    def run() -> None:
        try:
            slow.write(late, at(200))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    if by_replacing:
        sink.replace(frame((UPSERT, (1, "first", None))), at(150))
    else:
        sink.write(frame((UPSERT, (1, "first", None)), (DELETE, (2,))), at(150))
    version = sink.version()
    release.set()
    thread.join(120)
    (error,) = errors
    assert isinstance(error, TransientError)
    assert error.code == "SINK_OVERTAKEN"
    assert sink.version() == version
    assert rows(sink)[1][1] == "first"


def test_conflicting_commits_at_the_same_moment_are_transient(sink, frame, spark, way):
    """Many writers at once: each either commits, or is told to try again; none is lost silently."""
    outcomes: dict[int, str] = {}
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            sink.write(frame((UPSERT, (1, f"writer {number}", None))), at(1000 + number))
            outcomes[number] = "committed"
        except TransientError as error:
            outcomes[number] = error.code

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert set(outcomes) == set(range(4))
    assert set(outcomes.values()) <= {"committed", "DELTA_CONFLICT", "SINK_OVERTAKEN"}
    assert "committed" in outcomes.values()
    assert rows(sink)[1][1].startswith("writer")


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
