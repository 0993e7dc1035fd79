"""A large table's first rows on a real pipeline: loaded without Spark, shown at once, and gone on from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.bulk.load import FOLDER
from jobs.changes import BULK_RECORDS_MAX
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer


@pytest.fixture
def shop(postgres: PostgresServer, stores: Stores, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline that has not begun, over a table that is larger than a batch may be."""
    with pipeline_on(postgres, stores, tmp_path, {"totals": "SELECT count(*) AS orders FROM orders"}) as made:
        fill(made.admin)
        made.admin.execute(
            "INSERT INTO public.orders SELECT g, 'many', g / 8.0, g %% 2 = 0 FROM generate_series(1001, %s) g",
            [1_001 + BULK_RECORDS_MAX],
        )
        yield made


def engine(shop: Pipeline, view: str) -> str:
    return str(DeltaTable(f"{shop.settings.delta_root}/{view}").history(1)[0].get("engineInfo"))


def test_a_large_mirror_is_loaded_without_spark_and_goes_on(shop: Pipeline):
    shop.start()
    shop.catch_up()
    said = [json.loads(line) for line in shop.apply.text().splitlines() if line.startswith("{")]
    [loaded] = [each for each in said if (each["event"], each.get("view")) == ("view replaced", "public.orders")]
    assert loaded["upserts"] > BULK_RECORDS_MAX
    assert not [each for each in said if each["event"] in ("a load is left to spark", "apply starts over")]
    assert "delta-rs" in engine(shop, "public.orders")
    assert not [*(shop.settings.data / FOLDER).rglob("*.arrows")], "nothing stays on disk"

    shop.admin.execute("UPDATE public.orders SET customer = 'another' WHERE id % 1000 = 0")
    shop.admin.execute("DELETE FROM public.orders WHERE id % 1000 = 1")
    shop.catch_up()
    wrong = [proof for proof in shop.prove() if not proof["holds"]]
    assert not wrong, wrong
