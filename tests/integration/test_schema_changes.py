"""Schema changes while capture runs and inside a backlog: each topic stays a full copy, or its table stops alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.progress import Progress
from cdc.schema_log import read_schemas
from cdc.schema_record import SchemaRecord
from cdc.settings import Capture, Kafka, Settings
from tests.support.capturing import RunningCapture, folded, insert_lsn, running_capture, table_messages
from tests.support.postgres_version import MAJOR
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

FOLLOWED = [
    "ALTER TABLE {t} ADD COLUMN extra int",
    "ALTER TABLE {t} ADD COLUMN extra int, ADD COLUMN more text",
    "ALTER TABLE {t} DROP COLUMN paid",
    "ALTER TABLE {t} DROP COLUMN paid, ADD COLUMN extra int",
    "ALTER TABLE {t} ALTER customer TYPE varchar",
    "ALTER TABLE {t} ALTER amount TYPE numeric(12,2)",
    "ALTER TABLE {t} ALTER customer DROP NOT NULL",
    "ALTER TABLE {t} REPLICA IDENTITY FULL",
    "VACUUM FULL {t}",
]
READ_AGAIN = [
    "ALTER TABLE {t} ADD COLUMN extra int NOT NULL DEFAULT 5",
    "ALTER TABLE {t} ADD COLUMN extra text DEFAULT md5(random()::text)",
    "ALTER TABLE {t} RENAME COLUMN paid TO bought",
    "ALTER TABLE {t} ALTER amount TYPE text USING 'x' || amount",
    "ALTER TABLE {t} ALTER paid TYPE boolean USING NOT paid",
    "ALTER TABLE {t} DROP COLUMN paid; ALTER TABLE {t} ADD COLUMN paid boolean",
    "ALTER TABLE {t} DROP CONSTRAINT {name}_pkey, ADD PRIMARY KEY (customer)",
    "BEGIN; DROP TABLE {t}; CREATE TABLE {t} (id bigint PRIMARY KEY, customer text);"
    "INSERT INTO {t} VALUES (1, 'x'); ALTER PUBLICATION {publication} ADD TABLE {t}; GRANT SELECT ON {t} TO {read};"
    "COMMIT",
]
STOPS = {
    "ALTER TABLE {t} DROP CONSTRAINT {name}_pkey": ("NO_KEY", "ALTER TABLE {t} ADD PRIMARY KEY (id)"),
    "ALTER TABLE {t} RENAME TO {name}_x": ("TABLE_RENAMED", "ALTER TABLE {t}_x RENAME TO {name}"),
    "ALTER PUBLICATION {publication} DROP TABLE {t}": (
        "PUBLICATION_LACKS",
        "ALTER PUBLICATION {publication} ADD TABLE {t}",
    ),
    "ALTER PUBLICATION {publication} DROP TABLE {t}; ALTER PUBLICATION {publication} ADD TABLE {t} (id, customer)": (
        "PUBLICATION_PARTIAL",
        "ALTER PUBLICATION {publication} DROP TABLE {t}; ALTER PUBLICATION {publication} ADD TABLE {t}",
    ),
    "ALTER PUBLICATION {publication} DROP TABLE {t};ALTER PUBLICATION {publication} ADD TABLE {t} WHERE (id > 10)": (
        "PUBLICATION_PARTIAL",
        "ALTER PUBLICATION {publication} DROP TABLE {t}; ALTER PUBLICATION {publication} ADD TABLE {t}",
    ),
    "DROP TABLE {t}": (
        "TABLE_DROPPED",
        "BEGIN; CREATE TABLE {t} (id bigint PRIMARY KEY, customer text);"
        "ALTER PUBLICATION {publication} ADD TABLE {t}; GRANT SELECT ON {t} TO {read}; COMMIT",
    ),
}
TABLE = """
CREATE TABLE {t} (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(10,2), paid boolean);
INSERT INTO {t} SELECT g, 'c' || g, g * 1.5, g % 2 = 0 FROM generate_series(1, 20) g;
"""
PARTITIONED = """
CREATE TABLE public.events (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
CREATE TABLE public.events_1 PARTITION OF public.events FOR VALUES FROM (0) TO (10);
CREATE TABLE public.events_2 PARTITION OF public.events FOR VALUES FROM (10) TO (20);
INSERT INTO public.events SELECT g, 'n' || g FROM generate_series(1, 19) g;
CREATE TABLE public.others (id int PRIMARY KEY);
"""


@contextmanager
def source_of(database: Database, pipeline: str, folder: Path, kafka: Any, ddl: str) -> Iterator[Settings]:
    with prepared_source(database, pipeline, folder, ddl=ddl, tables=("public.*",), exclude=()) as source:
        kept = {"kafka": Kafka(bootstrap=kafka.address, partitions=2), "capture": Capture(lookout_interval_s=0.2)}
        settings = source.model_copy(update=kept)
        fix(settings)
        yield settings


@pytest.fixture
def prepared(pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Any) -> Any:
    return lambda ddl: source_of(pg_database, pipeline_name, tmp_path, kafka, ddl)


@contextmanager
def superuser(settings: Settings) -> Iterator[Any]:
    assert settings.source.admin is not None
    with connect(settings.source, settings.source.admin) as connection:
        yield connection


def alter(settings: Settings, admin: Any, name: str, ddl: str) -> None:
    read = f'"{settings.source.read.user}"'
    admin.execute(ddl.format(t=f"public.{name}", name=name, publication=settings.publication, read=read))


def touch(admin: Any, name: str) -> None:
    admin.execute(f"UPDATE public.{name} SET id = id WHERE id <= 3")
    admin.execute(f"DELETE FROM public.{name} WHERE id = 4")


def record(settings: Settings, name: str) -> SchemaRecord:
    return read_schemas(settings.kafka, settings.pipeline)["public", name]


def settle(capture: RunningCapture, admin: Any, besides: str = "") -> Progress:
    """Until every table `besides` one is followed, with everything committed so far."""
    lsn, besides = insert_lsn(admin), f"{capture.settings.pipeline}.public.{besides}"

    def followed() -> Progress | None:
        progress = capture.wait_for(lsn)
        stopped = {topic for topic, stop in progress.stopped.items() if stop.covers(progress.lsn)}
        return progress if stopped <= {besides} else None

    return wait_until(followed, what="all tables to be followed", timeout_s=60)


def rows(admin: Any, name: str) -> dict[str, dict[str, str | None]]:
    """The table as its topic should hold it."""
    found = admin.execute(
        f"SELECT (SELECT json_object_agg(key, value) FROM json_each_text(to_json(t))) FROM public.{name} t"
    )
    return {row[0]["id"]: row[0] for row in found}


def captured(settings: Settings, name: str) -> dict[str, dict[str, str | None]]:
    """The table as a reader of its topic has it who takes its columns from the schema record."""
    columns = [column.name for column in record(settings, name).relation.columns]
    state = folded(table_messages(settings, "public", name)).values()
    found = [{column: text(after.get(column)) for column in columns} for after in state]
    return {str(row["id"]): row for row in found}


def text(value: Any) -> str | None:
    return None if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("in_backlog", [False, True], ids=["running", "backlog"])
def test_the_topics_stay_full_copies(prepared: Any, in_backlog: bool) -> None:
    tables = {f"t{number}": ddl for number, ddl in enumerate(FOLLOWED + READ_AGAIN)}
    with (
        prepared("".join(TABLE.format(t=f"public.{name}") for name in tables)) as settings,
        superuser(settings) as admin,
    ):
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
            if not in_backlog:
                for name, ddl in tables.items():
                    alter(settings, admin, name, ddl)
                    touch(admin, name)
                progress = settle(capture, admin)
                topics = {f"{settings.pipeline}.public.{name}" for name, ddl in tables.items() if ddl in READ_AGAIN}
                assert progress.stopped.keys() == topics
        if in_backlog:
            for name, ddl in tables.items():
                touch(admin, name)
                alter(settings, admin, name, ddl)
                admin.execute(f"INSERT INTO public.{name} (id, customer) VALUES (500, 'between')")
                admin.execute(f"CREATE DOMAIN public.passing_{name} AS int")
                admin.execute(f"ALTER TABLE public.{name} ADD COLUMN passing public.passing_{name}")
                admin.execute(f"UPDATE public.{name} SET passing = 1")
                admin.execute(f"DROP DOMAIN public.passing_{name} CASCADE")
                touch(admin, name)
            with running_capture(settings) as capture:
                settle(capture, admin)
        for name, ddl in tables.items():
            assert captured(settings, name) == rows(admin, name), ddl
            assert record(settings, name).stopped is None, ddl


def test_what_cannot_be_followed_stops_alone_until_it_is_mended(prepared: Any) -> None:
    # Column lists and row filters there are from 15 on.
    there = [ddl for ddl, (code, _) in STOPS.items() if MAJOR >= 15 or code != "PUBLICATION_PARTIAL"]
    tables = {f"t{number}": ddl for number, ddl in enumerate(there)}
    made = "".join(TABLE.format(t=f"public.{name}") for name in ("other", *tables))
    with prepared(made) as settings, superuser(settings) as admin, running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        for name, ddl in tables.items():
            alter(settings, admin, name, ddl)
        wait_until(
            lambda: [name for name in tables if record(settings, name).stopped is None] == [],
            what="the tables to stop",
        )
        for name, ddl in tables.items():
            trouble = record(settings, name).stopped
            assert trouble is not None
            assert (trouble.code, bool(trouble.remedy)) == (STOPS[ddl][0], True)
        admin.execute("INSERT INTO public.other VALUES (100, 'flows on', 1, true)")
        capture.wait_for(insert_lsn(admin))
        assert captured(settings, "other") == rows(admin, "other")
        for name, ddl in tables.items():
            alter(settings, admin, name, STOPS[ddl][1])
            admin.execute(f"INSERT INTO public.{name} (id, customer) VALUES (700, 'follows')")
        wait_until(
            lambda: capture.error or [name for name in tables if record(settings, name).stopped is not None] == [],
            what="the tables to be read again",
        )
        settle(capture, admin, besides="t1_x")  # the name that a table had for a while
        for name in tables:
            assert captured(settings, name) == rows(admin, name)


def test_partitions_come_and_go_with_their_rows(prepared: Any) -> None:
    with prepared(PARTITIONED) as settings, superuser(settings) as admin, running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        admin.execute("CREATE TABLE public.events_3 PARTITION OF public.events FOR VALUES FROM (20) TO (30)")
        admin.execute("INSERT INTO public.events VALUES (21, 'by the log')")
        assert settle(capture, admin).stopped == {}
        assert captured(settings, "events") == rows(admin, "events")
        for ddl in (
            "CREATE TABLE public.events_4 (id int PRIMARY KEY, note text);"
            "INSERT INTO public.events_4 VALUES (31, 'brought');"
            "ALTER TABLE public.events ATTACH PARTITION public.events_4 FOR VALUES FROM (30) TO (40)",
            "BEGIN; CREATE TABLE public.events_5 (id int NOT NULL, note text);"
            "INSERT INTO public.events_5 VALUES (41, 'b');"
            "ALTER TABLE public.events ATTACH PARTITION public.events_5 FOR VALUES FROM (40) TO (50); COMMIT",
            "ALTER TABLE public.events DETACH PARTITION public.events_1",
            "DROP TABLE public.events_2",
            "TRUNCATE public.events_3",
        ):
            admin.execute(ddl)
            wait_until(lambda: captured(settings, "events") == rows(admin, "events"), what=f"the topic to follow {ddl}")
            settle(capture, admin)
        admin.execute("UPDATE public.events SET note = 'still followed'")
        settle(capture, admin)
        assert captured(settings, "events") == rows(admin, "events") != {}


def test_a_table_joins_a_running_pipeline_and_one_that_is_taken_out_is_given_up(prepared: Any) -> None:
    with prepared(TABLE.format(t="public.first")) as settings, superuser(settings) as admin:
        with running_capture(settings) as capture:
            capture.wait_for(insert_lsn(admin))
            admin.execute(TABLE.format(t="public.second"))
            fix(settings)
            wait_until(
                lambda: ("public", "second") in read_schemas(settings.kafka, settings.pipeline), what="it to join"
            )
            touch(admin, "second")
            touch(admin, "first")
            settle(capture, admin)
            assert captured(settings, "second") == rows(admin, "second")
            assert captured(settings, "first") == rows(admin, "first")
        admin.execute("DROP TABLE public.second")
        without = settings.model_copy(
            update={"source": settings.source.model_copy(update={"exclude": ("public.second",)})}
        )
        with running_capture(without) as capture:
            capture.wait_for(insert_lsn(admin))
        assert read_schemas(settings.kafka, settings.pipeline).keys() == {("public", "first")}
