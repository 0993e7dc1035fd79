"""Apply's loop over a real capture, with batches planned and not carried out: what it does as tables change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import jobs.apply
import jobs.vouching
from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.schema_log import read_schemas
from cdc.settings import Capture, Delta, Kafka, Settings
from jobs.apply import ApplyRun
from jobs.batch import Mode, Target, Task
from jobs.control import ControlServer
from jobs.vigil import Vigil
from tests.support.capturing import insert_lsn, running_capture
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

NAMES = ("followed", "stuck", "other")
TABLE = "CREATE TABLE public.{t} (id int PRIMARY KEY, name text, amount numeric(10,2));"


class Planned:
    """Takes the place of the runner of tasks."""

    tasks: list[Task]

    def __init__(self, *_: Any) -> None: ...

    def run(self, tasks: list[Task]) -> frozenset[Target]:
        type(self).tasks += tasks
        return frozenset()


@pytest.fixture
def settings(pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Any) -> Iterator[Settings]:
    ddl = "".join(TABLE.format(t=name) for name in NAMES)
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=ddl, tables=("public.*",), exclude=()) as source:
        source.views.mkdir(parents=True)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address),
                "capture": Capture(lookout_interval_s=0.3),
                "delta": Delta(path=str(tmp_path / "delta")),
            }
        )
        fix(settings)
        yield settings


@contextmanager
def applying(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Task]]:
    Planned.tasks = []
    monkeypatch.setattr(jobs.apply, "TaskRunner", Planned)
    monkeypatch.setattr(jobs.vouching, "recorded", lambda *_: [])
    monkeypatch.setattr(Vigil, "require_stores", lambda *_: None)
    stop, errors = threading.Event(), list[BaseException]()

    def body() -> None:
        try:
            with ControlServer(settings) as control:
                control.acquire(60)
                ApplyRun(settings, None, control, stop.wait).run()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield Planned.tasks
    finally:
        stop.set()
        thread.join(30)
    assert errors == []


def test_it_begins_anew_with_new_shapes_and_leaves_a_stopped_table_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.source.admin is not None
    with connect(settings.source, settings.source.admin) as admin, running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
        with applying(settings, monkeypatch) as tasks:

            def reached(name: str, lsn: int) -> list[Task]:
                topic = f"{settings.pipeline}.public.{name}"
                return [task for task in tasks if task.target.topic == topic and task.position.lsn >= lsn]

            begun = insert_lsn(admin)
            for name in NAMES:
                wait_until(partial(reached, name, begun), what=f"{name} to be loaded", timeout_s=90)
            admin.execute("ALTER TABLE public.followed DROP COLUMN amount, ADD COLUMN extra int")
            admin.execute("ALTER TABLE public.stuck DROP CONSTRAINT stuck_pkey")
            for name in NAMES:
                admin.execute(f"INSERT INTO public.{name} (id, name) VALUES (1, 'after')")
            lsn = insert_lsn(admin)
            wait_until(
                lambda: read_schemas(settings.kafka, settings.pipeline)["public", "stuck"].stopped, what="it to stop"
            )
            wait_until(lambda: reached("followed", lsn) and reached("other", lsn), what="the others", timeout_s=90)
            assert any(task.mode is Mode.REPLACE for task in reached("followed", lsn))

            before = insert_lsn(admin)
            admin.execute("ALTER TABLE public.stuck ADD PRIMARY KEY (id)")
            lsn = insert_lsn(admin)
            [task, *_] = wait_until(lambda: reached("stuck", lsn), what="it to flow again", timeout_s=90)
            assert task.mode is Mode.REPLACE
            assert task.floor_lsn >= before, "what its topic held before it was read again is void"
