"""Capture from a standby: its slot, its snapshot and its log; and what a promotion under a running capture does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.check.finding import Level
from cdc.check.fix import fix
from cdc.check.source import look_at_source
from cdc.cli.standing import Observer
from cdc.errors import OperatorError
from cdc.stack.postgres import Postgres
from jobs.prove.source import source_at_lsn
from tests.support.capturing import insert_lsn, running_capture
from tests.support.servers import PrivateServer
from tests.support.standby import as_admin, insert, moved_to, replayed, source_on, standby_of
from tests.support.topics import require_chain, require_equal, require_once
from tests.support.wait import wait_until


def test_capture_from_a_standby_and_on_after_its_promotion(
    private_server: Callable[..., PrivateServer], kafka: Any, tmp_path: Path, pipeline_name: str
) -> None:
    primary = private_server(Postgres, major=16)
    settings = source_on(primary, kafka, tmp_path, pipeline_name)
    standby = standby_of(primary, primary.server.folder.with_name("standby"), 16)
    moved = moved_to(settings, standby)
    with as_admin(settings) as admin, standby.connect("shop") as there, running_capture(moved) as capture:
        first = insert(admin, 1, 100)
        standby.catch_up(first)

        def told() -> bool:
            """An idle primary tells its standby of its transactions only when it is asked to."""
            admin.execute("SELECT pg_log_standby_snapshot()")
            return bool(
                there.execute("SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn > '0/0'").fetchall()
            )

        wait_until(told, what="the slot on the standby", timeout_s=60)
        admin.execute("UPDATE public.orders SET customer = 'changed' WHERE id <= 50")
        before = capture.wait_for(insert_lsn(admin))
        require_equal(moved, there)
        assert [each for each in look_at_source(moved)[0] if each.level is Level.CRITICAL] == []
        with_status(moved, there)
        proved_lsn = prove_once(moved, admin)
        assert proved_lsn >= before.lsn
        with pytest.raises(OperatorError, match="primary"):
            fix(moved)

        primary.stop()
        standby.promote()
        after = capture.wait_for(insert(there, 201, 300))
        require_equal(moved, there)
        require_once(moved)
        assert (before.timeline, after.timeline) == (1, 2)
    require_chain(moved)


def with_status(settings: Any, there: Any) -> None:
    observer = Observer(settings)
    report = observer.look()
    observer.close()
    assert report.source is not None
    assert report.source.lsn <= replayed(there)
    assert report.source.retention.kept_bytes >= 0


def prove_once(settings: Any, admin: Any) -> int:
    """What `prove` compares with: a temporary slot's snapshot, on the standby."""
    found: list[int] = []

    def cut() -> None:
        with source_at_lsn(settings) as source:
            found.append(source.lsn)
            assert source.connection.execute("SELECT count(*) FROM public.orders").fetchone() == (100,)

    thread = threading.Thread(target=cut)
    thread.start()
    wait_until(
        lambda: admin.execute("SELECT pg_log_standby_snapshot()") and not thread.is_alive(),
        what="the proof's cut",
        timeout_s=60,
    )
    return found[0]
