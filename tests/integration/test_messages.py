"""pg_logical_emit_message against real servers: in order with the rows, exactly once, in a topic of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.errors import TransientError
from cdc.lsn import parse_lsn
from cdc.postgres import connect
from cdc.progress import Progress
from cdc.settings import Kafka, Settings
from tests.support.capturing import insert_lsn, read_topic, running_capture, table_messages
from tests.support.large import with_small_work_memory
from tests.support.wait import wait_until

FILL = "INSERT INTO public.orders SELECT g, repeat(md5(g::text), 10), 1 FROM generate_series(%s::int, %s::int) g"


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})


def emit(connection: Any, content: str | bytes, *, transactional: bool = True, prefix: str = "app") -> int:
    """Write a message; the position that the function returned."""
    kind = "bytea" if isinstance(content, bytes) else "text"
    query = f"SELECT pg_logical_emit_message(%s, %s, %s::{kind})::text"
    return parse_lsn(connection.execute(query, [transactional, prefix, content]).fetchone()[0])


def told(settings: Settings) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in read_topic(settings, f"{settings.pipeline}._messages", 1)]


def contents(settings: Settings) -> list[str]:
    return [event["message"]["content"] for event in told(settings)]


def test_messages_come_with_their_transaction_and_by_themselves(settings: Settings, admin: Any) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        with admin.transaction():
            admin.execute("INSERT INTO public.orders VALUES (1, 'x', 1)")
            inside = emit(admin, 'é "quoted"\n', prefix="order placed")
            admin.execute("INSERT INTO public.orders VALUES (2, 'x', 1)")
        binary = emit(admin, b"\xff\x00")
        with admin.transaction(force_rollback=True):
            emit(admin, "rolled back")
            loose = emit(admin, "loose", transactional=False)
        capture.wait_for(insert_lsn(admin))
        progress = capture.wait_for(loose)
    first, second, third = told(settings)
    rows = [json.loads(message.value())["source"] for message in table_messages(settings, "public", "orders")]
    rows.sort(key=lambda row: row["ordinal"])
    assert first["message"] == {
        "prefix": "order placed",
        "transactional": True,
        "content": 'é "quoted"\n',
        "encoding": "text",
    }
    assert first["source"]["lsn"] == inside < rows[0]["commit_lsn"] == first["source"]["commit_lsn"]
    assert (first["source"]["ordinal"], first["source"]["txId"]) == (rows[1]["ordinal"], rows[1]["txId"])
    assert first["source"]["ts_ms"] == rows[1]["ts_ms"]
    assert (second["message"]["content"], second["message"]["encoding"]) == ("/wA=", "base64")
    assert second["source"]["lsn"] == binary
    assert (third["source"]["lsn"], third["source"]["commit_lsn"], third["source"]["txId"]) == (loose, None, None)
    assert third["message"]["transactional"] is False
    assert progress.ends[f"{settings.pipeline}._messages"][0] > 0


def test_each_message_is_there_once_over_restarts(settings: Settings, admin: Any) -> None:
    due = []
    for number in range(6):
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
            for transactional in (False, True, False):
                emit(admin, f"{number} {transactional}", transactional=transactional)
                due.append(f"{number} {transactional}")
            if number % 2:
                capture.wait_for(insert_lsn(admin))
        emit(admin, f"away {number}", transactional=False)
        due.append(f"away {number}")
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    assert contents(settings) == due
    records = [
        Progress.from_bytes(message.value()) for message in read_topic(settings, f"{settings.pipeline}._progress", 1)
    ]
    assert sum(record.records for record in records) == len(due)


def test_a_message_in_a_savepoint_of_a_large_transaction(settings: Settings, admin: Any) -> None:
    """Postgres does not say which savepoint wrote a message that it sends before the commit."""
    with_small_work_memory(settings, admin)
    assert settings.source.admin is not None
    with running_capture(settings) as capture, connect(settings.source, settings.source.admin) as other:
        capture.wait_for(insert_lsn(admin))
        with other.transaction():
            emit(other, "first")
            other.execute(FILL, [1, 1000])
            with other.transaction(force_rollback=True):
                emit(other, "rolled back")
                other.execute(FILL, [1001, 2000])
                emit(other, "rolled back too")
            emit(other, "kept")
            other.execute(FILL, [2001, 3000])
        capture.wait_for(insert_lsn(admin))
        codes = [error.code for error in capture.troubles if isinstance(error, TransientError)]
        assert codes.count("MESSAGE_UNPLACED") == 1
        assert contents(settings) == ["first", "kept"]
        with other.transaction():
            other.execute("DELETE FROM public.orders")
            emit(other, "next")
        capture.wait_for(insert_lsn(admin))
        assert contents(settings) == ["first", "kept", "next"]


def test_messages_may_be_left_out(settings: Settings, admin: Any) -> None:
    silent = settings.model_copy(update={"capture": settings.capture.model_copy(update={"messages": False})})
    with running_capture(silent) as capture:
        capture.wait_for(insert_lsn(admin))
        emit(admin, "unheard")
        emit(admin, "unheard", transactional=False)
        capture.wait_for(insert_lsn(admin))
    assert told(settings) == []
    with running_capture(settings) as capture:
        emit(admin, "heard")
        wait_until(lambda: contents(settings) == ["heard"], what="the message")
