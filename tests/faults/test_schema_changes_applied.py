"""Schema changes as views see them: equal to Postgres at the new shape, or standing still alone and saying so."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc.check.fix import fix
from cdc.lsn import format_lsn
from cdc.postgres import connect
from cdc.schema_log import read_schemas
from cdc.settings import Apply, Capture, Delta, Kafka, Settings
from jobs.control import apply_owner
from tests.support.capturing import insert_lsn
from tests.support.processes import Command, run_command, write_config
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.spark import SHORT_LIVED
from tests.support.wait import wait_until

NAMES = ("followed", "filled", "stuck", "other")
TABLE = """
CREATE TABLE public.{t} (id int PRIMARY KEY, name text, amount numeric(10,2));
INSERT INTO public.{t} SELECT g, 'n' || g, g * 1.5 FROM generate_series(1, 50) g;
"""
VIEW = "-- sinks: delta\nSELECT id, name FROM public.other WHERE id > 10"
BROKEN = "-- sinks: delta\nSELECT id, amount FROM public.followed"
JOINED = "-- sinks: delta, kafka\nSELECT o.id, s.name FROM public.other o JOIN public.stuck s ON s.id = o.id"
OTHERS = ("public.followed", "public.filled", "public.other", "some", "sums")


@dataclass
class Running:
    """Capture and apply as processes."""

    settings: Settings
    config: Path
    admin: Any
    capture: Command
    apply: Command

    def run(self, *words: str) -> Any:
        return run_command(self.config, *words, timeout_s=300)

    def catch_up(self, *views: str) -> None:
        waited = self.run("wait", format_lsn(insert_lsn(self.admin)), *views, "--timeout", "270")
        assert waited.returncode == 0, waited.stderr + self.apply.text()[-3000:]

    def proofs(self, *views: str) -> dict[str, Any]:
        proved = self.run("prove", "--json", *views)
        assert proved.stdout, proved.stderr
        return {proof["view"]: proof for proof in json.loads(proved.stdout)}

    def stopped(self, name: str) -> bool:
        return read_schemas(self.settings.kafka, self.settings.pipeline)["public", name].stopped is not None

    def insert(self, *names: str) -> None:
        """A row more in each of these tables."""
        for name in names:
            self.admin.execute(f"INSERT INTO public.{name} (id, name) SELECT max(id) + 1, 'after' FROM public.{name}")

    def count(self, view: str) -> int:
        answer = self.run("query", f"SELECT count(*) AS n FROM {view}", "--format", "json")
        assert answer.stdout, answer.stderr
        return int(json.loads(answer.stdout)[0]["n"])

    def exclude(self, *tables: str) -> None:
        """Say so in the configuration, and start both again."""
        self.apply.stop()
        self.capture.stop()
        source = self.settings.source.model_copy(update={"exclude": tables})
        self.settings = self.settings.model_copy(update={"source": source})
        write_config(self.settings, self.config.parent)
        self.capture.start()
        self.apply.start()
        own = f"{socket.gethostname()}:{self.apply.process.pid}" if self.apply.process else ""
        wait_until(lambda: apply_owner(self.settings) == own, what="apply at work", timeout_s=120)

    def require_alone(self, codes: Mapping[str, str], remedies: Mapping[str, str]) -> dict[str, Any]:
        """Others go on; status, wait and prove say of these views, and of no other, what is wrong and what to do."""
        self.catch_up(*OTHERS)
        status = self.run("status", "--json")
        assert status.returncode == 1
        told: dict[str, Any] = json.loads(status.stdout)
        stopped = {view["view"]: view["stopped"] for view in told["views"] if view["stopped"] is not None}
        assert {view: trouble["code"] for view, trouble in stopped.items()} == codes
        assert {view for view, remedy in remedies.items() if remedy in stopped[view]["remedy"]} == remedies.keys()
        waited = self.run("wait", format_lsn(insert_lsn(self.admin)))
        assert waited.returncode == 3, waited.stderr
        assert "will not get there" in waited.stderr
        proofs = self.proofs()
        assert {view for view, proof in proofs.items() if not proof["holds"]} == codes.keys()
        assert all(proofs[view]["problem"] for view in codes)
        return told


@pytest.fixture
def running(pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Any) -> Iterator[Running]:
    ddl = "".join(TABLE.format(t=name) for name in NAMES)
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=ddl, tables=("public.*",), exclude=()) as source:
        source.views.mkdir(parents=True)
        (source.views / "some.sql").write_text(VIEW)
        (source.views / "sums.sql").write_text(BROKEN)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address),
                "capture": Capture(lookout_interval_s=0.3),
                "delta": Delta(path=str(tmp_path / "delta")),
                "apply": Apply(master="local[2]", spark=SHORT_LIVED),
            }
        )
        fix(settings)
        config = write_config(settings, tmp_path)
        assert settings.source.admin is not None
        with connect(settings.source, settings.source.admin) as admin:
            capture = Command(config, ("capture",), tmp_path / "capture.log").start()
            apply = Command(config, ("apply",), tmp_path / "apply.log").start()
            try:
                yield Running(settings, config, admin, capture, apply)
            finally:
                apply.stop()
                capture.stop()


def test_views_follow_or_stand_still_alone(running: Running) -> None:
    admin = running.admin
    running.catch_up()
    admin.execute("ALTER TABLE public.followed DROP COLUMN amount, ADD COLUMN extra int")
    admin.execute("ALTER TABLE public.filled ADD COLUMN extra int NOT NULL DEFAULT 5")
    admin.execute("ALTER TABLE public.stuck DROP CONSTRAINT stuck_pkey")
    for name in NAMES:
        admin.execute(f"INSERT INTO public.{name} (id, name) VALUES (100, 'after')")
    wait_until(lambda: running.stopped("stuck"), what="the table without a key to stop")
    wait_until(lambda: not running.stopped("filled"), what="the filled table to be read again")
    running.catch_up("public.followed", "public.filled", "public.other", "some")

    proofs = running.proofs("public.followed", "public.filled", "public.stuck", "some")
    assert {name for name, proof in proofs.items() if proof["holds"]} >= {"public.followed", "public.filled", "some"}
    assert not proofs["public.stuck"]["holds"]
    assert "no primary key" in proofs["public.stuck"]["problem"]

    status = running.run("status", "--json")
    assert status.returncode == 1
    views = {view["view"]: view for view in json.loads(status.stdout)["views"]}
    assert views["public.stuck"]["stopped"]["code"] == "NO_KEY"
    assert views["public.other"]["stopped"] is None
    sums = views["sums"]["stopped"]
    assert sums["code"] == "VIEW_UNKNOWN_COLUMN"
    assert "sums.sql:2:12" in sums["message"]
    assert "extra" in sums["remedy"], "the columns that there are"
    assert "`afterimage drop sums`" in sums["remedy"]
    assert running.count("sums") == 50
    (broken,) = running.proofs("sums").values()
    assert "sums.sql:2:12" in broken["problem"]
    assert "TABLE_STOPPED" in running.run("wait", format_lsn(insert_lsn(admin))).stderr
    alone = running.run("query", "SELECT count(*) AS n FROM stuck", "--format", "json")
    assert json.loads(alone.stdout)
    both = running.run("query", "SELECT count(*) FROM stuck, other")
    assert "TABLE_STOPPED" in both.stderr

    (running.settings.views / "sums.sql").unlink()
    admin.execute("ALTER TABLE public.stuck ADD PRIMARY KEY (id)")
    wait_until(lambda: not running.stopped("stuck"), what="it to be read again")
    running.catch_up("public.stuck", "public.other")
    assert all(proof["holds"] for proof in running.proofs().values())


@pytest.mark.timeout(900)
def test_a_dropped_table_leaves_its_views_alone_until_it_is_made_again(running: Running) -> None:
    admin = running.admin
    (running.settings.views / "joined.sql").write_text(JOINED)
    running.catch_up()
    assert running.count("joined") == 50
    admin.execute("DROP TABLE public.stuck")
    wait_until(lambda: running.stopped("stuck"), what="the dropped table to stop")
    running.insert("followed", "filled", "other")
    dropped = dict.fromkeys(("public.stuck", "joined"), "TABLE_DROPPED")
    running.require_alone(dropped, dict.fromkeys(dropped, "source.exclude"))
    assert (running.count("stuck"), running.count("joined")) == (50, 50)

    running.exclude("public.stuck")
    running.insert("followed", "filled", "other")
    wait_until(
        lambda: ("public", "stuck") not in read_schemas(running.settings.kafka, running.settings.pipeline),
        what="its schema record to go",
    )
    told = running.require_alone({"joined": "VIEW_UNKNOWN_TABLE"}, {"joined": "`afterimage drop joined`"})
    assert told["undeclared"] == ["public.stuck"]
    assert (running.count("stuck"), running.count("joined")) == (50, 50)

    admin.execute(TABLE.format(t="stuck"))
    admin.execute("DELETE FROM public.stuck WHERE id <= 20")
    running.exclude()
    fix(running.settings)
    wait_until(
        lambda: ("public", "stuck") in read_schemas(running.settings.kafka, running.settings.pipeline),
        what="it to be captured again",
        timeout_s=90,
    )
    running.catch_up()
    assert all(proof["holds"] for proof in running.proofs().values())
    assert running.count("joined") == 30
    assert json.loads(running.run("status", "--json").stdout)["undeclared"] == []
