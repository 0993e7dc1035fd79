"""A large table joins a running pipeline: it is read in chunks while the others stream, and is whole at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.progress import Progress, Stop
from cdc.progress_log import ProgressLog
from cdc.schema_log import read_schemas
from cdc.settings import Capture, Kafka, Settings
from cdc.settings import Snapshot as SnapshotSettings
from tests.support.capturing import RunningCapture, folded, insert_lsn, running_capture, table_messages
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

ROWS = 6_000
OTHER = "CREATE TABLE public.other (id int PRIMARY KEY, note text);"
LARGE = (
    "CREATE TABLE public.large (id int PRIMARY KEY, note text);"
    f"INSERT INTO public.large SELECT g, 'before ' || g FROM generate_series(1, {ROWS}) g"
)


@pytest.fixture
def settings(pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Any) -> Iterator[Settings]:
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=OTHER, tables=("public.*",), exclude=()) as source:
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address, partitions=2),
                "capture": Capture(lookout_interval_s=0.2),
                # Slowly, so that much happens meanwhile.
                "snapshot": SnapshotSettings(chunk_rows=200, rows_per_s=1_500),
            }
        )
        fix(settings)
        yield settings


@pytest.fixture
def admin(settings: Settings) -> Iterator[Any]:
    assert settings.source.admin is not None
    with connect(settings.source, settings.source.admin) as connection:
        yield connection


def add_large(settings: Settings, admin: Any) -> None:
    admin.execute(LARGE)
    fix(settings)


@contextmanager
def followed_progress(settings: Settings) -> Iterator[ProgressLog]:
    log = ProgressLog(settings.kafka, settings.pipeline)
    try:
        yield log
    finally:
        log.close()


def stop_of(settings: Settings, progress: Progress | None) -> Stop | None:
    return progress.stopped.get(f"{settings.pipeline}.public.large") if progress is not None else None


def read_rows(settings: Settings, progress: Progress | None) -> int:
    """How many rows of the table have been read, while it is being read."""
    stop = stop_of(settings, progress)
    if progress is None or stop is None or not stop.is_read:
        return 0
    [reading] = progress.backfills
    return reading.rows


def await_reading(settings: Settings, rows: int) -> Progress:
    with followed_progress(settings) as log:
        wait_until(lambda: read_rows(settings, log.newest()) >= rows, what=f"{rows} rows to be read", timeout_s=60)
        newest = log.newest()
    assert newest is not None
    return newest


def settle(settings: Settings, capture: RunningCapture, admin: Any) -> Progress:
    """Until the table has joined and everything committed so far is in the topics."""

    def joined() -> Progress | None:
        progress = capture.wait_for(insert_lsn(admin))
        stop = stop_of(settings, progress)
        return progress if stop is not None and stop.until is not None and stop.until <= progress.lsn else None

    return wait_until(joined, what="the table to join", timeout_s=90)


def require_copy(settings: Settings, admin: Any, name: str) -> None:
    assert topic_rows(settings, name) == table_rows(admin, name)


def topic_rows(settings: Settings, name: str) -> dict[int, str]:
    return {row["id"]: row["note"] for row in folded(table_messages(settings, "public", name)).values()}


def table_rows(admin: Any, name: str) -> dict[int, str]:
    return dict(admin.execute(f"SELECT id, note FROM public.{name}").fetchall())


def disturb(admin: Any, at: int) -> None:
    """Rows that are read already and rows that are not: changed, deleted, moved and made."""
    for base in (at, ROWS - 100 + at):
        admin.execute("UPDATE public.large SET note = 'changed' WHERE id = %s", [base])
        admin.execute("DELETE FROM public.large WHERE id = %s", [base + 1])
        admin.execute("UPDATE public.large SET id = id + %s WHERE id = %s", [2 * ROWS, base + 2])
    admin.execute("INSERT INTO public.large VALUES (%s, 'new')", [ROWS + at])
    admin.execute("INSERT INTO public.other VALUES (%s, 'meanwhile')", [at])


def test_the_others_stream_while_it_is_read(settings: Settings, admin: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        add_large(settings, admin)
        begun = await_reading(settings, 1)
        for at in range(1, 60, 6):
            disturb(admin, at)
        reached = capture.wait_for(insert_lsn(admin))
        assert read_rows(settings, reached) < ROWS / 2, "it took the whole reading for a change to come through"
        assert len(table_messages(settings, "public", "other")) >= 10
        # No view of it may stand anywhere before it is whole.
        stop = stop_of(settings, reached)
        assert stop is not None
        assert stop.covers(begun.lsn)
        assert stop.covers(reached.lsn)
        trouble = read_schemas(settings.kafka, settings.pipeline)["public", "large"].stopped
        assert trouble is not None
        assert trouble.code == "TABLE_JOINS"
        settle(settings, capture, admin)
        assert read_schemas(settings.kafka, settings.pipeline)["public", "large"].stopped is None
        disturb(admin, 70)
        capture.wait_for(insert_lsn(admin))
    require_copy(settings, admin, "large")
    require_copy(settings, admin, "other")


def test_it_goes_on_where_it_was(settings: Settings, admin: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        add_large(settings, admin)
        await_reading(settings, 1_000)
    with followed_progress(settings) as log:
        left = wait_until(log.newest, what="the newest progress")
    had = read_rows(settings, left)
    assert had >= 1_000
    disturb(admin, 1)
    with running_capture(settings) as capture:
        assert read_rows(settings, await_reading(settings, had)) >= had
        settle(settings, capture, admin)
    require_copy(settings, admin, "large")
    snapshots = [m for m in table_messages(settings, "public", "large") if m.value() and b'"op":"r"' in m.value()]
    assert len(snapshots) <= ROWS + 10, "chunks that were done have been read again"


def test_a_transaction_that_stays_open_holds_up_nobody_else(settings: Settings, admin: Any) -> None:
    assert settings.source.admin is not None
    with running_capture(settings) as capture, connect(settings.source, settings.source.admin) as open_one:
        capture.wait_for(insert_lsn(admin))
        admin.execute(LARGE)
        open_one.execute("BEGIN")
        open_one.execute("UPDATE public.large SET note = 'committed late' WHERE id < 10")
        fix(settings)
        with followed_progress(settings) as log:
            wait_until(lambda: (stop := stop_of(settings, log.newest())) and stop.is_read, what="reading to begin")
        for at in range(1, 30, 6):
            disturb(admin, 50 + at)
        assert read_rows(settings, capture.wait_for(insert_lsn(admin), timeout_s=60)) == 0
        open_one.execute("COMMIT")
        settle(settings, capture, admin)
    require_copy(settings, admin, "large")
    require_copy(settings, admin, "other")


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE public.large ADD COLUMN extra int NOT NULL DEFAULT 7",
        "ALTER TABLE public.large ADD COLUMN extra int",
        "ALTER TABLE public.large ALTER note TYPE text USING note || '!'",
        "TRUNCATE public.large",
    ],
)
def test_it_is_altered_while_it_is_read(settings: Settings, admin: Any, ddl: str) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        add_large(settings, admin)
        await_reading(settings, 600)
        disturb(admin, 1)
        admin.execute(ddl)
        disturb(admin, 50)
        settle(settings, capture, admin)
        # That a table was rewritten shows in the catalogue alone, which is looked at now and then.
        wait_until(
            lambda: topic_rows(settings, "large") == table_rows(admin, "large"),
            what="the rewritten rows in the topic",
            timeout_s=120,
        )
        columns = read_schemas(settings.kafka, settings.pipeline)["public", "large"].relation.columns
    if "extra" in ddl:
        assert "extra" in [column.name for column in columns]
        state = folded(table_messages(settings, "public", "large")).values()
        expected = {None} if "DEFAULT" not in ddl else {7}
        assert {row.get("extra") for row in state} == expected
