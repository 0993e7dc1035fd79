"""Columns under a rule, end to end: their values are in no topic, table, log or file, and prove still proves."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from cdc.changes import Trouble
from cdc.check import check
from cdc.check.fix import fix
from cdc.errors import ConfigError, OperatorError
from cdc.postgres import connect
from cdc.schema_log import read_schemas
from cdc.settings import Apply, Delta, Kafka, Settings
from cdc.stack.server import Endpoint
from tests.support.capturing import folded, insert_lsn, read_topic, running_capture, table_messages
from tests.support.processes import Command, run_command, write_config
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.spark import SHORT_LIVED
from tests.support.wait import wait_until

CANARY = "canary-9c41e7"
"""In every value that must not leave."""
KEY = "8f3b0c1d2e4f5a69788f3b0c1d2e4f5a"
DDL = f"""
CREATE TABLE public.users (
    id int PRIMARY KEY, ssn text NOT NULL, email varchar(200), phone text, born date, pay numeric(12,2), plain text
);
ALTER TABLE public.users ALTER ssn SET STORAGE EXTERNAL, ALTER email SET STORAGE EXTERNAL;
CREATE TABLE public.logins (email text PRIMARY KEY, at timestamptz);
ALTER TABLE public.logins REPLICA IDENTITY FULL;
CREATE FUNCTION public.person(g int) RETURNS public.users LANGUAGE sql AS $$
    SELECT g, '{CANARY}' || repeat('x', 5000), '{CANARY}' || g || repeat('y', 190 - length(g::text) - 13),
           '{CANARY}' || g, '1984-07-31'::date, 7731904625.77, 'plain ' || g
$$;
INSERT INTO public.users SELECT (public.person(g)).* FROM generate_series(1, 20) g;
INSERT INTO public.users VALUES (100, '{CANARY}', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.logins SELECT '{CANARY}' || g, '2026-01-01' FROM generate_series(1, 20) g;
"""
RULES: dict[str, Any] = {
    "public.users": {"ssn": "exclude", "email": "hash", "phone": "mask", "born": "mask", "pay": {"mask": "no"}},
    "*.logins": {"email": "hash"},
}
WORK = (
    "UPDATE public.users SET plain = 'changed' WHERE id < 5",  # leaves the long values out of the log
    f"UPDATE public.users SET ssn = '{CANARY}', phone = NULL, email = '{CANARY}' WHERE id = 6",
    "UPDATE public.users SET id = id + 1000 WHERE id = 7",
    "DELETE FROM public.users WHERE id = 8",
    f"INSERT INTO public.users VALUES (9000, '{CANARY}', '{CANARY}1', '{CANARY}', now(), 7731904625.77, 'new')",
    f"UPDATE public.logins SET at = '2026-02-02' WHERE email = '{CANARY}1'",
    f"UPDATE public.logins SET email = '{CANARY}moved' WHERE email = '{CANARY}2'",
    f"DELETE FROM public.logins WHERE email = '{CANARY}3'",
)
VIEW = "-- sinks: delta\nSELECT id, email AS contact, plain FROM public.users WHERE email IS NOT NULL"


@dataclass
class Private:
    settings: Settings
    admin: psycopg.Connection[Any]
    folder: Path


@pytest.fixture
def private(pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Endpoint) -> Iterator[Private]:
    key = tmp_path / "hash.key"
    key.write_text(KEY)
    rules = {"columns": RULES, "hash_key_file": key, "tables": ("public.*",), "exclude": ()}
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=DDL, **rules) as source:
        source.views.mkdir(parents=True)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address),
                "delta": Delta(path=str(tmp_path / "delta")),
                "apply": Apply(master="local[2]", spark=SHORT_LIVED),
            }
        )
        fix(settings)
        assert settings.source.admin is not None
        with connect(settings.source, settings.source.admin) as admin:
            yield Private(settings, admin, tmp_path)


def hashed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def everything_in_kafka(settings: Settings) -> bytes:
    """Keys, values and headers of all topics of the pipeline, with their names."""
    metadata = AdminClient({"bootstrap.servers": settings.kafka.bootstrap}).list_topics(timeout=10)
    topics = [topic for name, topic in metadata.topics.items() if name.startswith(settings.pipeline)]
    assert len(topics) >= 5
    parts = []
    for topic in topics:
        for message in read_topic(settings, topic.topic, len(topic.partitions)):
            headers = repr(message.headers()).encode()
            parts += [message.key() or b"", message.value() or b"", headers]
    return b"\n".join(parts)


def test_no_topic_has_a_value_under_a_rule(private: Private, capfd: pytest.CaptureFixture[str]) -> None:
    settings, admin = private.settings, private.admin
    with running_capture(settings) as capture:
        capture.wait_for(0)
        for statement in WORK:
            admin.execute(statement)
        capture.wait_for(insert_lsn(admin))
    written = everything_in_kafka(settings)
    for secret in (CANARY, KEY, "7731904625", "1984-07-31", '"ssn"'):
        assert secret.encode() not in written, secret
    logged = capfd.readouterr()
    assert CANARY not in logged.out + logged.err
    assert KEY not in logged.out + logged.err
    users = folded(table_messages(settings, "public", "users"))
    rows = admin.execute("SELECT id, email, phone, born::text, pay::text, plain FROM public.users").fetchall()
    assert users == {
        f'{{"id":{id_}}}': {
            "id": id_,
            "email": None if email is None else hashed(email),
            "phone": None if phone is None else "***",
            "born": None if born is None else "1970-01-01",
            "pay": None if pay is None else "no",
            "plain": plain,
        }
        for id_, email, phone, born, pay, plain in rows
    }
    logins = {after["email"] for after in folded(table_messages(settings, "public", "logins")).values()}
    assert logins == {hashed(email) for (email,) in admin.execute("SELECT email FROM public.logins")}


def test_a_restart_goes_on_under_the_same_rules_and_refuses_others(private: Private) -> None:
    settings, admin = private.settings, private.admin
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    with running_capture(settings) as capture:
        admin.execute(WORK[0])
        capture.wait_for(insert_lsn(admin))
    before = len(read_topic(settings, f"{settings.pipeline}._schema", 1))
    assert before == 2  # a restart says nothing new of the tables
    weaker = {**RULES, "public.users": {"email": "hash"}}
    source = settings.source.model_copy(update={"columns": weaker})
    with (
        pytest.raises(OperatorError) as caught,
        running_capture(settings.model_copy(update={"source": source})) as other,
    ):
        other.ended()
    assert caught.value.code == "RULES_CHANGED"


def test_a_renamed_column_stops_its_table_before_it_is_published(private: Private) -> None:
    settings, admin = private.settings, private.admin

    def trouble() -> Trouble | None:
        return read_schemas(settings.kafka, settings.pipeline)["public", "users"].stopped

    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        admin.execute("ALTER TABLE public.users RENAME ssn TO social")
        admin.execute(f"INSERT INTO public.users (id, social) VALUES (5000, '{CANARY}')")
        assert wait_until(trouble, what="the table to stop").code == "RULE_RENAMED"
        capture.wait_for(insert_lsn(admin))
    assert CANARY.encode() not in everything_in_kafka(settings)


def test_check_and_capture_refuse_a_rule_that_fits_nothing(private: Private) -> None:
    source = private.settings.source.model_copy(update={"columns": {"public.users": {"ssm": "exclude"}}})
    settings = private.settings.model_copy(update={"source": source})
    assert "COLUMN_RULE" in {finding.code for finding in check(settings, set())}
    with pytest.raises(ConfigError) as caught, running_capture(settings) as capture:
        capture.ended()
    assert caught.value.code == "COLUMN_RULE"
    assert "ssn" in str(caught.value.hint)


def test_delta_and_files_have_none_either_and_prove_compares_what_was_published(private: Private) -> None:
    settings, admin = private.settings, private.admin
    (settings.views / "contacts.sql").write_text(VIEW)
    config = write_config(settings, private.folder)
    capture = Command(config, ("capture",), private.folder / "capture.log").start()
    try:
        wait_until(lambda: "streaming" in capture.text(), what="the snapshot")
        for statement in WORK:
            admin.execute(statement)
        admin.execute("INSERT INTO public.users SELECT (public.person(g)).* FROM generate_series(20000, 20200) g")
        proved = run_command(config, "prove", "--json", timeout_s=300)
    finally:
        capture.stop()
    assert proved.returncode == 0, proved.stdout + proved.stderr + capture.text()
    proofs = {proof["view"]: proof for proof in json.loads(proved.stdout)}
    assert proofs.keys() == {"public.users", "public.logins", "contacts"}
    assert all(proof["holds"] and proof["rows"] > 0 for proof in proofs.values())
    tables = [DeltaTable(f"{settings.delta_root}/{view}").to_pyarrow_table() for view in proofs]
    assert all("ssn" not in table.column_names and table.num_rows for table in tables)
    assert CANARY not in repr([table.to_pylist() for table in tables])
    kept = [path for path in private.folder.rglob("*") if path.is_file() and path.name not in ("hash.key", config.name)]
    for path in kept:
        content = path.read_bytes()
        assert CANARY.encode() not in content, path
        assert KEY.encode() not in content, path
