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
from deltalake import DeltaTable

from cdc.names import index_alias, view_topic
from cdc.topics import Topics
from tests.support.declared import await_event, batch_beside, gate_loads, held_loads
from tests.support.load import Load
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.processes import Command
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(900)

VIEWS = {
    "paid": "-- sinks: delta, search, cache, kafka\nSELECT id, customer, amount FROM orders WHERE paid",
    # Damage below must not come up by a refresh in full.
    "baskets": "-- sinks: search, cache\n-- max_affected: 100%\n"
    "SELECT o.id, o.amount, count(i.line) AS items FROM orders o LEFT JOIN order_items i ON i.order_id = o.id "
    "GROUP BY o.id, o.amount",
    # All lines of a kind are counted by what changed alone.
    "counted": "SELECT product, count(*) AS lines, sum(quantity) AS pieces FROM order_items GROUP BY product",
    "large": "SELECT id, items FROM baskets WHERE items > 1",
    "gone": "-- sinks: delta, search, cache, kafka\n-- cache.key: {pipeline}/{view}/{generation}/{id}\n"
    "SELECT id, customer FROM orders WHERE id < 50",
}


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with views of all kinds."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("rebuilding"), VIEWS) as made:
        gate_loads(made)
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


def _wrong(shop: Pipeline) -> set[tuple[str, str]]:
    return {(proof["view"], proof["sink"]) for proof in shop.prove() if not proof["holds"]}


def test_views_are_rebuilt_from_the_topics_while_batches_go_on(shop: Pipeline):
    """Neither what the live table holds nor what a query's tables hold has a part in it.

    There are more rows than a twin that falls behind may find affected: in full, it would take over what is damaged.
    """
    shop.admin.execute("INSERT INTO public.orders SELECT g, 'still', 1, true FROM generate_series(5001, 8000) g")
    shop.admin.execute(
        "INSERT INTO public.order_items SELECT g, l, 'x', 1 FROM generate_series(5001, 5010) g, generate_series(1, 3) l"
    )
    shop.catch_up()
    damaged = {"baskets": "id", "paid": "id", "public.order_items": "order_id"}
    for table, column in damaged.items():
        DeltaTable(f"{shop.settings.delta_root}/{table}").delete(f"{column} IN (5001, 5002)")
    assert _wrong(shop) == {(table, "delta") for table in damaged}
    said = len(shop.apply.text())
    with Load(shop.settings, 7, pause_s=0.1), held_loads(shop, "baskets"):
        words = ("rebuild", "baskets", "counted", "--prove")
        proved = Command(shop.config, words, shop.config.parent / "proved.log").start()
        await_event(shop, said, "rebuild loads", view="baskets")
        batch_beside(shop, "baskets", "baskets", "counted")
        assert proved.process is not None
        assert proved.process.wait(300) == 0, proved.text() + shop.apply.text()[said:][-5000:]
        log = shop.apply.text()[said:]
        assert "batch done" in log[log.index("rebuild loads") : log.index("view swapped")]
        assert _wrong(shop) == {("paid", "delta"), ("public.order_items", "delta")}
        rebuilt = shop.run("rebuild", "paid", "public.order_items")
        assert rebuilt.returncode == 0, rebuilt.stderr + shop.apply.text()[said:][-5000:]
    shop.catch_up()
    assert _wrong(shop) == set()


def test_a_rebuild_that_waits_for_another_one_is_told_so(shop: Pipeline):
    said = len(shop.apply.text())
    with held_loads(shop, "baskets"):
        first, second = (
            Command(shop.config, ("rebuild", view), shop.config.parent / f"waits_{view}.log")
            for view in ("baskets", "counted")
        )
        first.start()
        await_event(shop, said, "rebuild loads", view="baskets")
        second.start()
        wait_until(lambda: "waits for the rebuild of baskets" in second.text(), what="to be told")
    for each in (first, second):
        assert each.process is not None
        assert each.process.wait(240) == 0, each.text()


def test_a_table_whose_files_are_gone_is_replaced_in_place(shop: Pipeline):
    shop.catch_up()
    for file in Path(shop.settings.delta_root, "paid").glob("*.parquet"):
        file.unlink()
    said = len(shop.apply.text())
    change(shop.admin, "no file")
    wait_until(lambda: not shop.apply.alive, what="apply to stop at the damage", timeout_s=60)
    assert "DELTA_DAMAGED" in shop.apply.text()[said:]

    rebuilt = shop.run("rebuild", "paid")

    assert rebuilt.returncode == 0, rebuilt.stderr
    shop.start_apply()
    shop.catch_up()
    assert _wrong(shop) == set()


@pytest.mark.parametrize("moment", ["rebuild loads", "view swapped"])
def test_a_rebuild_whose_apply_is_killed_begins_again(shop: Pipeline, moment: str):
    begun = shop.apply.text().count(moment)
    rebuild = Command(shop.config, ("rebuild", "baskets"), shop.config.parent / "rebuild.log").start()
    try:
        wait_until(lambda: shop.apply.text().count(moment) > begun, what=moment, timeout_s=120)
        shop.apply.kill()
        change(shop.admin, moment)
        shop.start_apply()
        assert rebuild.process is not None
        assert rebuild.process.wait(180) == 0, rebuild.text()
    finally:
        rebuild.kill()
    shop.catch_up()
    assert _wrong(shop) == set()
    assert not [*Path(shop.settings.delta_root, "_next").glob("**/_delta_log")]
