"""Tables read in chunks while they change: the topics end equal to the tables, and nothing is read twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.backfill import Key
from cdc.errors import TransientError
from cdc.names import quote_ident
from cdc.postgres import connect
from cdc.progress import Kind, Progress
from cdc.progress_log import ProgressLog
from cdc.settings import Kafka, Settings, Snapshot
from tests.support.capturing import folded, insert_lsn, read_topic, running_capture, table_messages
from tests.support.load import Load
from tests.support.processes import Command, json_of, run_command, write_config
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE
from tests.support.wait import wait_until

LAST = 400
AHEAD_CHUNKS = 8
"""More than readers may be ahead by of what is in the topic."""
CHUNKED = Snapshot(chunked_above_bytes=0, chunk_rows=10, workers=3)


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2), "snapshot": CHUNKED})


def slowed(settings: Settings, rows_per_s: int, **limits: Any) -> Settings:
    return settings.model_copy(update={"snapshot": CHUNKED.model_copy(update={"rows_per_s": rows_per_s, **limits})})


def rows(connection: Any, schema: str, table: str, columns: tuple[str, ...]) -> set[tuple[str | None, ...]]:
    listed = ", ".join(f"{quote_ident(column)}::text" for column in columns)
    source = f"{quote_ident(schema)}.{quote_ident(table)}"
    return set(connection.execute(f"SELECT {listed} FROM {source}").fetchall())


def captured(settings: Settings, schema: str, table: str, columns: tuple[str, ...]) -> set[tuple[str | None, ...]]:
    state = folded(table_messages(settings, schema, table))
    return {tuple(None if after[name] is None else str(after[name]) for name in columns) for after in state.values()}


def require_equal(settings: Settings, connection: Any) -> None:
    for schema, table, columns in (
        ("public", "orders", ("id", "customer", "amount")),
        ("public", "order_items", ("line", "order_id", "product", "quantity")),
        ("public", "events", ("id", "day", "note")),
        (HOSTILE_SCHEMA, HOSTILE_TABLE, ('Key " 1', "select", "a.b`c", "é %s {}")),
    ):
        assert captured(settings, schema, table, columns) == rows(connection, schema, table, columns), table


def records(settings: Settings) -> list[Progress]:
    return [
        Progress.from_bytes(message.value()) for message in read_topic(settings, f"{settings.pipeline}._progress", 1)
    ]


def test_tables_are_read_in_chunks_while_everything_changes(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'before ' || g, g FROM generate_series(1, 600) g")
    admin.execute("INSERT INTO public.order_items SELECT g, g % 4, 'p', g % 3 FROM generate_series(1, 100) g")
    with Load(settings, seed=3, pause_s=0.01) as load, running_capture(settings) as capture:
        capture.wait_for(0, 240)
        boundary = records(settings)[-1]
        assert load.transactions > 50
        capture.wait_for(insert_lsn(admin), 240)
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin), 240)
        require_equal(settings, admin)
    assert boundary.is_boundary
    chunked = [record for record in records(settings) if record.backfills]
    assert len(chunked) > 5
    assert {record.kind for record in chunked} == {Kind.SNAPSHOT}


def test_a_killed_capture_reads_no_finished_chunk_again(settings: Settings, admin: Any, tmp_path: Path) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'before', g FROM generate_series(1, 900) g")
    config = write_config(slowed(settings, 300), tmp_path)
    capture = Command(config, ("capture",), tmp_path / "capture.log").start()
    with Reading(settings) as reading:
        for number in range(2):
            reading.wait_further()
            capture.kill()
            admin.execute(f"UPDATE public.orders SET customer = 'between' WHERE id % 10 = {number}")
            admin.execute(f"DELETE FROM public.orders WHERE id % 10 = {number + 5}")
            capture.start()
        reading.wait_further()
    capture.stop()
    with running_capture(settings) as running:
        running.wait_for(insert_lsn(admin))
        require_equal(settings, admin)
    read = [key for key, op in events(settings, "orders") if op == "r"]
    assert len(read) == len(set(read)) > 700
    done = [left.done for record in records(settings) for left in record.backfills if left.table == "orders"]
    assert [int(key[0]) for key in done if key] == sorted(int(key[0]) for key in done if key)


def test_a_commit_that_the_log_has_and_nobody_sees_yet_is_not_undone(settings: Settings, admin: Any) -> None:
    """The race of plain watermarks: the log brings a commit before the chunk is read, and the chunk has the old row."""
    admin.execute("INSERT INTO public.orders SELECT g, 'old', g FROM generate_series(1, %s) g", [LAST])
    admin.execute("SET synchronous_commit = local")
    with running_capture(slowed(settings, 20)) as capture, standby_missing(admin), Reading(settings) as reading:
        reading.wait_further()
        with hanging_commit(settings, f"UPDATE public.orders SET customer = 'new' WHERE id > {LAST - 2}"):
            reading.wait_further()
            read_to = int(reading.seen[-1][0])
            assert read_to < LAST - 10 * AHEAD_CHUNKS, "the last chunk is read after the commit is in the log"
            progress = capture.wait_for(insert_lsn(admin), 240)
            seen = admin.execute("SELECT customer FROM public.orders WHERE id = %s", [LAST]).fetchone()[0]
            state = folded(table_messages(settings, "public", "orders"))
    assert not progress.backfills
    assert seen == "old", "the transaction was not visible while all chunks were read"
    assert state[f'{{"id":{LAST}}}']["customer"] == "new"
    assert len(state) == LAST
    require_equal(settings, admin)


class Reading:
    """Watches how far the table of orders is."""

    def __init__(self, settings: Settings) -> None:
        self._log = ProgressLog(settings.kafka, settings.pipeline)
        self.seen: list[Key] = []

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, kind: object, value: object, at: object) -> None:
        self._log.close()

    def wait_further(self) -> None:
        """Until some more of it is read; it must not be done by then."""
        self.seen.append(wait_until(self._further, what="more chunks of the table", timeout_s=90))

    def _further(self) -> Key | None:
        try:
            newest = self._log.newest(0.05)
        except TransientError:
            return None  # the topic was made just now
        assert newest is None or not newest.is_boundary, "the table was read too fast"
        tables = [backfill for backfill in newest.backfills if backfill.table == "orders"] if newest else []
        done = tables[0].done if tables else None
        return None if done in self.seen else done


def events(settings: Settings, table: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for message in table_messages(settings, "public", table):
        if message.value() is not None:
            found.append((message.key().decode(), json.loads(message.value())["op"]))
    return found


@contextmanager
def standby_missing(admin: Any) -> Iterator[None]:
    """Commits wait for a standby that is not there: in the log, and visible to nobody."""
    admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    admin.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")


@contextmanager
def hanging_commit(settings: Settings, statement: str) -> Iterator[None]:
    """A transaction that waits between its commit record and becoming visible."""
    assert settings.source.admin is not None
    with connect(settings.source, settings.source.admin) as connection:
        connection.execute("SET synchronous_commit = on")
        thread = threading.Thread(target=connection.execute, args=(statement.encode(),), daemon=True)
        thread.start()
        try:
            with connect(settings.source, settings.source.admin) as other:
                pid = [connection.info.backend_pid]
                waiting = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"
                wait_until(lambda: other.execute(waiting, pid).fetchone()[0], what="the commit to hang")
            yield
        finally:
            connection.cancel()
            thread.join(30)


def test_rows_are_sent_again_on_request_while_the_stream_goes_on(
    settings: Settings, admin: Any, tmp_path: Path
) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'x', g FROM generate_series(1, 95) g")
    config = write_config(settings, tmp_path)
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        sent = len(events(settings, "orders"))
        admin.execute("UPDATE public.orders SET customer = 'y' WHERE id = 50")
        asked = run_command(config, "snapshot", "public.orders", "--where", "id > 40", "--wait", "--json")
        assert asked.returncode == 0, asked.stderr
        assert {**json_of(asked), "id": None} == {
            "id": None, "table": "public.orders", "state": "done", "rows": 55, "message": None
        }  # fmt: skip
        again = [key for key, op in events(settings, "orders") if op == "r"]
        require_equal(settings, admin)
        assert len(events(settings, "orders")) == sent + 1 + 55
        assert sorted(again).count('{"id":41}') == 2
        bad = run_command(config, "snapshot", "public.orders", "--where", "1 / (id - 60) > 0", "--wait")
        assert (bad.returncode, "SNAPSHOT_FAILED" in bad.stderr) == (3, True)
        assert run_command(config, "snapshot", "public.orders", "--where", "nonsense").returncode != 0
        assert run_command(config, "snapshot", "public.order").returncode == 2
        admin.execute("INSERT INTO public.orders VALUES (500, 'after', 1)")
        capture.wait_for(insert_lsn(admin))
        require_equal(settings, admin)
    positions = [record.lsn for record in records(settings)]
    assert positions == sorted(positions)


def test_readers_keep_to_their_rate(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'x', g FROM generate_series(1, 150) g")
    began_s = time.monotonic()
    with running_capture(slowed(settings, 50)) as capture:
        capture.wait_for(insert_lsn(admin))
    # The first chunks of all readers come at once.
    assert time.monotonic() - began_s > (150 - 3 * 10) / 50


def test_no_transaction_outlives_its_chunk(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'x', g FROM generate_series(1, 9000) g")
    oldest = "SELECT min(xact_start) FROM pg_stat_activity WHERE application_name LIKE 'afterimage%'"
    with running_capture(slowed(settings, 150)), Reading(settings) as reading:
        reading.wait_further()
        ((begun,),) = admin.execute("SELECT clock_timestamp()").fetchall()
        for _ in range(AHEAD_CHUNKS):
            reading.wait_further()
        ((open_since,),) = admin.execute(oldest).fetchall()
        reading.wait_further()
    assert open_since is None or open_since > begun
