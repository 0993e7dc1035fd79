"""A whole pipeline for a module of tests: a source with hostile names, views in all sinks, capture and apply running.

The processes are the product's own commands; tests may kill and start them, and must leave them running.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.check.fix import fix
from cdc.lsn import format_lsn
from cdc.postgres import connect
from cdc.settings import Apply, Cache, Capture, Delta, History, Kafka, Search, Settings
from cdc.stack.server import Endpoint
from jobs.control import apply_owner
from tests.support.capturing import insert_lsn
from tests.support.processes import Command, run_command, write_config
from tests.support.servers import CANARY, PostgresServer, fresh_database
from tests.support.source import prepared_source
from tests.support.spark import SHORT_LIVED
from tests.support.wait import wait_until

VIEWS = {
    "paid_orders": "-- sinks: delta, search, cache, kafka\n"
    "SELECT id, customer, amount, at FROM public.orders WHERE paid",
    "items": "-- sinks: cache, search\n-- cache.value: hash\n"
    "SELECT line, order_id, product, quantity FROM public.order_items WHERE quantity > 1",
    "hostile": "-- sinks: delta, search, cache, kafka\n"
    'SELECT "Key "" 1", "select", "a.b`c", "é %s {}" AS "é" FROM "we.ird *Schema"."""; drop table x; --/../é"',
}


@dataclass
class Pipeline:
    """Everything that a test needs to disturb it and to see what comes of it."""

    settings: Settings
    config: Path
    admin: psycopg.Connection[Any]
    capture: Command
    apply: Command

    def start(self) -> None:
        self.capture.start()
        self.apply.start()

    def start_apply(self) -> None:
        """Until it is the one that applies: before that, commands would find none and apply by themselves."""
        self.apply.start()
        assert self.apply.process is not None
        own = f"{socket.gethostname()}:{self.apply.process.pid}"
        wait_until(lambda: apply_owner(self.settings) == own, what="apply at work", timeout_s=120)

    def run(self, *words: str, timeout_s: float = 300) -> Any:
        return run_command(self.config, *words, timeout_s=timeout_s)

    def token(self) -> str:
        """Where the source's log ends: everything committed so far lies before it."""
        return format_lsn(insert_lsn(self.admin))

    def catch_up(self, timeout_s: int = 400) -> None:
        """Until every view in every sink contains what is committed now."""
        waited = self.run("wait", self.token(), "--timeout", str(timeout_s), timeout_s=timeout_s + 120)
        assert waited.returncode == 0, waited.stderr + self.apply.text()[-3000:] + self.capture.text()[-3000:]

    def prove(self, *views: str) -> list[dict[str, Any]]:
        """The proofs; what does not hold is for the test to judge."""
        proved = self.run("prove", "--json", *views)
        assert proved.stdout, proved.stderr
        proofs: list[dict[str, Any]] = json.loads(proved.stdout)
        assert (proved.returncode == 0) == all(proof["holds"] is not False for proof in proofs), proved.stderr
        return proofs

    def require_equal(self) -> list[dict[str, Any]]:
        """Every view in every sink equals Postgres."""
        proofs = self.prove()
        wrong = [proof for proof in proofs if not proof["holds"]]
        assert not wrong, json.dumps(wrong, indent=1)
        expected = {(name, sink) for name in VIEWS for sink in ("search", "cache")} | {("public.orders", "delta")}
        assert {(proof["view"], proof["sink"]) for proof in proofs} >= expected
        return proofs

    def reconnect(self) -> None:
        """After a crash of Postgres."""
        assert self.settings.source.admin is not None
        self.admin.close()
        self.admin = connect(self.settings.source, self.settings.source.admin)

    def stop(self) -> None:
        with ExitStack() as both:
            for command in (self.capture, self.apply):
                if command.alive:
                    both.callback(command.stop)


@dataclass(frozen=True)
class Stores:
    """The servers besides Postgres."""

    kafka: Endpoint
    opensearch: Endpoint
    valkey: Endpoint


@contextmanager
def pipeline_on(
    postgres: PostgresServer,
    stores: Stores,
    folder: Path,
    views: Mapping[str, str] = VIEWS,
    spark: Mapping[str, str] = SHORT_LIVED,
    *,
    marks: bool = False,
    history: tuple[str, ...] = (),
    **source_options: Any,
) -> Iterator[Pipeline]:
    """A pipeline with its processes not yet started; `source_options` are those of a prepared source."""
    with (
        fresh_database(postgres) as database,
        prepared_source(database, f"t{secrets.token_hex(5)}", folder, **source_options) as source,
    ):
        source.views.mkdir(parents=True)
        for name, text in views.items():
            (source.views / f"{name}.sql").write_text(text)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=stores.kafka.address),
                "search": Search(url=f"http://{stores.opensearch.address}"),
                "cache": Cache(url=f"redis://{stores.valkey.address}/0", password=stores.valkey.password),
                "delta": Delta(path=str(folder / "delta"), deletion_vectors=marks),
                "apply": Apply(master="local[2]", spark=dict(spark)),
                "history": History(tables=history),
                "capture": Capture(lookout_interval_s=1),
            }
        )
        fix(settings)
        config = write_config(settings, folder)
        assert settings.source.admin is not None
        with connect(settings.source, settings.source.admin) as admin:
            capture = Command(config, ("capture",), folder / "capture.log")
            apply = Command(config, ("apply",), folder / "apply.log")
            pipeline = Pipeline(settings, config, admin, capture, apply)
            try:
                yield pipeline
            finally:
                pipeline.stop()
                pipeline.admin.close()
                _no_secrets_in((capture.log, apply.log), settings)


def _no_secrets_in(logs: Iterable[Path], settings: Settings) -> None:
    """Neither a row's value nor a password."""
    source = settings.source
    secrets_of = [role.secret() for role in (source.stream, source.read, source.admin) if role is not None]
    for log in logs:
        text = log.read_text(errors="replace") if log.exists() else ""
        for secret in [CANARY, settings.cache.secret(), *secrets_of]:
            assert secret is not None
            assert secret not in text, f"a row's value or a password is in {log}"


@pytest.fixture(scope="session")
def stores(kafka: Endpoint, opensearch: Endpoint, valkey: Endpoint) -> Stores:
    """The shared servers."""
    return Stores(kafka, opensearch, valkey)


@pytest.fixture(scope="module")
def pipeline(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A running pipeline with some rows, caught up once."""
    with pipeline_on(postgres, stores, tmp_path_factory.mktemp("pipeline")) as made:
        fill(made.admin)
        made.start()
        made.catch_up()
        yield made


def fill(admin: psycopg.Connection[Any]) -> None:
    """A few hundred rows, a canary among them that must turn up in no log."""
    admin.execute(
        "INSERT INTO public.orders SELECT g, %s || g, g / 8.0, g %% 2 = 0 FROM generate_series(1, 300) g",
        [f"{CANARY} ‘é’\t\\"],
    )
    admin.execute(
        "INSERT INTO public.order_items SELECT g, g % 4, CASE WHEN g % 5 > 0 THEN 'p' || g END, g % 4 "
        "FROM generate_series(1, 200) g"
    )
    admin.execute(
        'INSERT INTO "we.ird *Schema"."""; drop table x; --/../é" SELECT \'k\' || g, g % 3, '
        "CASE WHEN g % 2 = 0 THEN '\\N' END, 'é' FROM generate_series(1, 40) g"
    )
