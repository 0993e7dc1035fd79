"""Capture and apply killed (SIGKILL) at random moments under load; afterwards every copy equals Postgres, exactly."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from cdc.settings import Settings
from tests.support.capturing import folded, table_messages
from tests.support.load import Load
from tests.support.pipelines import VIEWS, Stores, fill, pipeline_on
from tests.support.servers import PostgresServer

CAPTURE_KILLS = 20
APPLY_KILLS = 10
SEED = 20261118
QUERIES = {
    "basket": "-- sinks: search, cache\nSELECT o.id, o.amount, count(i.line) AS items, sum(i.quantity) AS pieces "
    "FROM orders o LEFT JOIN order_items i ON i.order_id = o.id GROUP BY o.id, o.amount",
    "large_baskets": "-- sinks: delta, cache\nSELECT id, pieces FROM basket WHERE pieces > 2",
}


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_thirty_kills(postgres: PostgresServer, stores: Stores, tmp_path: Path) -> None:
    random = Random(SEED)
    with pipeline_on(postgres, stores, tmp_path, {**VIEWS, **QUERIES}) as pipeline:
        fill(pipeline.admin)
        with Load(pipeline.settings, SEED) as load:
            pipeline.start()
            kills = ["capture"] * CAPTURE_KILLS + ["apply"] * APPLY_KILLS
            random.shuffle(kills)
            for victim in kills:
                command = pipeline.capture if victim == "capture" else pipeline.apply
                # The moment is the test's input: anywhere in a start, a snapshot, a batch or a pause.
                threading.Event().wait(random.uniform(0.2, 1.5) if victim == "capture" else random.uniform(2.0, 8.0))
                assert command.alive, command.text()[-3000:]
                command.kill()
                command.start()
        assert load.transactions > 1000
        pipeline.catch_up()
        _topics_equal(pipeline.settings, pipeline.admin)
        pipeline.require_equal()


def _topics_equal(settings: Settings, admin: psycopg.Connection[Any]) -> None:
    for table in ("orders", "order_items", "events", "documents"):
        events: list[dict[str, Any]] = []
        state = folded(table_messages(settings, "public", table), events.append)
        positions = [(event["source"]["commit_lsn"], event["source"]["ordinal"]) for event in events]
        streamed = [position for position in positions if position[1] > 0]
        assert len(streamed) == len(set(streamed)), f"{table}: a change is there twice"
        assert len(state) == admin.execute(f"SELECT count(*) FROM public.{table}").fetchone()[0]
    amounts = dict(admin.execute("SELECT id, amount::text FROM public.orders").fetchall())
    captured = folded(table_messages(settings, "public", "orders"))
    assert {after["id"]: after["amount"] for after in captured.values()} == amounts
