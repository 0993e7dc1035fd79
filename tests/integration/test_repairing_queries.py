"""Repairs of views over several tables: by a running apply and without one, and of what they are computed from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.soak.planting import Cache, Delta, Search
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.timeout(900)

VIEWS = {
    "basket": "-- sinks: search, cache\n"
    "SELECT o.id, o.amount, count(i.line) AS items FROM orders o LEFT JOIN order_items i ON i.order_id = o.id "
    "GROUP BY o.id, o.amount",
    "large": "-- sinks: cache\nSELECT id, items FROM basket WHERE items > 1",
    "totals": "SELECT paid, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY paid",
}


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline whose views are queries."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("repairing"), VIEWS) as made:
        fill(made.admin)
        made.admin.execute("SET search_path TO public")
        made.start()
        made.catch_up(600)
        yield made


def repaired(shop: Pipeline, *views: str) -> dict[tuple[str, str], Any]:
    ended = shop.run("prove", "--repair", "--json", *views)
    assert ended.returncode == 0, ended.stdout + ended.stderr + shop.apply.text()[-3000:]
    return {(proof["view"], proof["sink"]): proof for proof in json.loads(ended.stdout)}


def mended(proofs: dict[tuple[str, str], Any]) -> dict[tuple[str, str], tuple[int, int]]:
    assert not any(proof["rebuilt"] for proof in proofs.values())
    return {at: (each["mended"]["written"], each["mended"]["deleted"]) for at, each in proofs.items() if each["mended"]}


def touch(shop: Pipeline, *orders: int) -> None:
    """Have the view's rows of these computed anew."""
    shop.admin.execute(
        "INSERT INTO order_items SELECT o, 1000 + (SELECT count(*) FROM order_items), 'more', 1 "
        "FROM unnest(%s::bigint[]) o",
        [list(orders)],
    )


def require_equal(shop: Pipeline) -> None:
    shop.catch_up()
    wrong = [proof for proof in shop.prove() if not proof["holds"]]
    assert not wrong, json.dumps(wrong) + shop.apply.text()[-3000:]


def test_a_query_is_mended_alone_in_all_its_sinks(shop: Pipeline) -> None:
    table, search, cache = (
        Delta(shop.settings, "basket"),
        Search(shop.settings, "basket"),
        Cache(shop.settings, "basket"),
    )
    table.lose(20)
    table.change(21, "items", "77")
    table.copy(22, 90_022)
    search.change(23, "items", 77)
    search.lose(24)
    cache.copy(25, 90_025)
    proofs = repaired(shop, "basket")
    assert mended(proofs) == {("basket", "delta"): (2, 1), ("basket", "search"): (2, 0), ("basket", "cache"): (0, 1)}
    touch(shop, 20, 21, 22, 23, 24, 25)
    require_equal(shop)


def test_where_no_apply_runs_the_command_mends_by_itself(shop: Pipeline) -> None:
    shop.apply.stop()
    try:
        touch(shop, 40, 41)
        Delta(shop.settings, "basket").lose(44)
        Delta(shop.settings, "public.orders").change(42, "customer", "nobody")
        Cache(shop.settings, "basket").copy(43, 90_043)
        assert mended(repaired(shop)) == {
            ("basket", "delta"): (1, 0),
            ("public.orders", "delta"): (1, 0),
            ("basket", "cache"): (0, 1),
        }
    finally:
        shop.start_apply()
    touch(shop, 40, 42, 43, 44)
    require_equal(shop)


def test_what_a_wrong_query_is_computed_from_is_mended_as_well(shop: Pipeline) -> None:
    """Else the next change of these keys would bring the difference back."""
    Delta(shop.settings, "public.orders").change(60, "amount", "0.26")
    touch(shop, 60)
    shop.catch_up()
    assert not all(proof["holds"] for proof in shop.prove("large", "basket"))
    proofs = repaired(shop, "basket")
    assert mended(proofs)["public.orders", "delta"] == (1, 0)
    touch(shop, 60)
    require_equal(shop)
