"""View files that change on a real pipeline: loaded beside the former declaration's rows, shown at one position."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

import afterimage
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
    "other": "-- sinks: delta, cache\nSELECT id, customer FROM orders WHERE id < 200",
    "below": "-- sinks: search\nSELECT line, order_id, product, quantity FROM order_items WHERE quantity > 0",
    "above": "-- sinks: cache\nSELECT order_id, count(*) AS lines, sum(quantity) AS n FROM below GROUP BY order_id",
    "shares": "SELECT order_id, 12 / sum(quantity) AS share FROM order_items WHERE order_id > 9000 GROUP BY order_id",
}
CHANGED = {
    "paid": "-- sinks: delta, search, cache\nSELECT id, amount * 2 AS twice, paid FROM orders WHERE NOT paid",
    "counted": "-- sinks: cache\nSELECT o.paid, i.product, count(*) AS lines, sum(i.quantity) AS pieces\n"
    "FROM order_items i JOIN orders o ON o.id = i.order_id\n"
    "WHERE product IS NOT NULL AND paid IS NOT NULL GROUP BY o.paid, i.product",
}


@pytest.fixture(scope="module")
def running(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with views of all kinds, over so many rows that a load takes some batches."""
    with running_shop(postgres, stores, tmp_path_factory.mktemp("changed"), VIEWS) as made:
        yield made


@pytest.fixture
def shop(running: Pipeline) -> Iterator[Pipeline]:
    """The same for each test, with VIEWS declared."""
    with as_declared(running, VIEWS) as made:
        yield made


class Reader:
    """Asks for a view's rows again and again; use in a `with`."""

    def __init__(self, shop: Pipeline, sql: str) -> None:
        self._pipeline = afterimage.open(shop.config)
        self._sql = sql
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: list[tuple[tuple[str, ...], frozenset[bool]]] = []
        self.error: BaseException | None = None

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                table = self._pipeline.at().query(self._sql).arrow()
                self.seen.append((tuple(table.column_names), frozenset(table.column("paid").to_pylist())))
        except BaseException as error:  # noqa: BLE001
            self.error = error


def test_changed_views_are_loaded_beside_while_the_former_ones_go_on(shop: Pipeline):
    with (
        Load(shop.settings, 7, pause_s=0.1),
        Reader(shop, "SELECT * FROM paid") as reader,
        held_loads(shop, "paid", "counted"),
    ):
        wait_until(lambda: reader.seen, what="a reader")
        said = declare(shop, **CHANGED)
        await_event(shop, said, "rebuild loads")
        status = json.loads(shop.run("status", "--json").stdout)
        assert set(status["changed"]) == {"counted", "paid"}
        explained = json.loads(shop.run("explain", "--json", "paid").stdout)
        assert explained["former_sql"] != explained["postgres_sql"]
        proofs = shop.prove("paid", "counted")
        assert all(proof["holds"] for proof in proofs), proofs
        batches_beside(shop, said, {view: ("other", view) for view in ("paid", "counted")})
        wait_until(lambda: len({names for names, _ in reader.seen}) > 1, what="a reader of the new rows", timeout_s=120)
    told = events(shop, said)
    for view in ("paid", "counted"):
        loads, swapped = (
            next(n for n, each in enumerate(told) if each["event"] == event and each.get("view") == view)
            for event in ("rebuild loads", "view swapped")
        )
        between = told[loads:swapped]
        written = {each["view"] for each in between if each["event"] in ("view written", "view refreshed")}
        assert {"other", view} <= written, "all views, the former declaration among them, went on"
        assert not [each for each in between if each["event"] == "view replaced"]
    assert {names for names, _ in reader.seen} == {("id", "customer", "paid"), ("id", "twice", "paid")}
    assert all(paid == {"customer" in names} for names, paid in reader.seen)
    require_equal(shop)
    assert json.loads(shop.run("status", "--json").stdout)["changed"] == []


def test_views_that_read_each_other_are_shown_at_one_position_and_wait_for_each_other(shop: Pipeline):
    """The file of a view that reads a column which is gone is wrong: all go on, until it is mended."""
    said = declare(shop, below="-- sinks: search, cache\nSELECT line, order_id, quantity * 2 AS twice FROM order_items")
    await_event(shop, said, "view left out")
    require_equal(shop)
    problems = json.loads(shop.run("status", "--json").stdout)["problems"]
    assert any("above" in problem for problem in problems), problems
    assert "quantity" in columns(shop, "below")

    said = declare(shop, above="-- sinks: cache\nSELECT order_id, max(twice) AS most FROM below GROUP BY order_id")
    with Load(shop.settings, 8, pause_s=0.1):
        await_event(shop, said, "view rebuilt", view="above, below")

    swapped = [each for each in events(shop, said) if each["event"] == "view swapped"]
    assert {each["view"] for each in swapped} == {"above", "below"}
    assert len({each["lsn"] for each in swapped}) == 1
    assert not [each for each in events(shop, said) if each["event"] == "view replaced" and each["sink"] == "delta"]
    require_equal(shop)
    assert columns(shop, "below") == ["line", "order_id", "twice"]
    assert columns(shop, "above") == ["order_id", "most"]


def columns(shop: Pipeline, view: str) -> list[str]:
    names: list[str] = afterimage.open(shop.config).at().table(view).arrow().column_names
    return names


WRONG = {
    "other": "SELECT id, 100 / (id - id) AS never FROM orders",
    "counted": "-- key: paid\nSELECT o.paid, o.id FROM orders o JOIN order_items i ON i.order_id = o.id WHERE o.paid",
}


@pytest.mark.parametrize("view", WRONG)
def test_what_cannot_be_loaded_leaves_the_former_declaration_and_is_told(shop: Pipeline, view: str):
    file = shop.settings.views / f"{view}.sql"
    before = file.read_text()
    said = declare(shop, **{view: WRONG[view]})
    await_event(shop, said, "changed view not shown", view=view)

    status = shop.run("status", "--json")
    assert status.returncode == 1
    told = json.loads(status.stdout)
    assert view in told["changed"]
    assert any(f"the changed file of {view} is not shown" in problem for problem in told["problems"]), told["problems"]
    require_equal(shop)

    said = declare(shop, **{view: before})
    await_event(shop, said, "tables or views have changed")
    require_equal(shop)
    told = json.loads(shop.run("status", "--json").stdout)
    assert (told["changed"], told["problems"]) == ([], [])


def test_another_edit_begins_another_load_and_an_edit_back_ends_it(shop: Pipeline):
    file = shop.settings.views / "paid.sql"
    before = file.read_text()
    began = said = declare(shop, paid="SELECT id, customer AS one FROM orders")
    await_event(shop, said, "rebuild loads", view="paid")
    said = declare(shop, paid="SELECT id, customer AS two FROM orders")
    await_event(shop, said, "rebuild loads", view="paid")
    said = declare(shop, paid=before)
    await_event(shop, said, "tables or views have changed")
    require_equal(shop)
    told = events(shop, began)
    loads, shown = ([each for each in told if each["event"] == event] for event in ("rebuild loads", "view rebuilt"))
    assert len(loads) - 2 <= len(shown), "only what was shown before it was edited back is loaded back"

    said = declare(shop, paid="-- sinks: search, cache\nSELECT id, customer AS three FROM orders")
    asked = shop.run("rebuild", "paid", "--prove")
    assert asked.returncode == 0, asked.stderr + shop.apply.text()[said:][-3000:]
    require_equal(shop)

    said = declare(shop, paid=before)
    await_event(shop, said, "view rebuilt", view="paid")
    assert columns(shop, "paid") == ["id", "customer", "paid"]
    require_equal(shop)


def test_what_fails_is_mended_by_another_declaration(shop: Pipeline):
    shop.admin.execute("INSERT INTO public.order_items VALUES (9001, 1, 'x', 5), (9001, 2, 'x', 7), (9002, 1, 'x', 1)")
    require_equal(shop)
    said = len(shop.apply.text())
    shop.admin.execute("UPDATE public.order_items SET quantity = -5 WHERE (order_id, line) = (9001, 2)")
    await_event(shop, said, "view stopped alone", view="shares")

    said = declare(
        shop,
        shares="SELECT order_id, 12 / sum(quantity) AS share FROM order_items WHERE order_id > 9000 GROUP BY order_id\n"
        "HAVING sum(quantity) <> 0",
    )
    await_event(shop, said, "view rebuilt", view="shares")

    require_equal(shop)
    shop.admin.execute("DELETE FROM public.order_items WHERE order_id > 9000")


@pytest.mark.parametrize("moment", ["rebuild loads", "view swapped"])
def test_whoever_is_killed_leaves_one_declaration_or_the_other(shop: Pipeline, moment: str):
    number = "one" if moment == "rebuild loads" else "two"
    said = declare(
        shop,
        paid=f"-- sinks: delta, search, cache\nSELECT id, paid, customer AS {number} FROM orders WHERE paid",
        above=f"-- sinks: cache\nSELECT order_id, min(twice) AS {number} FROM below GROUP BY order_id",
        below=f"-- sinks: search, cache\nSELECT line, order_id, quantity * 2 AS twice, product AS {number}\n"
        "FROM order_items",
    )
    with Load(shop.settings, 9, pause_s=0.1):
        await_event(shop, said, moment)
        shop.apply.kill()
        held = columns(shop, "above"), columns(shop, "below")
        assert (number in held[0]) == (number in held[1]), "the ledger names both or none"
        shop.start_apply()
    shop.catch_up()
    wait_until(
        lambda: json.loads(shop.run("status", "--json").stdout)["changed"] == [], what="all shown", timeout_s=120
    )
    require_equal(shop)
    assert all(number in columns(shop, view) for view in ("paid", "above", "below"))
