"""View files of a pipeline that runs: written anew, and what apply says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

MANY = 40_000


@contextmanager
def running_shop(
    postgres: PostgresServer, stores: Stores, folder: Path, views: Mapping[str, str]
) -> Iterator[Pipeline]:
    """A pipeline with these views that has caught up, over so many rows that a load takes some batches."""
    with pipeline_on(postgres, stores, folder, views) as made:
        fill(made.admin)
        made.admin.execute(
            "INSERT INTO public.orders SELECT g, 'many', g / 8.0, g %% 2 = 0 FROM generate_series(1001, %s) g", [MANY]
        )
        made.start()
        made.catch_up()
        yield made


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
        lambda: any(wanted.items() <= each.items() for each in events(shop, said)), what=str(wanted), timeout_s=120
    )


def require_equal(shop: Pipeline) -> None:
    shop.catch_up()
    wrong = [proof for proof in shop.prove() if not proof["holds"]]
    assert not wrong, wrong
