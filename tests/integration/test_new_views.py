"""View files that are new on a real pipeline: loaded beside, while everything that is there goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import afterimage
from sinks.spec import HIDDEN
from tests.support.declared import (
    as_declared,
    await_event,
    batches_beside,
    declare,
    events,
    held_loads,
    log_of_failures,  # noqa: F401
    require_equal,
    running_shop,
)
from tests.support.load import Load
from tests.support.pipelines import Pipeline, Stores
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(900)

VIEWS = {
    "paid": "-- sinks: delta, search, cache\nSELECT id, customer, paid FROM orders WHERE paid",
    "counted": "SELECT product, count(*) AS lines FROM order_items GROUP BY product",
}
NEW = {
    "cheap": "-- sinks: delta, search, cache\nSELECT id, amount FROM orders WHERE amount < 400",
    "sums": "-- sinks: delta, cache\nSELECT i.product, count(*) AS lines, sum(i.quantity) AS pieces "
    "FROM orders o JOIN order_items i ON i.order_id = o.id WHERE i.product IS NOT NULL GROUP BY i.product",
    "large": "-- sinks: search\nSELECT product, pieces FROM sums WHERE pieces > 2 AND product IS NOT NULL",
}


@pytest.fixture(scope="module")
def running(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with views, over so many rows that a load takes some batches."""
    with running_shop(postgres, stores, tmp_path_factory.mktemp("new"), VIEWS) as made:
        yield made


@pytest.fixture
def shop(running: Pipeline) -> Iterator[Pipeline]:
    """The same for each test, with VIEWS declared."""
    with as_declared(running, VIEWS) as made:
        yield made


def test_new_views_are_loaded_beside_and_shown_with_all_that_reads_them(shop: Pipeline):
    with Load(shop.settings, 7, pause_s=0.1), held_loads(shop, "cheap", "sums"):
        said = declare(shop, **NEW)
        batches_beside(shop, said, dict.fromkeys(("cheap", "large, sums"), ("paid", "counted")))
    told = events(shop, said)
    for view, load in (("cheap", "cheap"), ("sums", "large, sums")):
        loads, swapped = (
            next(n for n, each in enumerate(told) if (each["event"], each.get("view")) == found)
            for found in (("rebuild loads", load), ("view swapped", view))
        )
        written = {each["view"] for each in told[loads:swapped] if each["event"] in ("view written", "view refreshed")}
        assert {"paid", "counted"} <= written, "what was there went on"
    assert not [each for each in told if each["event"] == "view replaced" and each["view"] in NEW]
    lsns = {each["lsn"] for each in told if each["event"] == "view swapped" and each["view"] in ("sums", "large")}
    assert len(lsns) == 1
    require_equal(shop)


def test_a_new_view_is_rebuilt_as_soon_as_its_file_is_there(shop: Pipeline):
    """Apply looks at the folder now and then, and at once when it is asked for what it does not know."""
    declare(shop, sums=NEW["sums"])
    asked = shop.run("rebuild", "sums")
    assert asked.returncode == 0, asked.stderr
    require_equal(shop)


def test_a_new_view_is_told_before_it_is_loaded(shop: Pipeline):
    shop.apply.stop()
    said = declare(shop, **NEW)
    status = json.loads(shop.run("status", "--json").stdout)
    assert status["problems"] == []
    assert {view["view"] for view in status["views"] if view["lsn"] is None} == {*NEW}
    assert status["changed"] == []
    refused = shop.run("prove", "cheap")
    assert (refused.returncode, "VIEW_LOADING" in refused.stderr) == (1, True), refused.stderr
    dropped = shop.run("drop", "cheap")
    assert (dropped.returncode, "cheap.sql" in dropped.stderr) == (2, True), dropped.stderr
    asked = shop.run("query", "SELECT count(*) FROM cheap")
    told = ("VIEW_LOADING" in asked.stderr, "afterimage status" in asked.stderr)
    assert (asked.returncode, *told) == (1, True, True), asked.stderr
    with pytest.raises(afterimage.Error, match="cheap is declared, and has not been loaded yet"):
        afterimage.open(shop.config).at().table("cheap")
    shop.start_apply()
    await_event(shop, said, "view rebuilt", view="cheap")
    require_equal(shop)


def test_whoever_waits_waits_for_a_new_view(shop: Pipeline):
    declare(shop, sums=NEW["sums"])
    shop.catch_up()
    rows = afterimage.open(shop.config).at().table("sums").arrow()
    assert rows.num_rows > 0
    kept = pa.table(DeltaTable(Path(shop.settings.delta_root, "sums")).to_pyarrow_table())
    hidden = [name for name in kept.column_names if name.startswith(HIDDEN)]
    assert hidden, "what brings the groups up to date is there from the beginning"
    assert {name: kept.column(name).null_count for name in hidden} == dict.fromkeys(hidden, 0)
    assert [proof["view"] for proof in shop.prove("sums") if proof["holds"]] == ["sums", "sums"]


BUSIEST = """-- sinks: delta, cache
SELECT i.product, sum(i.quantity) AS pieces FROM orders o JOIN order_items i ON i.order_id = o.id
WHERE i.product IS NOT NULL GROUP BY i.product ORDER BY pieces DESC, i.product COLLATE "C" LIMIT 3
"""


def test_a_limit_is_cut_from_a_body_that_comes_and_goes_with_it(shop: Pipeline):
    said = declare(shop, busiest=BUSIEST, sought="-- sinks: search\nSELECT id FROM orders WHERE amount < 400")
    await_event(shop, said, "view rebuilt", view="sought")
    await_event(shop, said, "view rebuilt", view="busiest, busiest__body")
    with Load(shop.settings, 8, pause_s=0.1):
        await_event(shop, said, "view refreshed", view="busiest__body", how="tallied")
    require_equal(shop)
    assert afterimage.open(shop.config).at().table("busiest").arrow().num_rows == 3
    explained = shop.run("explain", "busiest").stdout
    assert "is cut from busiest__body" in explained
    refused = shop.run("drop", "busiest__body")
    assert (refused.returncode, "LIMIT of busiest is cut from" in refused.stderr) == (2, True), refused.stderr
    for view in ("busiest", "sought"):
        shop.settings.views.joinpath(f"{view}.sql").unlink()
    assert undeclared(shop) == ["busiest", "busiest__body", "sought"]
    for view, told in {
        "busiest": "busiest removed from delta, cache, busiest__body removed from delta",
        "sought": "removed from search",
    }.items():
        dropped = shop.run("drop", view)
        assert (dropped.returncode, told in " ".join(dropped.stderr.split())) == (0, True), dropped.stderr
    assert undeclared(shop) == []


def undeclared(shop: Pipeline) -> list[str]:
    """The views that `status` says nothing declares any more."""
    found: list[str] = json.loads(shop.run("status", "--json").stdout)["undeclared"]
    return found


WRONG = {
    "fails": "SELECT id, 100 / (id - id) AS never FROM orders",
    "twice": "-- key: paid\nSELECT o.paid, o.id FROM orders o JOIN order_items i ON i.order_id = o.id WHERE o.paid",
}


@pytest.mark.parametrize("view", WRONG)
def test_a_new_view_that_cannot_be_loaded_stops_alone(shop: Pipeline, view: str):
    said = declare(shop, **{view: WRONG[view]})
    await_event(shop, said, "changed view not shown", view=view)

    told = json.loads(shop.run("status", "--json").stdout)
    assert {each["view"] for each in told["views"] if each["stopped"]} == {view}
    waited = shop.run("wait", "0/1")
    assert waited.returncode == 3, waited.stderr
    assert view in waited.stderr
    proofs = shop.prove()
    assert {proof["view"]: proof["holds"] for proof in proofs if not proof["holds"]} == {view: None}, proofs

    (shop.settings.views / f"{view}.sql").unlink()
    require_equal(shop)


def test_a_kill_while_a_new_view_is_loaded_leaves_the_others_and_it_is_loaded_again(shop: Pipeline):
    with Load(shop.settings, 8, pause_s=0.1):
        said = declare(shop, cheap=NEW["cheap"])
        await_event(shop, said, "rebuild loads")
        shop.apply.kill()
        said = len(shop.apply.text())
        shop.start_apply()
        await_event(shop, said, "view rebuilt", view="cheap")
    require_equal(shop)


def test_a_new_view_over_a_table_of_its_own_that_nobody_read_before(shop: Pipeline):
    """`order_items` is read in columns that no query has needed so far."""
    said = declare(
        shop,
        lines="SELECT i.order_id, i.line, o.customer, i.quantity FROM order_items i JOIN orders o ON o.id = i.order_id",
    )
    await_event(shop, said, "view rebuilt", view="lines")
    shop.admin.execute("UPDATE public.order_items SET quantity = quantity + 1")
    shop.admin.execute("UPDATE public.orders SET customer = 'another' WHERE id < 20")
    require_equal(shop)
    wait_until(lambda: shop.run("status").returncode == 0, what="a status without problems")
