"""LIMIT over one relation: what is first now follows from what was and from what changed, or from all rows."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from jobs.refresh.first import FirstNow
from jobs.upkeep.first_rows import first_rows
from jobs.upkeep.planning import Cost
from jobs.upkeep.verdict import verdict
from sinks.protocol import DELETE, UPSERT
from tests.support.refresh_bed import Bed, Row

VIEWS = {
    "dearest": "SELECT id, customer, amount FROM orders ORDER BY amount DESC NULLS LAST, id LIMIT 5",
    "latest": "SELECT id, status FROM orders WHERE status = 'paid' ORDER BY id DESC LIMIT 3",
    "unpriced": "SELECT id, customer * 2 AS twice FROM orders ORDER BY amount NULLS FIRST, id LIMIT 4",
    "ends": "SELECT id FROM (SELECT id, amount FROM orders WHERE customer = 1 ORDER BY id LIMIT 1000) AS some",
    "nothing": "SELECT id FROM orders ORDER BY id LIMIT 0",
    "by_customer": "SELECT customer, count(*) AS n FROM orders WHERE customer IS NOT NULL GROUP BY customer",
    "busiest": "SELECT customer, n FROM by_customer ORDER BY n DESC, customer LIMIT 2",
}
FIRST = sorted({*VIEWS} - {"by_customer"})


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    return Bed(spark, tmp_path_factory.mktemp("first"), VIEWS)


def how(bed: Bed, view: str, *changes: tuple[str, Row]) -> str:
    """By which way the view follows these; that it is right is part of `refresh`."""
    bed.lsn += 1
    for op, row in changes:
        if op == UPSERT:
            bed.rows["public.orders"][row["id"]] = row
        else:
            bed.rows["public.orders"].pop(row["id"])
    bed.write("public.orders", [*changes])
    return str(json.loads(bed.refresh()[view])["how"])


def order(key: int, amount: str, status: str = "new") -> Row:
    return {"id": key, "customer": 3, "status": status, "amount": Decimal(amount)}


def test_such_views_are_told(bed: Bed):
    for view in FIRST:
        assert set(verdict(bed.specs[view].plan).costs.values()) == {Cost.FIRST_ROWS}, view
    assert first_rows(bed.specs["by_customer"].plan) is None


def test_random_changes_are_followed_both_ways(bed: Bed):
    seen = Counter[tuple[str, str]]()
    for size in (1, 2, 5, 1, 12, 1, 1):
        bed.change("public.orders", keys=size)
        seen.update((view, json.loads(text)["how"]) for view, text in bed.refresh().items() if view in FIRST)
    assert {view for view, way in seen if way == "incremental"} == set(FIRST)
    assert {view for view, way in seen if way == "full"} & {"dearest", "latest", "unpriced"}
    assert not {"ends", "nothing"} & {view for view, way in seen if way == "full"}, "there are no others"


def test_the_last_of_the_first_rows_decides(bed: Bed):
    tops = [order(1000 + at, f"{99000000 + at}.00") for at in range(7)]
    how(bed, "dearest", *((UPSERT, row) for row in tops))
    # 1006 to 1002 are first.
    assert how(bed, "dearest", (UPSERT, order(1004, "99000004.00", "paid"))) == "incremental", "it stays where it was"
    assert how(bed, "dearest", (UPSERT, order(1004, "99000007.00"))) == "incremental", "it goes ahead"
    assert how(bed, "dearest", (UPSERT, order(1000, "99000002.50"))) == "incremental", "1000 comes in, 1002 goes out"
    assert how(bed, "dearest", (UPSERT, order(1000, "99000001.50"))) == "full", (
        "1000 is the last: 1002 may be before it"
    )
    assert how(bed, "dearest", (UPSERT, order(1002, "99000002.00", "void"))) == "full", "it alone was the last"
    assert how(bed, "dearest", (DELETE, order(1005, "99000005.00"))) == "full", "any other may follow"
    both = (DELETE, order(1006, "99000006.00")), (UPSERT, order(1007, "99000008.00"))
    assert how(bed, "dearest", *both) == "incremental", "one goes, another comes"
    assert how(bed, "dearest", (UPSERT, order(1008, "1.00"))) == "incremental", "one that is far behind"


def test_what_is_taken_for_granted_would_show(bed: Bed, monkeypatch: pytest.MonkeyPatch):
    """Without the question whether other rows may be first, a row that leaves is not replaced."""
    monkeypatch.setattr(FirstNow, "_tells_all", lambda *_: True)
    first = min(bed.rows["public.orders"].values(), key=lambda row: (-(row["amount"] or Decimal("-inf")), row["id"]))
    with pytest.raises(AssertionError, match="dearest"):
        how(bed, "dearest", (DELETE, first))
    monkeypatch.undo()
    bed.load()


def test_many_changes_and_lost_pairs_are_answered_by_all_rows(bed: Bed):
    bed.change("public.orders")
    bed.run("by_customer")
    bed.start()
    bed.lsn += 1
    assert json.loads(bed.refresh()["dearest"])["how"] == "full"
