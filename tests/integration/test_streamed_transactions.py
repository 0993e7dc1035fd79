"""Transactions that Postgres sends in pieces before they commit, against real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.postgres import connect
from cdc.settings import Kafka, Settings
from tests.support.capturing import folded, insert_lsn, running_capture, table_messages
from tests.support.large import run_large_transaction, with_small_work_memory
from tests.support.wait import wait_until

FILL = "INSERT INTO public.orders SELECT g, repeat(md5(g::text), 10), 1 FROM generate_series(%s::int, %s::int) g"


@pytest.fixture
def settings(source: Settings, admin: psycopg.Connection[Any], kafka: Any) -> Settings:
    with_small_work_memory(source, admin)
    capture = source.capture.model_copy(update={"spill_bytes": 100_000})
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2), "capture": capture})


@pytest.fixture
def other(settings: Settings) -> Any:
    """A second session of the application."""
    assert settings.source.admin is not None
    with connect(settings.source, settings.source.admin) as connection:
        yield connection


def ids(connection: Any) -> list[int]:
    return [row[0] for row in connection.execute("SELECT id FROM public.orders ORDER BY id").fetchall()]


def captured_ids(settings: Settings) -> list[int]:
    """The ids that the topic holds; each change is there once."""
    positions: list[tuple[int, int]] = []
    state = folded(
        table_messages(settings, "public", "orders"),
        lambda event: positions.append((event["source"]["commit_lsn"], event["source"]["ordinal"])),
    )
    assert len(positions) == len(set(positions))
    return sorted(json.loads(key)["id"] for key in state)


def streamed(connection: Any, settings: Settings) -> int:
    """How many pieces Postgres has sent."""
    query = "SELECT stream_count FROM pg_stat_replication_slots WHERE slot_name = %s"
    row = connection.execute(query, [settings.slot]).fetchone()
    return int(row[0]) if row else 0


def test_small_transactions_flow_while_a_large_one_is_open(settings: Settings, admin: Any, other: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        with other.transaction():
            other.execute(FILL, [1, 2000])
            admin.execute("INSERT INTO public.orders VALUES (9001, 'small', 1)")
            capture.wait_for(insert_lsn(admin))
            assert captured_ids(settings) == [9001]
            other.execute("UPDATE public.orders SET customer = customer || 'x' WHERE id <= 500")
            # What has been read of it is on disk, and nothing of it in the topics.
            wait_until(lambda: streamed(admin, settings), what="pieces to be sent")
        capture.wait_for(insert_lsn(admin))
        assert captured_ids(settings) == ids(admin)
        assert list((settings.data / "spool").iterdir()) == []


def test_a_rolled_back_savepoint_leaves_nothing_not_even_a_column(settings: Settings, admin: Any, other: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        with other.transaction():
            other.execute(FILL, [1, 500])
            with other.transaction(force_rollback=True):
                other.execute(FILL, [501, 1000])
                other.execute("ALTER TABLE public.orders ADD COLUMN more text")
                other.execute(FILL, [1001, 1500])
                with other.transaction():
                    other.execute("UPDATE public.orders SET more = 'x' WHERE id % 2 = 0")
            with other.transaction():
                other.execute(FILL, [2001, 2500])
            other.execute("DELETE FROM public.orders WHERE id % 3 = 0")
        with other.transaction(force_rollback=True):
            other.execute(FILL, [3001, 3500])
        admin.execute(FILL, [4001, 4003])
        capture.wait_for(insert_lsn(admin))
        wait_until(lambda: streamed(admin, settings), what="Postgres to count the pieces")
        assert captured_ids(settings) == ids(admin)


def test_a_column_added_in_a_large_transaction(settings: Settings, admin: Any, other: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        with other.transaction():
            other.execute(FILL, [1, 500])
            other.execute("ALTER TABLE public.orders ADD COLUMN more text")
            other.execute("UPDATE public.orders SET more = 'x'")
        admin.execute("INSERT INTO public.orders VALUES (9001, 'small', 1, true, now(), 'y')")
        capture.wait_for(insert_lsn(admin))
        state = folded(table_messages(settings, "public", "orders"))
        assert {after["more"] for after in state.values()} == {"x", "y"}
        assert len(state) == 501


def test_a_capture_that_ends_amid_a_large_transaction_starts_clean(settings: Settings, admin: Any, other: Any) -> None:
    with other.transaction():
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
            other.execute(FILL, [1, 2000])
            wait_until(lambda: streamed(admin, settings), what="pieces to be sent")
            admin.execute("INSERT INTO public.orders VALUES (9001, 'small', 1)")
            capture.wait_for(insert_lsn(admin))
        with running_capture(settings) as capture:
            other.execute(FILL, [3001, 4000])
            capture.wait_for(insert_lsn(admin))
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        assert captured_ids(settings) == ids(admin)


def test_a_capture_killed_amid_a_large_transaction_publishes_it_once(settings: Settings, tmp_path: Path) -> None:
    """`make test-large` does the same with two gigabytes."""
    figures = run_large_transaction(settings, tmp_path, 80)
    assert figures.spool_mb > 40
    assert figures.parts > 0
    assert figures.peak_rss_mb < 300
