"""Views over several tables, kept by the real capture and apply, and proved equal to Postgres in all their sinks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.processes import Command
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

QUERIES = {
    "lines": "-- sinks: delta, search, cache\n"
    "SELECT i.line, i.order_id, o.customer, i.product, i.quantity FROM order_items i "
    "JOIN orders o ON o.id = i.order_id",
    "basket": "-- sinks: search, cache\n"
    "SELECT o.id, o.amount, count(i.line) AS items, sum(i.quantity) AS pieces FROM orders o "
    "LEFT JOIN order_items i ON i.order_id = o.id GROUP BY o.id, o.amount",
    "totals": "SELECT paid, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY paid",
    "dearest": "SELECT id, customer, amount FROM ("
    "SELECT id, customer, amount, paid, row_number() OVER (PARTITION BY paid ORDER BY amount DESC, id) AS place "
    "FROM orders) r WHERE place <= 3",
    "large_baskets": "SELECT id, pieces FROM basket WHERE pieces > 3",
    "large_totals": "SELECT count(*) AS baskets, sum(pieces) AS pieces FROM large_baskets",
    "unsold": "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM order_items i WHERE i.order_id = o.id)",
    "paid_orders": "-- sinks: cache\nSELECT id, amount FROM orders WHERE paid",
    "paid_lines": "SELECT i.line, i.order_id, p.amount FROM order_items i JOIN paid_orders p ON p.id = i.order_id",
}
CHANGES = (
    "UPDATE orders SET amount = amount + 1, paid = NOT paid WHERE id % 7 = 0",
    "DELETE FROM orders WHERE id % 11 = 3",
    "INSERT INTO order_items SELECT g % 40, 100 + g, 'new', g % 3 FROM generate_series(1, 120) g",
    "BEGIN; UPDATE order_items SET order_id = order_id + 1 WHERE line < 20; "
    "UPDATE orders SET customer = 'other' WHERE id < 9; COMMIT",
    "UPDATE orders SET paid = NULL WHERE id BETWEEN 20 AND 30",
    "UPDATE orders SET at = now()",
    "TRUNCATE order_items",
    "INSERT INTO order_items VALUES (1, 1, 'last', 9), (2, 1, 'last', 9)",
)


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline whose views are queries."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("queries"), QUERIES) as made:
        fill(made.admin)
        made.start()
        made.catch_up()
        yield made


def test_every_query_equals_postgres_after_every_change(shop: Pipeline):
    shop.admin.execute("SET search_path TO public")
    for change in ("SELECT 1", *CHANGES):
        shop.admin.execute(change)
        shop.catch_up()
        wrong = [proof for proof in shop.prove() if not proof["holds"]]
        assert not wrong, (change, wrong, shop.apply.text()[-5000:])


def test_a_changed_file_is_loaded_anew_and_a_removed_one_is_reported(shop: Pipeline):
    totals, removed = (shop.settings.views / f"{name}.sql" for name in ("totals", "large_totals"))
    before = _large_totals(shop)
    try:
        totals.write_text("SELECT paid, count(*) AS orders, max(amount) AS dearest FROM orders GROUP BY paid")
        removed.unlink()
        wait_until(
            lambda: "max(amount)" in shop.apply.text(), what="the change of the file in apply's log", timeout_s=60
        )
        shop.admin.execute("INSERT INTO public.order_items VALUES (5, 900, 'one large basket more', 9)")
        shop.catch_up()

        assert all(proof["holds"] for proof in shop.prove("totals"))
        status = json.loads(shop.run("status", "--json").stdout)
        assert status["undeclared"] == ["large_totals"]
        refreshed = {view["view"] for view in status["views"] if view["refreshed"]}
        assert refreshed == set(QUERIES) - {"large_totals", "paid_orders"}
        assert _large_totals(shop) == before
    finally:
        totals.write_text(QUERIES["totals"])
        removed.write_text(QUERIES["large_totals"])
    # Taken up again, it stands where the others do.
    wait_until(lambda: _large_totals(shop) == before + 1, what="the view that is declared again", timeout_s=60)
    assert all(proof["holds"] for proof in shop.prove("totals", "large_totals"))


def _large_totals(shop: Pipeline) -> int:
    (row,) = json.loads(shop.run("query", "--format", "json", "SELECT baskets FROM large_totals").stdout)
    return int(row["baskets"])


def test_a_second_apply_waits_and_takes_over_when_the_first_is_killed(shop: Pipeline):
    change = "UPDATE public.orders SET amount = amount + 1, paid = NOT paid WHERE id % 5 = 0"
    second = Command(shop.config, ("apply",), shop.config.parent / "second.log").start()
    try:
        wait_until(lambda: "waiting for" in second.text(), what="the second to wait", timeout_s=120)
        shop.admin.execute(change)
        shop.catch_up()
        assert second.alive
        assert "view refreshed" not in second.text()

        said = len(shop.apply.text())
        shop.admin.execute(change)
        wait_until(lambda: "view refreshed" in shop.apply.text()[said:], what="the first at work")
        shop.apply.kill()
        shop.admin.execute(change)
        shop.catch_up()
        wrong = [proof for proof in shop.prove() if not proof["holds"]]
        assert not wrong, (wrong, second.text()[-5000:])
        assert "view refreshed" in second.text()
    finally:
        second.stop()
        shop.start_apply()
