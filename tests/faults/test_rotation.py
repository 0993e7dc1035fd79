"""A password that is replaced while capture runs (fault 33): it says so, tries again, and goes on; nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from cdc.errors import OperatorError
from cdc.settings import Kafka, Settings
from tests.support.capturing import RunningCapture, folded, insert_lsn, table_messages
from tests.support.wait import wait_until


@pytest.fixture
def by_file(source: Settings, kafka: Any, tmp_path: Path) -> Settings:
    """The same source, whose roles have their passwords in files, and no role that could set them again."""
    roles = {}
    for name in ("stream", "read"):
        role = getattr(source.source, name)
        file = tmp_path / name
        file.write_text(role.secret())
        roles[name] = role.model_copy(update={"password": None, "password_file": file})
    changed = source.source.model_copy(update={**roles, "admin": None})
    return source.model_copy(update={"source": changed, "kafka": Kafka(bootstrap=kafka.address)})


def test_a_replaced_password_is_read_again(by_file: Settings, admin: psycopg.Connection[Any]) -> None:
    stream = by_file.source.stream
    capture = RunningCapture(by_file).start()
    try:
        admin.execute("INSERT INTO public.orders VALUES (1, 'before', 1)")
        capture.wait_for(insert_lsn(admin))
        admin.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(stream.user), sql.Literal("canary-new"))
        )
        admin.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [by_file.slot]
        )
        refused = wait_until(
            lambda: [each for each in capture.troubles if isinstance(each, OperatorError)],
            what="the refusal",
            timeout_s=60,
        )
        assert {each.code for each in refused} == {"PASSWORD"}
        assert capture.error is None
        admin.execute("INSERT INTO public.orders VALUES (2, 'between', 2)")
        assert stream.password_file is not None
        stream.password_file.write_text("canary-new\n")
        capture.wait_for(insert_lsn(admin))
    finally:
        capture.stop()
    assert capture.error is None
    assert "canary-new" not in repr(capture.troubles)
    assert len(folded(table_messages(by_file, "public", "orders"))) == 2


def test_at_the_start_it_ends(by_file: Settings) -> None:
    assert by_file.source.stream.password_file is not None
    by_file.source.stream.password_file.write_text("never right")
    error = RunningCapture(by_file).start().ended()
    assert isinstance(error, OperatorError)
    assert error.code == "PASSWORD"
