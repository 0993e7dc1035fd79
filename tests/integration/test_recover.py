"""A lost slot: capture says so and stops, `recover` sends exactly what differs, and streaming goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc.check.fix import fix
from cdc.cli.capturing import CaptureRun
from cdc.errors import OperatorError
from cdc.progress import Kind
from cdc.recover.run import Recovered
from cdc.settings import Kafka, Settings
from cdc.stack.postgres import Postgres
from tests.support.capturing import await_release, insert_lsn, running_capture, table_messages
from tests.support.processes import json_of, run_command, write_config
from tests.support.servers import PostgresServer, PrivateServer, fresh_database
from tests.support.source import prepared_source
from tests.support.topics import HOSTILE, require_chain, require_equal


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})


def recover(
    settings: Settings, report: Callable[[Recovered], None] = lambda _: None, *, force: bool = False
) -> Recovered:
    return CaptureRun(settings, lambda _: False, lambda _: None, lambda *_: None).recover(report, force=force)


def code_of_start(settings: Settings) -> str:
    """Why capture does not start."""
    with pytest.raises(OperatorError) as caught, running_capture(settings) as capture:
        raise capture.ended()
    assert caught.value.hint is not None
    assert "afterimage recover" in caught.value.hint
    return caught.value.code


def fill(admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'c' || g, g / 8.0, true FROM generate_series(1, 300) g")
    admin.execute("INSERT INTO public.order_items SELECT g, 1, '},\"after\":', g FROM generate_series(1, 50) g")
    admin.execute("INSERT INTO public.documents (body, tags) VALUES ('after', '{a}'), ('before', NULL)")
    admin.execute("INSERT INTO public.events VALUES (1, '2025-06-01', 'n'), (2, '2026-06-01', 'n')")
    admin.execute(f"INSERT INTO {HOSTILE} VALUES ('k\t', 1, ',\"source\":{{', 'é'), ('l', 2, NULL, '\\N')")


def stream_some(admin: Any) -> None:
    """So that the topics hold more than a snapshot."""
    admin.execute("UPDATE public.orders SET paid = false WHERE id <= 100")
    admin.execute("UPDATE public.documents SET body = body || '!'")  # under FULL, with the row before
    admin.execute("DELETE FROM public.order_items WHERE order_id = 7")
    admin.execute("DELETE FROM public.events")
    admin.execute("INSERT INTO public.events VALUES (3, '2025-07-01', 'kept')")


def miss_some(admin: Any) -> None:
    """What happens while there is no slot: 6 rows are new or changed, 4 keys go."""
    admin.execute("UPDATE public.orders SET customer = 'changed' WHERE id IN (1, 2, 3)")
    admin.execute("UPDATE public.orders SET customer = customer")
    admin.execute("DELETE FROM public.orders WHERE id IN (10, 11)")
    admin.execute("UPDATE public.orders SET id = 1012 WHERE id = 12")
    admin.execute("INSERT INTO public.order_items VALUES (7, 1, 'again', 1)")
    admin.execute("TRUNCATE public.events")
    admin.execute(f'UPDATE {HOSTILE} SET "a.b`c" = \'now\' WHERE "select" = 2')


def captured_once(settings: Settings, admin: Any) -> None:
    fill(admin)
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        stream_some(admin)
        capture.wait_for(insert_lsn(admin))


def drop_slot(settings: Settings, admin: Any) -> None:
    await_release(admin, settings.slot)
    admin.execute("SELECT pg_drop_replication_slot(%s)", [settings.slot])


def told(settings: Settings, folder: Path) -> str:
    """What `status` and `check` both say of the slot."""
    settings.views.mkdir(parents=True, exist_ok=True)
    config = write_config(settings, folder)
    status = run_command(config, "status", "--json")
    problems = "; ".join(json_of(status)["problems"])
    assert status.returncode == bool(problems)
    found = json_of(run_command(config, "check", "--json"))["findings"]
    [code] = [each["code"] for each in found if each["code"].startswith("SLOT")]
    assert (f"({code})" in problems) == (code != "SLOT")
    return str(code)


def test_a_dropped_slot(settings: Settings, admin: Any, tmp_path: Path) -> None:
    captured_once(settings, admin)
    assert told(settings, tmp_path) == "SLOT"
    drop_slot(settings, admin)
    miss_some(admin)
    assert code_of_start(settings) == "SLOT_MISSING"
    assert told(settings, tmp_path) == "SLOT_MISSING"

    before = len(table_messages(settings, "public", "orders"))
    found = recover(settings)

    assert (found.changed, found.gone) == (6, 4)
    sent = len(table_messages(settings, "public", "orders")) - before
    assert sent == 4 + 2 * 3  # equal rows are not sent; deletes are an event and a tombstone
    require_equal(settings, admin)
    with running_capture(settings) as capture:
        admin.execute("UPDATE public.orders SET customer = 'streamed' WHERE id = 5")
        capture.wait_for(insert_lsn(admin))
    require_equal(settings, admin)
    records = require_chain(settings)
    kinds = [record.kind for record in records]
    assert kinds.count(Kind.RECOVER) >= 2
    boundary = records[len(kinds) - kinds[::-1].index(Kind.RECOVER)]
    assert boundary.kind is Kind.IDLE
    assert boundary.lsn == boundary.recovered_lsn == found.lsn


def test_a_slot_that_something_else_moved_on(settings: Settings, admin: Any, tmp_path: Path) -> None:
    captured_once(settings, admin)
    miss_some(admin)
    await_release(admin, settings.slot)
    admin.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [settings.slot])
    assert code_of_start(settings) == "SLOT_AHEAD"
    assert told(settings, tmp_path) == "SLOT_AHEAD"

    assert recover(settings).changed == 6

    require_equal(settings, admin)


def test_another_database_is_refused(
    settings: Settings, admin: Any, postgres: PostgresServer, pipeline_name: str, tmp_path: Path
) -> None:
    captured_once(settings, admin)
    with fresh_database(postgres) as database, prepared_source(database, pipeline_name, tmp_path) as other:
        fix(other)
        moved = settings.model_copy(update={"source": other.source})
        with pytest.raises(OperatorError) as caught, running_capture(moved) as capture:
            raise capture.ended()
        assert caught.value.code == "SOURCE_CHANGED"
        with pytest.raises(OperatorError) as caught:
            recover(moved)
        assert caught.value.code == "SOURCE_CHANGED"
        afresh = moved.model_copy(update={"pipeline": f"{pipeline_name}b"})
        taken = afresh.source.model_copy(update={"slot": settings.slot})
        with (
            pytest.raises(OperatorError) as caught,
            running_capture(afresh.model_copy(update={"source": taken})) as two,
        ):
            raise two.ended()
        assert caught.value.code == "SLOT_OTHER"
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))


def test_an_interrupted_recovery_is_repeated(settings: Settings, admin: Any) -> None:
    captured_once(settings, admin)
    drop_slot(settings, admin)
    miss_some(admin)

    def killed(state: Recovered) -> None:
        if state.rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recover(settings, killed)
    assert code_of_start(settings) == "RECOVER_INTERRUPTED"
    assert not list((settings.data / "recover").iterdir())
    miss = insert_lsn(admin)
    admin.execute("DELETE FROM public.orders WHERE id = 20")

    found = recover(settings)

    assert found.lsn > miss
    require_equal(settings, admin)
    require_chain(settings)
    with pytest.raises(OperatorError) as caught:
        recover(settings)
    assert caught.value.code == "NOTHING_TO_RECOVER"
    assert recover(settings, force=True).changed == 0
    require_equal(settings, admin)


def test_a_slot_whose_wal_was_removed(
    private_server: Callable[..., PrivateServer], kafka: Any, tmp_path: Path, pipeline_name: str
) -> None:
    server = private_server(Postgres, settings={"max_slot_wal_keep_size": "20MB", "wal_keep_size": "0"})
    with (
        fresh_database(PostgresServer(server.endpoint)) as database,
        prepared_source(database, pipeline_name, tmp_path) as source,
        database.connect() as admin,
    ):
        settings = source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})
        settings.views.mkdir(parents=True)
        fix(settings)
        captured_once(settings, admin)
        config = write_config(settings, tmp_path)
        miss_some(admin)
        for _ in range(5):
            admin.execute("INSERT INTO public.secrets SELECT g, 'x' FROM generate_series(1, 100) g")
            admin.execute("DELETE FROM public.secrets")
            admin.execute("SELECT pg_switch_wal()")
        status = run_command(config, "status", "--json")
        assert json_of(status)["source"]["slot_danger"] in ("alarm", "lost")
        assert status.returncode == 1
        admin.execute("CHECKPOINT")
        assert json_of(run_command(config, "status", "--json"))["source"]["slot_danger"] == "lost"
        refused = run_command(config, "capture")
        assert refused.returncode == 3
        assert "SLOT_LOST" in refused.stderr
        assert "wal_removed" in refused.stderr

        recovered = run_command(config, "recover", "--json")

        assert recovered.returncode == 0, recovered.stderr
        assert {key: json.loads(recovered.stdout)[key] for key in ("changed", "gone")} == {"changed": 6, "gone": 4}
        require_equal(settings, admin)
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
        assert json_of(run_command(config, "status", "--json"))["source"]["slot_danger"] == "safe"
