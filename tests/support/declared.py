"""View files of a pipeline that runs: written anew, and what apply says of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated import GATE
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

MANY = 40_000
LOOK_S = 0.2
"""Each look parses the log, on the cores that apply runs on."""


@contextmanager
def running_shop(
    postgres: PostgresServer, stores: Stores, folder: Path, views: Mapping[str, str]
) -> Iterator[Pipeline]:
    """A pipeline with these views that has caught up, over so many rows that a load takes some batches."""
    with pipeline_on(postgres, stores, folder, views) as made:
        gate_loads(made)
        fill(made.admin)
        made.admin.execute(
            "INSERT INTO public.orders SELECT g, 'many', g / 8.0, g %% 2 = 0 FROM generate_series(1001, %s) g", [MANY]
        )
        made.start()
        made.catch_up()
        yield made


@contextmanager
def as_declared(shop: Pipeline, views: Mapping[str, str]) -> Iterator[Pipeline]:
    """For one test of a module: what it changed of the declarations is undone afterwards, what was new dropped."""
    yield shop
    if not shop.apply.alive:
        shop.start_apply()
    for file in shop.settings.views.glob("*.sql"):
        if file.stem not in views:
            file.unlink()
    declare(shop, **{name: text for name, text in views.items() if text != _declared(shop, name)})
    shop.catch_up()
    told = wait_until(lambda: _all_shown(shop), what="the module's declarations", timeout_s=240, poll_s=LOOK_S)
    assert told is not None
    for view in sorted({*told["undeclared"], *told["left"]}):
        dropped = shop.run("drop", view)
        assert dropped.returncode == 0, dropped.stderr


def _declared(shop: Pipeline, name: str) -> str | None:
    file = shop.settings.views / f"{name}.sql"
    return file.read_text() if file.exists() else None


def _all_shown(shop: Pipeline) -> dict[str, Any] | None:
    """What `status` says once apply has taken up the files as they are."""
    told: dict[str, Any] = json.loads(shop.run("status", "--json").stdout)
    is_shown = not told["changed"] and all(view["lsn"] is not None and not view["stopped"] for view in told["views"])
    return told if is_shown else None


def gate_loads(shop: Pipeline) -> None:
    """Have apply's loads wait wherever a test holds them (tests.support.gated)."""
    _gate(shop).mkdir()
    shop.apply.module, shop.apply.environment = "tests.support.gated", {GATE: str(_gate(shop))}


@contextmanager
def held_loads(shop: Pipeline, *views: str) -> Iterator[None]:
    """What is loaded for these waits, until a batch has gone beside it or this `with` ends."""
    files = [_gate(shop) / view for view in views]
    for file in files:
        file.touch()
    try:
        yield
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def batches_beside(shop: Pipeline, said: int, loads: Mapping[str, Collection[str]]) -> None:
    """In each of these loads a batch is written to such views; until all are rebuilt.

    Apply may have looked at the folder between two files, and begun with one of them: what it loads now counts.
    """
    left = dict(loads)

    def loading() -> str | None:
        begun = [each["view"] for each in events(shop, said) if each["event"] == "rebuild loads"]
        return begun[-1] if begun and begun[-1] in left else None

    while left:
        load = wait_until(loading, what=f"a load of {[*left]}", timeout_s=240, poll_s=LOOK_S)
        assert load is not None
        batch_beside(shop, load, *left.pop(load))
    for load in loads:
        await_event(shop, said, "view rebuilt", view=load)


def batch_beside(shop: Pipeline, load: str, *written: str) -> None:
    """While a load waits: rows of the tables change, all these views follow; then it is let go."""
    said = len(shop.apply.text())
    shop.admin.execute(
        "INSERT INTO public.orders (id, customer, amount, paid) VALUES (150, 'beside', 1, true) "
        "ON CONFLICT (id) DO UPDATE SET customer = orders.customer || '+', amount = 1, paid = true"
    )
    shop.admin.execute(
        "INSERT INTO public.order_items (line, order_id, product, quantity) VALUES (150, 9, 'beside', 1) "
        "ON CONFLICT (line, order_id) DO UPDATE SET product = 'beside ' || order_items.quantity, "
        "quantity = order_items.quantity + 1"
    )

    def followed() -> bool:
        told = events(shop, said)
        met = {each["view"] for each in told if each["event"] in ("view written", "view refreshed")}
        return met >= {*written} and any(each["event"] == "batch done" for each in told)

    held = [_gate(shop) / view for view in load.split(", ") if (_gate(shop) / view).exists()]
    assert held
    wait_until(followed, what=f"{written} to go on while {load} is loaded", timeout_s=240, poll_s=LOOK_S)
    for file in held:
        file.unlink()


def _gate(shop: Pipeline) -> Path:
    return shop.config.parent / "held"


@pytest.fixture(autouse=True)
def log_of_failures(shop: Pipeline, request: pytest.FixtureRequest) -> Iterator[None]:
    """What apply said of views, for whoever reads a failure."""
    said = len(shop.apply.text())
    yield
    lines = shop.apply.text()[said:].splitlines()
    telling = ("rebuil", "swapped", "beside", "changed", "starts over", "left out", "stopped alone", "replaced")
    request.node.add_report_section(
        "call", "apply", "\n".join(line for line in lines if any(each in line for each in telling))
    )


def declare(shop: Pipeline, **texts: str) -> int:
    """Write files; where the log of apply ended before."""
    said = len(shop.apply.text())
    for name, text in texts.items():
        (shop.settings.views / f"{name}.sql").write_text(text)
    return said


def events(shop: Pipeline, said: int) -> list[dict[str, Any]]:
    """What apply has said since."""
    lines = shop.apply.text()[said:].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def await_event(shop: Pipeline, said: int, event: str, **fields: str) -> None:
    """Until apply has said it."""
    wanted = {"event": event, **fields}
    wait_until(
        lambda: any(wanted.items() <= each.items() for each in events(shop, said)),
        what=str(wanted),
        timeout_s=240,
        poll_s=LOOK_S,
    )


def require_equal(shop: Pipeline) -> None:
    shop.catch_up()
    wrong = [proof for proof in shop.prove() if not proof["holds"]]
    assert not wrong, wrong
