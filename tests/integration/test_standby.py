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
from cdc.cli.capturing import CaptureRun
from cdc.cli.standing import Observer
from cdc.errors import OperatorError
from cdc.recover.run import Recovered
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
        await_slot(admin, there)
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


def test_a_slot_that_a_vacuum_on_the_primary_made_useless(
    private_server: Callable[..., PrivateServer], kafka: Any, tmp_path: Path, pipeline_name: str
) -> None:
    primary = private_server(Postgres, major=18)
    settings = source_on(primary, kafka, tmp_path, pipeline_name)
    standby = standby_of(primary, primary.server.folder.with_name("standby"), 18, hot_standby_feedback="off")
    moved = moved_to(settings, standby)
    with as_admin(settings) as admin, standby.connect("shop") as there:
        standby.catch_up(insert(admin, 1, 100))
        with running_capture(moved) as capture:
            await_slot(admin, there)
            capture.wait_for(insert_lsn(admin))
        assert "STANDBY_FEEDBACK" in {each.code for each in look_at_source(moved)[0]}
        admin.execute("CREATE TABLE public.passing (x int, y text)")
        admin.execute("DROP TABLE public.passing")
        admin.execute("VACUUM FULL pg_class")
        admin.execute("DELETE FROM public.orders WHERE id > 90")
        standby.catch_up(insert_lsn(admin))

        with pytest.raises(OperatorError, match="rows_removed") as caught, running_capture(moved) as capture:
            raise capture.ended()
        assert caught.value.code == "SLOT_LOST"

        found: list[Recovered] = []
        recovery = threading.Thread(target=lambda: found.append(recover(moved)))
        recovery.start()
        tell_until(lambda: not recovery.is_alive(), admin, "the recovery")
        assert (found[0].changed, found[0].gone) == (0, 10)
        with running_capture(moved) as capture:
            capture.wait_for(insert(admin, 201, 210))
        require_equal(moved, there)


def recover(settings: Any) -> Recovered:
    return CaptureRun(settings, lambda _: False, lambda _: None, lambda *_: None).recover(lambda _: None, force=False)


def await_slot(admin: Any, there: Any) -> None:
    made = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn > '0/0'"
    tell_until(lambda: bool(there.execute(made).fetchall()), admin, "the slot on the standby")


def tell_until(done: Callable[[], bool], admin: Any, what: str) -> None:
    """An idle primary tells its standby of its transactions only when it is asked to."""
    wait_until(lambda: admin.execute("SELECT pg_log_standby_snapshot()") and done(), what=what, timeout_s=60)


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
    tell_until(lambda: not thread.is_alive(), admin, "the proof's cut")
    return found[0]
