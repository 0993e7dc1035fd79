"""Groups brought up to date by changed rows alone: the fold case by case, and refreshes of Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from jobs.plan.nodes import Aggregate, Attribute, Expr, Scan
from jobs.plan.tally import tallied
from jobs.plan.types import INT4, INT8
from jobs.refresh import tallied as refreshing
from jobs.refresh import worth as deciding
from jobs.refresh.stored import Stored
from jobs.upkeep.tallying import UNSURE, folded_sql
from sinks.delta import commit
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT
from tests.support.refresh_bed import Bed

GROUP, VALUE = Attribute(1, "g", INT4), Attribute(2, "x", INT4)
CALLS = (
    (Attribute(3, "sum", INT8), Expr("sum(c2)", INT8, frozenset({VALUE}))),
    (Attribute(4, "min", INT4), Expr("min(c2)", INT4, frozenset({VALUE}))),
)
# Of a group: what is stored, what went and what came, each as rows, values, sum and least value; then the new one.
ROWS = {
    "a row comes": ((2, 2, 5, 2), None, (1, 1, 1, 1), (3, 3, 6, 1)),
    "a row goes": ((2, 2, 5, 2), (1, 1, 3, 3), None, (1, 1, 2, 2)),
    "a new group": (None, None, (1, 1, 1, 1), (1, 1, 1, 1)),
    "a new group of NULLs": (None, None, (2, 0, None, None), (2, 0, None, None)),
    "the last row goes": ((1, 1, 2, 2), (1, 1, 2, 2), None, (0, 0, None, None)),
    "the last value goes": ((2, 1, 2, 2), (1, 1, 2, 2), (1, 0, None, None), UNSURE),
    "the last value was none of the least": ((2, 0, None, None), (1, 0, None, None), None, (1, 0, None, None)),
    "the least goes": ((2, 2, 5, 2), (1, 1, 2, 2), None, UNSURE),
    "the least goes, a lesser comes": ((2, 2, 5, 2), (1, 1, 2, 2), (1, 1, 1, 1), (2, 2, 4, 1)),
    "the least goes, a greater comes": ((2, 2, 5, 2), (1, 1, 2, 2), (1, 1, 4, 4), UNSURE),
    "the least goes and comes": ((2, 2, 5, 2), (1, 1, 2, 2), (1, 1, 2, 2), (2, 2, 5, 2)),
    "more goes than there was": ((1, 1, 2, 2), (2, 2, 4, 2), None, UNSURE),
    "nothing is left but a sum": ((1, 1, 2, 2), (1, 1, 1, 1), None, UNSURE),
    "put right by another hand": ((2, None, 5, 2), None, (1, 1, 1, 1), UNSURE),
}
INEXACT = {"the least goes, a lesser comes": (2, 2, 4, 1), "the least goes and comes": UNSURE}
"""Of several changed inputs of a join."""


@pytest.mark.parametrize("is_exact", [True, False])
def test_a_groups_results_follow_or_are_unsure(spark: SparkSession, is_exact: bool):
    found = tallied(Aggregate(Scan("t", (GROUP, VALUE), ("g", "x"), ()), (GROUP,), CALLS), (GROUP, *map(_first, CALLS)))
    assert found is not None
    _, tally = found
    order = [tally.rows, *tally.filled.values(), *map(_first, CALLS)]
    frame = spark.createDataFrame(
        [
            (name, sign, *values)
            for name, (stored, gone, come, _) in ROWS.items()
            for sign, values in ((0, stored), (-1, gone), (1, come))
            if values is not None
        ],
        ", ".join(["c1 string", f"{tally.sign.sql} int", *(f"{each.sql} {each.type.spark}" for each in order)]),
    )
    frame.createOrReplaceTempView("tally_cases")
    rows = spark.sql(folded_sql(tally, "tally_cases", is_exact=is_exact)).collect()

    new = {row["c1"]: UNSURE if row[UNSURE] else tuple(row[each.sql] for each in order) for row in rows}
    expected = {name: case[3] for name, case in ROWS.items()}
    assert new == (expected if is_exact else {**expected, **INEXACT})


def _first(call: tuple[Attribute, Expr]) -> Attribute:
    return call[0]


VIEWS = {
    "by_status": "SELECT status, count(*) AS n, sum(amount) AS amount, round(avg(amount), 3) AS mean FROM orders"
    " GROUP BY status",
    "extremes": "SELECT customer, min(amount) AS least, max(id) AS newest FROM orders GROUP BY customer",
    "total": "SELECT count(*) AS n, sum(amount) AS amount, max(amount) AS most FROM orders WHERE status <> 'void'",
    "by_city": "SELECT c.city, count(o.amount) AS n, sum(o.amount) AS amount FROM orders o"
    " JOIN customers c ON c.id = o.customer GROUP BY c.city",
    "joined": "SELECT o.id, o.amount, c.city FROM orders o JOIN customers c ON c.id = o.customer",
    "cities": "SELECT DISTINCT city FROM customers",
    "above": "SELECT n, count(*) AS statuses FROM by_status GROUP BY n",
}


@pytest.fixture(scope="module", autouse=True)
def several_files() -> Iterator[None]:
    """Rows of one table are found in many files, or in none of most."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit, "ROWS_PER_FILE_MAX", 4)
        yield


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return Bed(spark, tmp_path_factory.mktemp("tallies"), VIEWS)


def test_changed_rows_alone_bring_views_up_to_date(bed: Bed):
    for names in (("public.orders",), ("public.orders", "public.customers"), ("public.customers",)):
        bed.change(*names)
        how = bed.refresh()
        # Of the others, an extreme may be gone.
        assert all('"full"' not in how[name] and '"incremental"' not in how[name] for name in ("by_status", "by_city"))


def test_many_groups_stay_in_spark(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(refreshing, "GROUPS_MAX", 0)
    bed.change("public.orders", "public.customers", only=UPSERT)
    how = bed.refresh()
    assert '"tallied"' in how["by_status"]


def test_where_many_rows_changed_a_view_that_nobody_follows_is_written_anew(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deciding, "CHANGES_FEW", 0)
    monkeypatch.setattr(Stored, "rows_max", lambda _: 0)
    bed.change("public.orders", keys=20, only=UPSERT)
    how = bed.refresh()
    # What differs from what readers saw is what another view goes by.
    for name, operation in (("joined", "WRITE"), ("by_status", "MERGE")):
        assert "many rows changed" in how[name]
        assert DeltaTable(bed.sinks[name].path).history(1)[0]["operation"] == operation
    monkeypatch.undo()
    bed.change("public.orders", keys=2)
    assert '"full"' not in bed.refresh()["joined"]


def test_after_a_kill_between_tables_and_views_nothing_is_lost(bed: Bed):
    bed.change("public.orders", "public.customers")
    bed.run("by_status")
    bed.start()
    bed.lsn += 1
    assert '"unchanged"' not in bed.refresh()["by_city"]


def test_a_row_that_a_table_had_lost_and_gets_back_counts_once(bed: Bed):
    bed.lsn += 1
    key = 94
    lost = bed.rows["public.orders"][key] = {**bed.row("public.orders", key), "status": "paid", "amount": Decimal(3)}
    bed.write("public.orders", [(UPSERT, lost)])
    bed.refresh()
    sink = bed.sinks["public.orders"]
    DeltaTable(sink.path).delete(f"id = {key}")
    bed.lsn += 1
    bed.rows["public.orders"][95] = {**lost, "id": 95}
    bed.write("public.orders", [(UPSERT, bed.rows["public.orders"][95])])
    assert '"tallied"' in bed.run("by_status")
    bed.refresher.end_batch()

    sink.mend(bed.frame("public.orders", [(UPSERT, lost)]), bed.position())
    bed.lsn += 1
    bed.refresh()


def test_a_row_that_was_mended_is_computed_when_it_is_touched(bed: Bed):
    sink = bed.sinks["by_status"]
    row = {"status": "new", "n": 1, "amount": Decimal("1.00"), "mean": Decimal("1.000")}
    types = ", ".join(f"{name} {kind}" for name, kind in sink.types().items() if name in row)
    mended = bed.spark.createDataFrame([tuple(row.values())], types).selectExpr(
        "*", f"'{UPSERT}' AS {OP}", f"CAST(1 AS BIGINT) AS {LSN}", f"'' AS {AT}"
    )
    sink.mend(mended, bed.position())
    bed.lsn += 1
    bed.rows["public.orders"][90] = {**bed.row("public.orders", 90), "status": "new"}
    bed.write("public.orders", [(UPSERT, bed.rows["public.orders"][90])])
    assert '"tallied"' in bed.refresh()["by_status"]


def test_the_last_row_of_a_mended_group_goes(bed: Bed):
    bed.lsn += 1
    key = 93
    bed.rows["public.orders"][key] = {**bed.row("public.orders", key), "status": "lonely"}
    bed.write("public.orders", [(UPSERT, bed.rows["public.orders"][key])])
    bed.refresh()
    sink = bed.sinks["by_status"]
    stored = bed.spark.read.format("delta").load(sink.path).where("status = 'lonely'")
    columns = [name for name in stored.columns if name in bed.specs["by_status"].columns]
    mended = stored.select(*columns).selectExpr(
        "*", f"'{UPSERT}' AS {OP}", f"CAST(1 AS BIGINT) AS {LSN}", f"'' AS {AT}"
    )
    sink.mend(mended, bed.position())
    bed.lsn += 1
    bed.write("public.orders", [(DELETE, bed.rows["public.orders"].pop(key))])
    bed.refresh()


def test_other_sinks_are_told_only_what_readers_see(bed: Bed):
    """Two rows of a city are one, whatever is counted of them."""
    bed.lsn += 1
    key = 91
    bed.rows["public.customers"][key] = {"id": key, "city": "Rome"}
    bed.rows["public.customers"][92] = {"id": 92, "city": "Rome"}
    bed.write("public.customers", [(UPSERT, bed.rows["public.customers"][each]) for each in (key, 92)])
    bed.run("cities")
    moved = bed.refresher.relations.moved("cities")
    assert moved is not None
    assert moved.changes is None
    bed.refresh()
