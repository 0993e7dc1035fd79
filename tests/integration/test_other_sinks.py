"""View files whose header names a sink more or less, or another option: what lacks rows is loaded alone, and beside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from cdc.names import index_alias
from tests.support.declared import (
    as_declared,
    await_event,
    declare,
    events,
    log_of_failures,  # noqa: F401
    require_equal,
    running_shop,
)
from tests.support.load import Load
from tests.support.pipelines import Pipeline, Stores
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

PAID = "SELECT id, customer, paid FROM orders WHERE paid"
COUNTED = "SELECT product, count(*) AS lines FROM order_items WHERE product IS NOT NULL GROUP BY product"
NAMED = "SELECT id, customer FROM orders WHERE id < 2000"
AS_KEYWORD = '-- search.mapping: {"customer": {"type": "keyword"}}'
VIEWS = {
    "paid": f"-- sinks: delta, search, cache\n{PAID}",
    "counted": COUNTED,
    "named": f"-- sinks: search\n{NAMED}",
}
OTHER = {
    "paid": f"-- sinks: delta, search, cache\n{AS_KEYWORD}\n{PAID}",
    "counted": f"-- sinks: delta, cache\n-- cache.value: hash\n{COUNTED}",
    "named": f"-- sinks: search\n{AS_KEYWORD}\n{NAMED}",
}


@pytest.fixture(scope="module")
def running(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with views in several sinks, over so many rows that a load takes some batches."""
    with running_shop(postgres, stores, tmp_path_factory.mktemp("other"), VIEWS) as made:
        yield made


@pytest.fixture
def shop(running: Pipeline) -> Iterator[Pipeline]:
    """The same for each test, with VIEWS declared."""
    with as_declared(running, VIEWS) as made:
        yield made


def searched(shop: Pipeline, view: str) -> tuple[str, str, int]:
    """The index behind the alias, the type of `customer` there, and how many documents a search finds."""
    alias = f"{shop.settings.search.url}/{index_alias(shop.settings.pipeline, view)}"
    [(index, found)] = requests.get(f"{alias}/_mapping", timeout=30).json().items()
    count: int = requests.get(f"{alias}/_count", timeout=30).json()["count"]
    return index, found["mappings"]["properties"]["customer"]["type"], count


class Searches:
    """Searches a view again and again; use in a `with`. What they found, in order, and the fewest documents."""

    def __init__(self, shop: Pipeline, view: str) -> None:
        self._look = lambda: searched(shop, view)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.found: list[tuple[str, str]] = []
        self.fewest = 1

    def __enter__(self) -> Searches:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                index, kind, count = self._look()
                self.fewest = min(self.fewest, count)
                if (index, kind) not in self.found[-1:]:
                    self.found.append((index, kind))
        except BaseException as error:  # noqa: BLE001
            self._error = error


def swaps(told: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["view"], each["sink"]) for each in told if each["event"] == "view swapped"}


def problems(shop: Pipeline) -> list[str]:
    found: list[str] = json.loads(shop.run("status", "--json").stdout)["problems"]
    return found


def test_only_what_lacks_rows_is_loaded_and_beside(shop: Pipeline):
    with Load(shop.settings, 7, pause_s=0.1), Searches(shop, "paid") as paid, Searches(shop, "named") as named:
        wait_until(lambda: paid.found and named.found, what="searches")
        said = declare(shop, **OTHER)
        for view in VIEWS:
            await_event(shop, said, "view rebuilt", view=view)
        wait_until(lambda: len(paid.found) > 1 and len(named.found) > 1, what="searches of the new indexes")
    for searches in (paid, named):
        assert [kind for _, kind in searches.found] == ["text", "keyword"], "the former index, then the new one"
        assert searches.fewest > 0
    told = events(shop, said)
    assert swaps(told) == {("paid", "search"), ("named", "search"), ("counted", "cache")}
    assert not [each for each in told if each["event"] == "view replaced"], "no batch waited"
    for view, others in (("paid", {"counted", "named"}), ("counted", {"paid", "named"})):
        swapped = next(n for n, each in enumerate(told) if (each["event"], each.get("view")) == ("view swapped", view))
        loads = max(n for n, each in enumerate(told[:swapped]) if each["event"] == "rebuild loads")
        between = [each for each in told[loads:swapped] if each["event"] in ("view written", "view refreshed")]
        assert others & {each["view"] for each in between}, "the others went on"
    kept = {(each["view"], each["sink"]) for each in told if each["event"] == "view written"}
    assert {("paid", "delta"), ("paid", "search"), ("paid", "cache")} <= kept, "and so did the view's own sinks"
    require_equal(shop)
    proved = {(proof["view"], proof["sink"]) for proof in shop.prove()}
    assert ("counted", "cache") in proved
    assert problems(shop) == []


def test_a_sink_less_loads_nothing_and_a_sink_again_goes_on_from_where_it_was_left(shop: Pipeline):
    said = declare(shop, paid=f"-- sinks: delta, cache\n{PAID}")
    await_event(shop, said, "tables or views have changed")
    require_equal(shop)
    assert not [each for each in events(shop, said) if each["event"] in ("view replaced", "rebuild loads")]
    assert left(shop) == {"paid": ["search"]}

    shop.admin.execute("UPDATE public.orders SET customer = 'another' WHERE id < 20")
    said = declare(shop, paid=VIEWS["paid"])
    require_equal(shop)
    told = events(shop, said)
    assert not [each for each in told if each["event"] in ("view replaced", "rebuild loads")]
    assert ("view written", "search") in {(each["event"], each.get("sink")) for each in told}
    assert left(shop) == {}


def left(shop: Pipeline) -> dict[str, list[str]]:
    told = json.loads(shop.run("status", "--json").stdout)
    assert told["undeclared"] == []
    found: dict[str, list[str]] = told["left"]
    return found


def test_a_sink_that_the_file_names_no_more_is_told_and_dropped_alone(shop: Pipeline):
    alias = f"{shop.settings.search.url}/{index_alias(shop.settings.pipeline, 'paid')}"
    refused = shop.run("drop", "paid")
    assert refused.returncode == 2
    assert "VIEW_DECLARED" in refused.stderr

    said = declare(shop, paid=f"-- sinks: cache\n{PAID}")
    await_event(shop, said, "tables or views have changed")
    shop.admin.execute("UPDATE public.orders SET customer = 'another' WHERE id < 20")
    require_equal(shop)
    assert left(shop) == {"paid": ["delta", "search"]}
    screen = " ".join(shop.run("status").stdout.split())
    assert "paid is not kept in delta, search any more" in screen
    assert "`afterimage drop paid`" in screen
    assert requests.get(alias, timeout=30).status_code == 200

    dropped = shop.run("drop", "paid")
    assert dropped.returncode == 0, dropped.stderr
    assert "removed from delta, search" in " ".join(dropped.stderr.split())
    assert left(shop) == {}
    assert requests.get(alias, timeout=30).status_code == 404
    assert not Path(shop.settings.delta_root, "paid").exists()
    assert shop.run("drop", "paid").returncode == 2
    shop.admin.execute("UPDATE public.orders SET customer = 'a third' WHERE id < 20")
    require_equal(shop)
    assert {proof["sink"] for proof in shop.prove("paid")} == {"cache"}

    said = declare(shop, paid=VIEWS["paid"])
    await_event(shop, said, "view rebuilt", view="paid")
    require_equal(shop)
    assert {proof["sink"] for proof in shop.prove("paid")} == {"delta", "search", "cache"}
    assert left(shop) == {}


def test_what_the_store_refuses_leaves_the_former_index_and_is_told(shop: Pipeline):
    before = searched(shop, "paid")
    refused = OTHER["paid"].replace('"keyword"', '"no such type"')
    said = declare(shop, paid=refused)
    await_event(shop, said, "changed view not shown", view="paid")
    assert any("the changed file of paid is not shown" in each for each in problems(shop))
    shop.admin.execute("UPDATE public.orders SET customer = 'another' WHERE id < 20")
    require_equal(shop)
    assert searched(shop, "paid")[:2] == before[:2]

    said = declare(shop, paid=OTHER["paid"])
    await_event(shop, said, "view rebuilt", view="paid")
    assert searched(shop, "paid")[1] == "keyword"
    require_equal(shop)
    assert problems(shop) == []


def test_whoever_asks_for_a_rebuild_has_all_of_the_view_anew(shop: Pipeline):
    shop.apply.stop()
    said = declare(shop, counted=OTHER["counted"])
    shop.start_apply()
    asked = shop.run("rebuild", "counted", "--prove")
    assert asked.returncode == 0, asked.stderr + shop.apply.text()[said:][-3000:]
    await_event(shop, said, "view swapped", view="counted", sink="cache")
    require_equal(shop)


@pytest.mark.parametrize("moment", ["rebuild loads", "view swapped"])
def test_whoever_is_killed_leaves_each_sink_as_it_was_or_as_it_is_to_be(shop: Pipeline, moment: str):
    said = declare(shop, paid=f"-- sinks: delta, search, cache\n{AS_KEYWORD}\n-- cache.value: hash\n{PAID}")
    with Load(shop.settings, 9, pause_s=0.1):
        await_event(shop, said, moment)
        shop.apply.kill()
        said = len(shop.apply.text())
        shop.start_apply()
    shop.catch_up()
    wait_until(
        lambda: json.loads(shop.run("status", "--json").stdout)["changed"] == [], what="all shown", timeout_s=120
    )
    assert not [each for each in events(shop, said) if each["event"] == "view replaced"]
    assert searched(shop, "paid")[1] == "keyword"
    require_equal(shop)
