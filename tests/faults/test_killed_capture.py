"""Capture alone, killed (SIGKILL) under load on the Postgres under test; afterwards its topics are the tables."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from cdc.settings import Kafka, Settings
from tests.support.capturing import RunningCapture, folded, insert_lsn, table_messages
from tests.support.load import Load
from tests.support.processes import Command, write_config

KILLS = 4
SEED = 14151718
TABLES = {"orders": "id", "order_items": "order_id", "events": "id"}


def test_killed_four_times_and_nothing_is_lost_or_doubled(
    source: Settings, admin: psycopg.Connection[Any], kafka: Any, tmp_path: Path
) -> None:
    settings = source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})
    random = Random(SEED)
    admin.execute("INSERT INTO public.orders SELECT g, 'c' || g, g, true FROM generate_series(1, 2000) g")
    capture = Command(write_config(settings, tmp_path), ("capture",), tmp_path / "capture.log")
    try:
        with Load(settings, SEED):
            for _ in range(KILLS):
                capture.start()
                # The moment is the test's input: anywhere in a start, the snapshot or a batch.
                threading.Event().wait(random.uniform(1.5, 3.5))
                assert capture.alive, capture.text()[-3000:]
                capture.kill()
            capture.start()
        RunningCapture(settings).wait_for(insert_lsn(admin))
    finally:
        capture.stop()
    for table, column in TABLES.items():
        events: list[dict[str, Any]] = []
        state = folded(table_messages(settings, "public", table), events.append)
        positions = [(event["source"]["commit_lsn"], event["source"]["ordinal"]) for event in events]
        streamed = [position for position in positions if position[1] > 0]
        assert len(streamed) == len(set(streamed)), f"{table}: a change is there twice"
        found = admin.execute(f"SELECT {column}, count(*) FROM public.{table} GROUP BY 1").fetchall()
        counted: dict[int, int] = {}
        for after in state.values():
            counted[after[column]] = counted.get(after[column], 0) + 1
        assert counted == dict(found), table
