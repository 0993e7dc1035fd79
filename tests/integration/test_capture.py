"""Capture against real Postgres and Kafka: snapshot, stream, restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from psycopg import sql

from cdc.check.fix import fix
from cdc.cli.capturing import CaptureRun
from cdc.errors import OperatorError
from cdc.lineage import Lineage
from cdc.lsn import format_lsn
from cdc.metrics import TOAST_COMPLETIONS
from cdc.progress import Progress
from cdc.resume import SlotState, Start
from cdc.settings import Kafka, Settings
from tests.support.capturing import folded, insert_lsn, read_topic, running_capture, table_messages
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE
from tests.support.wait import wait_until


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})


def orders(connection: Any) -> dict[str, tuple[str, str]]:
    rows = connection.execute("SELECT id, customer, amount::text FROM public.orders").fetchall()
    return {json.dumps({"id": row[0]}, separators=(",", ":")): (row[1], row[2]) for row in rows}


def captured_orders(settings: Settings) -> dict[str, tuple[str, str]]:
    state = folded(table_messages(settings, "public", "orders"))
    return {key: (after["customer"], after["amount"]) for key, after in state.items()}


def test_a_row_goes_from_snapshot_and_stream_into_its_topic(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'before ' || g, g * 1.5 FROM generate_series(1, 500) g")
    with running_capture(settings) as capture:
        capture.wait_for(0)
        admin.execute("UPDATE public.orders SET customer = 'changed' WHERE id % 3 = 0")
        admin.execute("DELETE FROM public.orders WHERE id % 5 = 0")
        admin.execute("UPDATE public.orders SET id = id + 1000 WHERE id % 7 = 0")
        with admin.transaction():
            admin.execute("INSERT INTO public.orders VALUES (5000, 'kept', 1)")
            admin.execute("SAVEPOINT s")
            admin.execute("INSERT INTO public.orders VALUES (5001, 'undone', 1)")
            admin.execute("ROLLBACK TO s")
            admin.execute("INSERT INTO public.orders VALUES (5002, 'kept', 2)")
        capture.wait_for(insert_lsn(admin))
        assert captured_orders(settings) == orders(admin)


def test_truncate_voids_what_came_before(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'x', 1 FROM generate_series(1, 20) g")
    with running_capture(settings) as capture:
        capture.wait_for(0)
        with admin.transaction():
            admin.execute("TRUNCATE public.orders")
            admin.execute("INSERT INTO public.orders VALUES (7, 'after', 3)")
        capture.wait_for(insert_lsn(admin))
        assert captured_orders(settings) == orders(admin) == {'{"id":7}': ("after", "3.00")}


def test_a_restart_goes_on_where_it_was_and_writes_nothing_twice(settings: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.orders SELECT g, 'x', 1 FROM generate_series(1, 20) g")
    for round_number in range(3):
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
            admin.execute("UPDATE public.orders SET amount = %s", [round_number])
            capture.wait_for(insert_lsn(admin))
        admin.execute("UPDATE public.orders SET amount = amount + 10")
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    positions: list[tuple[int, int]] = []
    messages = table_messages(settings, "public", "orders")
    folded(messages, lambda event: positions.append((event["source"]["commit_lsn"], event["source"]["ordinal"])))
    streamed = [position for position in positions if position[1]]
    assert len(streamed) == len(set(streamed)) == 6 * 20
    assert captured_orders(settings) == orders(admin)


def test_progress_records_form_a_chain(settings: Settings, admin: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(0)
        for number in range(5):
            admin.execute("INSERT INTO public.orders VALUES (%s, 'x', 1)", [number])
            capture.wait_for(insert_lsn(admin))
    chain = [
        Progress.from_bytes(message.value()) for message in read_topic(settings, f"{settings.pipeline}._progress", 1)
    ]
    assert all(after.follows(before) for before, after in pairwise(chain))
    assert sum(record.records for record in chain) == 5


def test_a_second_reader_is_refused(settings: Settings, admin: Any) -> None:
    streaming = (
        "SELECT 1 FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid "
        "WHERE s.slot_name = %s AND r.state = 'streaming'"
    )
    with running_capture(settings):
        # A reader that has only its snapshot may be taken over from.
        wait_until(lambda: admin.execute(streaming, [settings.slot]).fetchone(), what="the first to stream")
        with pytest.raises(OperatorError) as caught, running_capture(settings) as second:
            raise second.ended()
        assert caught.value.code == "SLOT_IN_USE"
        assert caught.value.hint is not None


class CutOff(Exception):  # noqa: N818
    """The snapshot ends here."""


class Frozen(CaptureRun):
    """Stands still after it has taken over and decided what to do, until it is let go."""

    stands: ClassVar = threading.Event()
    released: ClassVar = threading.Event()

    def _decide(self, lineage: Lineage) -> tuple[Progress | None, SlotState | None, Start]:
        decided = super()._decide(lineage)
        self.stands.set()
        assert self.released.wait(60)
        return decided


def test_a_capture_that_stood_still_drops_nothing_of_its_successor(settings: Settings, admin: Any) -> None:
    def cut_off(_: Any) -> None:
        raise CutOff

    def run(kind: type[CaptureRun], report: Callable[[Any], None] = lambda _: None) -> None:
        kind(settings, threading.Event().wait, report, lambda *_: None).run()

    admin.execute("INSERT INTO public.orders SELECT g, 'before ' || g, g * 1.5 FROM generate_series(1, 100) g")
    with pytest.raises(CutOff):
        run(CaptureRun, cut_off)
    with ThreadPoolExecutor() as pool:
        try:
            frozen = pool.submit(run, Frozen)
            assert Frozen.stands.wait(60)
            with running_capture(settings) as successor:
                successor.wait_for(insert_lsn(admin))
        finally:
            Frozen.released.set()
        with pytest.raises(OperatorError) as caught:
            frozen.result(60)
    assert caught.value.code == "FENCED"
    assert captured_orders(settings) == orders(admin)
    admin.execute("UPDATE public.orders SET customer = 'later'")
    with running_capture(settings) as successor:
        successor.wait_for(insert_lsn(admin))
    assert captured_orders(settings) == orders(admin)


def test_a_key_that_an_inheriting_table_has_as_well_is_not_mixed_up(settings: Settings, admin: Any) -> None:
    admin.execute("ALTER TABLE public.documents REPLICA IDENTITY DEFAULT")
    admin.execute(
        "CREATE TABLE public.drafts () INHERITS (public.documents); ALTER TABLE public.drafts ADD PRIMARY KEY (id)"
    )
    assert settings.source.admin is not None
    fix(settings)
    long = "SELECT string_agg(md5(g::text), %s) FROM generate_series(1, 2000) g"
    for table in ("drafts", "documents"):
        values = f"'00000000-0000-0000-0000-000000000001', ({long}), '{{a}}'"
        admin.execute(f"INSERT INTO public.{table} (id, body, tags) VALUES ({values})", [table])
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        for table in ("drafts", "documents"):
            admin.execute(f"UPDATE ONLY public.{table} SET tags = '{{b}}'")
        capture.wait_for(insert_lsn(admin))
    for table in ("drafts", "documents"):
        (after,) = folded(table_messages(settings, "public", table)).values()
        assert after["tags"] == ["b"]
        assert after["body"] == admin.execute(f"SELECT body FROM ONLY public.{table}").fetchone()[0]


def test_unchanged_toast_values_are_read_from_the_source(settings: Settings, admin: Any) -> None:
    admin.execute("ALTER TABLE public.documents REPLICA IDENTITY DEFAULT")
    admin.execute(
        "INSERT INTO public.documents (body, tags) SELECT string_agg(md5(g::text), ''), '{a}' "
        "FROM generate_series(1, 2000) g"
    )
    counted = TOAST_COMPLETIONS.labels("read")._value.get()
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        admin.execute("UPDATE public.documents SET tags = '{b,NULL}'")
        capture.wait_for(insert_lsn(admin))
        assert TOAST_COMPLETIONS.labels("read")._value.get() == counted + 1
        (after,) = folded(table_messages(settings, "public", "documents")).values()
        assert after["tags"] == ["b", None]
        body = admin.execute("SELECT body FROM public.documents").fetchone()[0]
        assert after["body"] == body
        # Under FULL the old row has it, so nothing is asked for.
        admin.execute("ALTER TABLE public.documents REPLICA IDENTITY FULL")
        admin.execute("UPDATE public.documents SET tags = '{c}'")
        capture.wait_for(insert_lsn(admin))
    assert TOAST_COMPLETIONS.labels("read")._value.get() == counted + 1
    (after,) = folded(table_messages(settings, "public", "documents")).values()
    assert (after["tags"], after["body"]) == (["c"], body)


def test_a_row_that_moved_and_went_before_it_could_be_read_leaves_no_old_key(settings: Settings, admin: Any) -> None:
    admin.execute(
        "ALTER TABLE public.documents REPLICA IDENTITY DEFAULT; "
        "ALTER TABLE public.documents ALTER body SET STORAGE EXTERNAL"
    )
    ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(1, 10)]
    for id_ in ids[:3]:
        admin.execute("INSERT INTO public.documents VALUES (%s, %s)", [id_, id_[-1] * 9000])
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    move = "UPDATE public.documents SET id = %s WHERE id = %s"
    admin.execute(move, [ids[5], ids[0]])
    admin.execute("DELETE FROM public.documents WHERE id = %s", [ids[5]])
    admin.execute(move, [ids[6], ids[1]])
    admin.execute(move, [ids[7], ids[6]])
    admin.execute("UPDATE public.documents SET meta = '1' WHERE id = %s", [ids[2]])
    admin.execute("DELETE FROM public.documents WHERE id = %s", [ids[2]])
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    state = folded(table_messages(settings, "public", "documents"))
    assert {after["id"]: after["body"] for after in state.values()} == {ids[7]: "2" * 9000}


def test_unchanged_values_are_read_by_hostile_names_and_as_the_log_prints_them(settings: Settings, admin: Any) -> None:
    table = sql.Identifier(HOSTILE_SCHEMA, HOSTILE_TABLE).as_string(admin)
    admin.execute(f"ALTER TABLE {table} ADD COLUMN padded char(5)")
    admin.execute(
        f"INSERT INTO {table} SELECT 'k', 1, NULL, string_agg(md5(g::text), ''), 'ab' FROM generate_series(1, 900) g"
    )
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        admin.execute(f'UPDATE {table} SET "a.b`c" = %s', ["new"])
        capture.wait_for(insert_lsn(admin))
    (after,) = folded(table_messages(settings, HOSTILE_SCHEMA, HOSTILE_TABLE)).values()
    assert (after["a.b`c"], after["padded"]) == ("new", "ab   ")
    assert after["é %s {}"] == admin.execute(f'SELECT "é %s {{}}" FROM {table}').fetchone()[0]


def test_an_idle_source_does_not_hold_its_log(settings: Settings, admin: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        admin.execute("CREATE TABLE public.other AS SELECT g FROM generate_series(1, 10000) g")
        lsn = insert_lsn(admin)
        capture.wait_for(lsn)
        # It is confirmed just after Kafka has it, which is what was waited for.
        reached = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        wait_until(
            lambda: admin.execute(reached, [format_lsn(lsn), settings.slot]).fetchone() == (True,),
            what="the slot to be confirmed",
        )
