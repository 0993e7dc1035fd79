"""What a person can get wrong: one clear message with the remedy, the right exit code, and nothing begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.postgres import connect
from cdc.settings import Kafka, Settings
from tests.support.processes import run_command, write_config


@pytest.fixture
def config(source: Settings, kafka: Any, tmp_path: Path) -> Path:
    source.views.mkdir(parents=True)
    return write_config(source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)}), tmp_path)


def edit(config: Path, **sections: Any) -> Path:
    body = yaml.safe_load(config.read_text())
    for section, values in sections.items():
        body[section] = {**body[section], **values} if isinstance(values, dict) else values
    changed = config.with_name("changed.yml")
    changed.write_text(yaml.safe_dump(body))
    return changed


def refused(config: Path, *words: str) -> tuple[int, str]:
    completed = run_command(config, *words)
    assert "Traceback" not in completed.stderr
    return completed.returncode, completed.stderr


def test_a_wrong_password(config: Path, source: Settings) -> None:
    stream = {"user": source.source.stream.user, "password": "wr0ng-secret"}
    code, said = refused(edit(config, source={"stream": stream, "admin": None}), "capture")
    assert code == 3
    assert "PASSWORD" in said
    assert "remedy" in said
    assert "wr0ng-secret" not in said


def test_the_first_capture_leaves_the_passwords_of_roles_alone(config: Path, source: Settings) -> None:
    """Another pipeline may use the role; `check --fix` is there for it."""
    role = source.source.stream
    wrong = edit(config, source={"stream": {"user": role.user, "password": "wr0ng-secret"}})
    code, said = refused(wrong, "capture")
    assert (code, "PASSWORD" in said) == (3, True)
    connect(source.source, role).close()


def test_an_unknown_table(config: Path) -> None:
    code, said = refused(edit(config, source={"tables": ["public.ordres"], "admin": None}), "capture")
    assert code == 2
    assert "did you mean public.orders" in said


def test_a_snapshot_of_what_is_not_captured_or_under_no_condition(config: Path, admin: Any) -> None:
    admin.execute("CREATE TABLE public.keyless (id int)")
    wanted = edit(config, source={"tables": ["public.*"]})
    for table, where, told in (
        ("public.ordres", "true", "did you mean public.orders"),
        ("public.keyless", "true", "names 0 captured tables"),
        ("public.orders", "id <", "syntax error"),
        ("public.orders", "idd < 3", 'column "idd" does not exist'),
        ("public.orders", "id = 'canary'", "InvalidTextRepresentation"),
    ):
        code, said = refused(wanted, "snapshot", table, "--where", where)
        assert (code, told in said) == (2, True), said
        assert "canary" not in said


def test_an_unknown_key(config: Path) -> None:
    code, said = refused(edit(config, source={"tabels": ["public.*"]}), "status")
    assert code == 2
    assert "did you mean tables" in said


def test_a_policy_that_would_hide_rows(config: Path, admin: Any) -> None:
    admin.execute("ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY")
    admin.execute("INSERT INTO public.orders VALUES (1, 'hidden', 1)")
    code, said = refused(config, "capture")
    assert code == 3
    assert "ROW_SECURITY" in said
    assert "BYPASSRLS" in said
    code, said = run_command(config, "check").returncode, run_command(config, "check").stdout
    assert code == 1
    assert "ROW_SECURITY" in said


def test_a_table_without_a_key(config: Path, admin: Any) -> None:
    admin.execute("CREATE TABLE public.keyless (a int)")
    code, said = refused(config, "capture")
    assert code == 3
    assert "NO_KEY" in said
    assert "public.keyless" in said


def test_a_missing_publication(config: Path, source: Settings, admin: Any) -> None:
    admin.execute(f"DROP PUBLICATION {source.publication}")
    code, said = refused(edit(config, source={"admin": None}), "capture")
    assert code == 3
    assert "PUBLICATION_MISSING" in said
    assert "check --fix" in said


def test_commands_before_anything_is_captured(config: Path) -> None:
    for words in (("prove",), ("rebuild", "orders"), ("explain", "orders"), ("query", "SELECT 1 FROM orders")):
        code, said = refused(config, *words)
        assert code in (2, 3), said
        assert "remedy" in said


def test_a_position_that_is_none(config: Path) -> None:
    code, said = refused(config, "wait", "17")
    assert code == 2
    assert "pg_current_wal_insert_lsn" in said


def test_a_command_that_does_not_exist(config: Path) -> None:
    code, said = refused(config, "statsu")
    assert code == 2
    assert "status" in said
