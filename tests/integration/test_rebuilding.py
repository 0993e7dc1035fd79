"""Views rebuilt and dropped on a real pipeline, while changes go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import requests

from cdc.names import index_alias, view_topic
from cdc.topics import Topics
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

VIEWS = {
    "paid": "-- sinks: delta, search, cache, kafka\nSELECT id, customer, amount FROM orders WHERE paid",
    "baskets": "-- sinks: search, cache\n"
    "SELECT o.id, o.amount, count(i.line) AS items FROM orders o LEFT JOIN order_items i ON i.order_id = o.id "
    "GROUP BY o.id, o.amount",
    "large": "SELECT id, items FROM baskets WHERE items > 1",
    "gone": "-- sinks: delta, search, cache, kafka\n-- cache.key: {pipeline}/{view}/{generation}/{id}\n"
    "SELECT id, customer FROM orders WHERE id < 50",
}


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with views of all kinds."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("rebuilding"), VIEWS) as made:
        fill(made.admin)
        made.start()
        made.catch_up()
        yield made


def cache_of(pipeline: Pipeline) -> redis.Redis:
    settings = pipeline.settings.cache
    assert settings.password is not None
    return redis.Redis.from_url(settings.url, password=settings.password.get_secret_value(), decode_responses=True)


def test_a_view_without_a_file_is_dropped_from_every_sink_on_request(shop: Pipeline):
    settings = shop.settings
    file = settings.views / "gone.sql"
    refused = shop.run("drop", "gone")
    assert refused.returncode == 2
    assert "VIEW_DECLARED" in refused.stderr
    assert shop.run("drop", "public.orders").returncode == 2
    text = file.read_text()
    file.unlink()
    try:
        wait_until(lambda: "tables or views have changed" in shop.apply.text(), what="the file's end", timeout_s=60)
        shop.catch_up()
        assert json.loads(shop.run("status", "--json").stdout)["undeclared"] == ["gone"]

        dropped = shop.run("drop", "gone")

        assert dropped.returncode == 0, dropped.stderr
        assert "removed from delta, search, cache, kafka" in " ".join(dropped.stderr.split())
        assert json.loads(shop.run("status", "--json").stdout)["undeclared"] == []
        assert not Path(settings.delta_root, "gone").exists()
        assert requests.get(f"{settings.search.url}/{index_alias(settings.pipeline, 'gone')}*", timeout=30).json() == {}
        assert [*cache_of(shop).scan_iter(match=f"{settings.pipeline}*gone*")] == []
        assert view_topic(settings.pipeline, "gone") not in Topics(settings.kafka).existing()
        assert shop.run("drop", "gone").returncode == 3
    finally:
        file.write_text(text)
    wait_until(lambda: _count(shop, "gone") is not None, what="the view that is declared again", timeout_s=60)
    shop.catch_up()
    assert all(proof["holds"] for proof in shop.prove())


def _count(shop: Pipeline, view: str) -> int | None:
    asked = shop.run("query", "--format", "json", f"SELECT count(*) AS n FROM {view}")
    return int(json.loads(asked.stdout)[0]["n"]) if asked.returncode == 0 else None


def change(admin: psycopg.Connection[Any], name: str) -> None:
    admin.execute("UPDATE public.orders SET customer = %s, paid = NOT paid WHERE id %% 9 = 0", [name])


def test_all_views_are_rebuilt_those_below_first(shop: Pipeline):
    change(shop.admin, "before all")
    rebuilt = shop.run("rebuild", "--all", "--prove")

    assert rebuilt.returncode == 0, rebuilt.stderr + shop.apply.text()[-5000:]
    order = [line.split()[1] for line in rebuilt.stderr.splitlines() if line.startswith("rebuilt")]
    assert set(order) >= set(VIEWS)
    assert order.index("public.order_items") < order.index("baskets") < order.index("large")
    assert shop.run("rebuild").returncode == 2
