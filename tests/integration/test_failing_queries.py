"""A query that fails on a row, or over a table that has stopped, stands behind alone, says why, and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.lsn import format_lsn
from cdc.schema_log import read_schemas
from tests.support.capturing import insert_lsn
from tests.support.declared import events
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(900)

POLL_S = 0.5
"""Each look is a command or a reader of a topic of its own, on the cores that apply runs on."""

QUERIES = {
    "shares": "-- sinks: delta, cache\nSELECT i.line, i.order_id, 12 / (i.quantity + 1) AS share FROM order_items i "
    "JOIN orders o ON o.id = i.order_id",
    "per_order": "-- sinks: delta, search\nSELECT order_id, count(*) AS lines, sum(share) AS share FROM shares "
    "GROUP BY order_id",
    "by_customer": "-- sinks: delta\n-- key: customer\nSELECT o.customer, o.id FROM orders o "
    "WHERE EXISTS (SELECT 1 FROM order_items i WHERE i.order_id = o.id)",
    "marked": "-- sinks: delta\nSELECT o.id, (SELECT e.note FROM events e WHERE e.id = 1) AS note FROM orders o",
    "totals": "SELECT paid, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY paid",
}
ITEM = "(line, order_id, product, quantity)"
STOPS = (
    (
        {"shares": "VIEW_FAILED", "per_order": "VIEW_WAITS"},
        f"INSERT INTO order_items {ITEM} VALUES (900, 1, 'p', -1)",
        "UPDATE order_items SET quantity = 3 WHERE line = 900",
    ),
    (
        {"by_customer": "VIEW_KEY_NOT_UNIQUE"},
        "UPDATE orders SET customer = (SELECT customer FROM orders WHERE id = 2) WHERE id = 1",
        "UPDATE orders SET customer = 'another' WHERE id = 1",
    ),
    (
        {"marked": "VIEW_FAILED"},
        "INSERT INTO events VALUES (1, '2025-06-01', 'a'), (1, '2026-06-01', 'b')",
        "DELETE FROM events WHERE note = 'b'",
    ),
)
"""What fails after a change, and the change that heals it."""


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline whose views are queries."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("failing"), QUERIES) as made:
        fill(made.admin)
        made.admin.execute("SET search_path TO public")
        made.start()
        made.catch_up()
        yield made


def stopped(shop: Pipeline) -> dict[str, str]:
    """The codes of the views that stand behind."""
    views = status(shop)["views"]
    return {view["view"]: view["stopped"]["code"] for view in views if view["stopped"] is not None}


def status(shop: Pipeline) -> dict[str, Any]:
    return json.loads(shop.run("status", "--json").stdout)


def wait_for(shop: Pipeline, *views: str) -> Any:
    return shop.run("wait", format_lsn(insert_lsn(shop.admin)), *views, "--timeout", "180")


def unequal(shop: Pipeline) -> dict[str, str]:
    return {proof["view"]: str(proof["problem"]) for proof in shop.prove() if not proof["holds"]}


def test_queries_that_fail_stop_alone_and_come_back(shop: Pipeline):
    codes = {view: code for failing, *_ in STOPS for view, code in failing.items()}
    for _, breaking, _ in STOPS:
        shop.admin.execute(breaking)

    waited = wait_for(shop, "public.orders", "public.order_items", "totals")
    assert waited.returncode == 0, waited.stderr + shop.apply.text()[-3000:]
    assert stopped(shop) == codes
    assert status(shop)["lsn"] is not None
    assert "per_order will not get there: view per_order waits for shares" in " ".join(
        wait_for(shop, "per_order").stderr.split()
    )
    problems = unequal(shop)
    assert problems.keys() == codes.keys()
    assert all("stopped alone" in problem for problem in problems.values())
    assert "view stopped alone" in shop.apply.text()
    rebuilt = shop.run("rebuild", "shares")
    assert rebuilt.returncode != 0
    assert "DIVIDE_BY_ZERO" in rebuilt.stderr

    for *_, healing in STOPS:
        shop.admin.execute(healing)
    wait_until(lambda: stopped(shop) == {}, what="them to follow again", timeout_s=240, poll_s=POLL_S)
    shop.catch_up()
    assert unequal(shop) == {}


def test_it_stays_alone_when_apply_is_killed_and_is_told_of_by_the_next_one(shop: Pipeline):
    codes, breaking, healing = STOPS[0]
    shop.admin.execute(breaking.replace("900", "901"))
    assert wait_for(shop, "totals").returncode == 0
    wait_until(lambda: stopped(shop) == codes, what="it to stop", timeout_s=240, poll_s=POLL_S)

    shop.apply.kill()
    shop.admin.execute(healing.replace("900", "901"))
    shop.start_apply()

    wait_until(lambda: stopped(shop) == {}, what="it to follow again", timeout_s=240, poll_s=POLL_S)
    shop.catch_up()
    assert unequal(shop) == {}


def test_over_a_table_that_stopped_it_stays_alone_and_comes_back(shop: Pipeline):
    def table(name: str) -> Any:
        return read_schemas(shop.settings.kafka, shop.settings.pipeline)["public", name].stopped

    over_items = {"public.order_items", "shares", "per_order", "by_customer"}
    shop.admin.execute("ALTER TABLE order_items DROP CONSTRAINT order_items_pkey")
    shop.admin.execute("UPDATE orders SET amount = amount + 1 WHERE id < 50")
    shop.admin.execute(f"INSERT INTO order_items {ITEM} VALUES (902, 1, 'p', 2)")
    wait_until(lambda: table("order_items"), what="the table to stop", timeout_s=240, poll_s=POLL_S)

    waited = wait_for(shop, "public.orders", "totals", "marked")
    assert waited.returncode == 0, waited.stderr + shop.apply.text()[-3000:]
    assert stopped(shop).keys() == over_items
    assert "TABLE_STOPPED" in wait_for(shop, "per_order").stderr
    assert unequal(shop).keys() == over_items

    shop.admin.execute("ALTER TABLE order_items ADD PRIMARY KEY (line, order_id)")
    wait_until(lambda: table("order_items") is None, what="it to be read again", timeout_s=240, poll_s=POLL_S)
    shop.catch_up()
    assert unequal(shop) == {}


LOST = {"shares": "VIEW_UNKNOWN_COLUMN", "per_order": "VIEW_UNKNOWN_TABLE"}
"""What a query that lost a column is left out for, and one that reads it."""


def test_a_query_that_lost_a_column_is_left_out_alone(shop: Pipeline):
    before = count(shop, "shares")
    shop.admin.execute("ALTER TABLE order_items RENAME COLUMN quantity TO pieces")
    shop.admin.execute("INSERT INTO order_items (line, order_id, product, pieces) VALUES (903, 1, 'p', 2)")
    try:
        require_left_out(shop)
        assert count(shop, "shares") == before

        shop.apply.kill()
        shop.admin.execute("INSERT INTO order_items (line, order_id, product, pieces) VALUES (904, 1, 'p', 2)")
        shop.start_apply()
        require_left_out(shop)
        assert count(shop, "shares") == before
    finally:
        shop.admin.execute("ALTER TABLE order_items RENAME COLUMN pieces TO quantity")
    wait_until(lambda: stopped(shop) == {}, what="them to be back", timeout_s=240)
    shop.catch_up()
    assert unequal(shop) == {}
    assert count(shop, "shares") == before + 2


def require_left_out(shop: Pipeline) -> None:
    """All others go on; what is wrong, and what to do, is said wherever somebody asks."""
    waited = wait_for(shop, "public.order_items", "totals", "by_customer")
    assert waited.returncode == 0, waited.stderr + shop.apply.text()[-3000:]
    shown = shop.run("status", "--json")
    told = json.loads(shown.stdout)
    assert shown.returncode == 1
    assert {view["view"]: view["stopped"]["code"] for view in told["views"] if view["stopped"]} == LOST
    remedies = {view["view"]: view["stopped"]["remedy"] for view in told["views"] if view["stopped"]}
    assert "pieces" in remedies["shares"], "the columns that there are"
    assert all(f"afterimage drop {view}" in remedy for view, remedy in remedies.items())
    assert told["undeclared"] == []
    said = [each for each in events(shop, 0) if each["event"] == "view left out"]
    assert any(each["view"] == "shares" and "pieces" in each["remedy"] for each in said), said

    alone = wait_for(shop)
    assert alone.returncode == 3
    assert "will not get there" in alone.stderr
    dropped = shop.run("drop", "shares")
    assert "VIEW_DECLARED" in dropped.stderr
    problems = unequal(shop)
    assert problems.keys() == LOST.keys()
    assert "shares.sql" in problems["shares"]
    assert "pieces" in problems["shares"]
    assert shop.apply.alive


def test_all_others_are_rebuilt_and_repaired_beside_one_that_is_left_out(shop: Pipeline):
    shop.admin.execute("ALTER TABLE order_items RENAME COLUMN quantity TO pieces")
    shop.admin.execute("UPDATE order_items SET pieces = pieces + 1 WHERE line < 10")
    try:
        wait_until(lambda: stopped(shop) == LOST, what="them to be left out", timeout_s=60)
        rebuilt = shop.run("rebuild", "--all", timeout_s=600)
        assert rebuilt.returncode == 1, rebuilt.stderr
        assert "not rebuilt shares" in rebuilt.stderr
        for view in ("totals", "by_customer", "marked", "public.order_items"):
            assert f"rebuilt {view} at" in rebuilt.stderr
        repaired = shop.run("prove", "--repair", "--json")
        assert repaired.returncode == 1, repaired.stderr
        assert {proof["view"] for proof in json.loads(repaired.stdout) if not proof["holds"]} == LOST.keys()
        named = shop.run("rebuild", "shares")
        assert named.returncode == 2
        assert "shares.sql" in named.stderr
    finally:
        shop.admin.execute("ALTER TABLE order_items RENAME COLUMN pieces TO quantity")
    wait_until(lambda: stopped(shop) == {}, what="them to be back", timeout_s=240)
    shop.catch_up()
    assert unequal(shop) == {}


def test_a_new_file_that_is_wrong_stops_a_start(shop: Pipeline):
    wrong = shop.settings.views / "wrong.sql"
    shop.apply.stop()
    wrong.write_text("SELECT paid, count(*) AS orders, sum(amonut) AS amount FROM orders GROUP BY paid")
    try:
        started = shop.run("apply", "--once")
        assert started.returncode == 2
        assert "VIEW_UNKNOWN_COLUMN" in started.stderr
        assert "wrong.sql" in started.stderr
    finally:
        wrong.unlink()
        shop.start_apply()
    shop.catch_up()


def count(shop: Pipeline, view: str) -> int:
    (row,) = json.loads(shop.run("query", "--format", "json", f"SELECT count(*) AS n FROM {view}").stdout)
    return int(row["n"])
