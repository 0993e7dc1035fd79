"""Two servers, a primary that dies and a standby that takes over: nothing lost, nothing twice, or a named error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.check.finding import Level
from cdc.check.source import look_at_source
from cdc.cli.capturing import CaptureRun
from cdc.errors import OperatorError
from cdc.lsn import parse_lsn
from cdc.recover.run import Recovered
from cdc.settings import Settings
from cdc.stack.postgres import Postgres
from tests.support.capturing import running_capture
from tests.support.servers import PrivateServer
from tests.support.standby import STANDBY_SLOT, as_admin, insert, moved_to, source_on, standby_of
from tests.support.topics import require_chain, require_equal, require_once
from tests.support.wait import wait_until

Private = Callable[..., PrivateServer]


def why_not(settings: Settings) -> OperatorError:
    with pytest.raises(OperatorError) as caught, running_capture(settings) as capture:
        raise capture.ended()
    return caught.value


def recover(settings: Settings) -> Recovered:
    return CaptureRun(settings, lambda _: False, lambda _: None, lambda *_: None).recover(lambda _: None, force=False)


def recovered_in_time(settings: Settings, admin: Any) -> Recovered:
    """The new primary's log may have to grow past where the topics stand first; every new slot adds a little itself."""
    while True:
        try:
            return recover(settings)
        except OperatorError as early:
            if early.code != "RECOVER_TOO_EARLY":
                raise
            admin.execute("SELECT pg_switch_wal()")


def slot_of(connection: Any, settings: Settings) -> Any:
    return connection.execute(
        "SELECT synced AND NOT temporary, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
        [settings.slot],
    ).fetchone()


def missing(settings: Settings) -> str:
    findings = look_at_source(settings)[0]
    return " ".join(f"{each.code}: {each.message}" for each in findings if each.level is not Level.OK)


def test_capture_goes_on_with_a_slot_that_is_behind(
    private_server: Private, kafka: Any, tmp_path: Path, pipeline_name: str
) -> None:
    primary = private_server(Postgres, major=17)
    settings = source_on(primary, kafka, tmp_path, pipeline_name)
    standby = standby_of(primary, primary.server.folder.with_name("standby"), 17, sync_replication_slots="on")
    moved = moved_to(settings, standby)
    address = f"127.0.0.1:{standby.server.endpoint.port}"
    settings = settings.model_copy(update={"source": settings.source.model_copy(update={"standbys": (address,)})})
    with as_admin(settings) as admin, standby.connect("shop") as there, running_capture(settings) as capture:
        assert "FAILOVER_AHEAD" in missing(settings)
        admin.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY_SLOT}'")
        admin.execute("SELECT pg_reload_conf()")
        capture.wait_for(insert(admin, 1, 100))
        numbers = iter(range(101, 2000))

        def synchronised() -> bool:
            """A standby keeps a copy once the primary's slot has moved past what the standby could start from."""
            admin.execute("SELECT pg_log_standby_snapshot()")
            number = next(numbers)
            capture.wait_for(insert(admin, number, number))
            return slot_of(there, settings)[0] if slot_of(there, settings) else False

        wait_until(synchronised, what="the slot's copy on the standby", timeout_s=90)
        assert "FAILOVER" not in missing(settings)
        there.execute("ALTER SYSTEM SET hot_standby_feedback = off")
        there.execute("ALTER SYSTEM SET sync_replication_slots = off")
        there.execute("SELECT pg_reload_conf()")
        wait_until(lambda: "hot_standby_feedback" in missing(settings), what="the finding")
        reached = capture.wait_for(insert(admin, 5001, 5100))
    standby.catch_up(reached.lsn)
    primary.kill()
    standby.promote()

    with as_admin(moved) as admin:
        assert parse_lsn(slot_of(admin, moved)[1]) < reached.lsn
        with running_capture(moved) as capture:
            after = capture.wait_for(insert(admin, 6001, 6100))
        require_equal(moved, admin)
        require_once(moved)
        assert (reached.timeline, after.timeline) == (1, 2)
        require_chain(moved)
    primary.start()
    assert why_not(settings).code == "DIVERGED"  # the old primary, back again


@pytest.mark.parametrize("lost_tail", [False, True])
def test_a_failover_without_the_slot(
    private_server: Private, kafka: Any, tmp_path: Path, pipeline_name: str, lost_tail: bool
) -> None:
    primary = private_server(Postgres, major=18)
    settings = source_on(primary, kafka, tmp_path, pipeline_name)
    standby = standby_of(primary, primary.server.folder.with_name("standby"), 18)
    with as_admin(settings) as admin, running_capture(settings) as capture:
        standby.catch_up(capture.wait_for(insert(admin, 1, 100)).lsn)
        if lost_tail:
            standby.server.stop()
        admin.execute("DELETE FROM public.orders WHERE id <= 10")
        reached = capture.wait_for(insert(admin, 101, 200))
    if not lost_tail:
        standby.catch_up(reached.lsn)
    primary.kill()
    if lost_tail:
        standby.server.start()
    standby.promote()
    moved = moved_to(settings, standby)
    with as_admin(moved) as admin:
        insert(admin, 301, 310)
        assert admin.execute("SELECT count(*) FROM public.orders").fetchone() == ((110,) if lost_tail else (200,))

        assert why_not(moved).code == ("DIVERGED" if lost_tail else "SLOT_MISSING")

        found = recovered_in_time(moved, admin)
        assert (found.changed, found.gone) == ((20, 100) if lost_tail else (10, 0))
        with running_capture(moved) as capture:
            capture.wait_for(insert(admin, 401, 410))
        require_equal(moved, admin)
        require_chain(moved)
