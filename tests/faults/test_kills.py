"""Capture and apply killed (SIGKILL) at random moments under load; afterwards every copy equals Postgres, exactly."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from cdc.lsn import format_lsn
from cdc.settings import Apply, Cache, Delta, Kafka, Search, Settings
from cdc.stack.server import Endpoint
from tests.support.capturing import folded, insert_lsn, table_messages
from tests.support.processes import Command, json_of, run_command, write_config
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE
from tests.support.wait import wait_until

CAPTURE_KILLS = 20
APPLY_KILLS = 10
SEED = 20261118

VIEWS = {
    "paid_orders.sql": "-- sinks: delta, search, cache\nSELECT id, customer, amount, at FROM public.orders WHERE paid",
    "items.sql": "-- sinks: cache, search\n-- cache.value: hash\n"
    "SELECT line, order_id, product, quantity FROM public.order_items WHERE quantity > 1",
}


@pytest.fixture
def settings(source: Settings, kafka: Endpoint, opensearch: Endpoint, valkey: Endpoint, tmp_path: Path) -> Settings:
    source.views.mkdir(parents=True)
    for name, text in VIEWS.items():
        (source.views / name).write_text(text)
    return source.model_copy(
        update={
            "kafka": Kafka(bootstrap=kafka.address),
            "search": Search(url=f"http://{opensearch.address}"),
            "cache": Cache(url=f"redis://{valkey.address}/0", password=valkey.password),
            "delta": Delta(path=str(tmp_path / "delta")),
            "apply": Apply(master="local[2]"),
        }
    )


class Load:
    """Random transactions over every captured table, from a seed, in a thread."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._random = Random(SEED)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self.error: BaseException | None = None

    def start(self) -> Load:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.004):
                self._transaction()
                self.transactions += 1
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _transaction(self) -> None:
        random, connection = self._random, self._connection
        table = f'"{HOSTILE_SCHEMA}"."{HOSTILE_TABLE.replace(chr(34), chr(34) * 2)}"'
        with connection.transaction() as transaction:
            for _ in range(random.randint(1, 6)):
                key = random.randint(1, 400)
                match random.randint(0, 9):
                    case 0 | 1 | 2:
                        connection.execute(
                            "INSERT INTO public.orders VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE "
                            "SET amount = excluded.amount, paid = excluded.paid",
                            [
                                key,
                                f"c{key} ‘é’\t\\",
                                random.randint(-999, 999) / 100,
                                random.choice([True, False, None]),
                            ],
                        )
                    case 3:
                        connection.execute("DELETE FROM public.orders WHERE id = %s", [key])
                    case 4:
                        connection.execute(
                            "UPDATE public.orders SET id = %s WHERE id = %s AND NOT EXISTS "
                            "(SELECT 1 FROM public.orders WHERE id = %s)",
                            [key + 1000, key, key + 1000],
                        )
                    case 5 | 6:
                        connection.execute(
                            "INSERT INTO public.order_items VALUES (%s, %s, %s, %s) ON CONFLICT (line, order_id) "
                            "DO UPDATE SET quantity = excluded.quantity",
                            [key, random.randint(1, 4), random.choice([None, "", "p"]), random.randint(0, 3)],
                        )
                    case 7:
                        connection.execute(
                            "INSERT INTO public.events VALUES (%s, %s, %s) ON CONFLICT (id, day) DO UPDATE SET note = "
                            "excluded.note",
                            [key % 50, random.choice(["2025-06-01", "2026-06-01"]), random.choice(["n", None])],
                        )
                    case 8:
                        connection.execute(
                            f'INSERT INTO {table} VALUES (%s, %s, %s, %s) ON CONFLICT ("Key "" 1", "select") '
                            'DO UPDATE SET "a.b`c" = excluded."a.b`c"',
                            [f"k\t{key % 30}", key % 3, random.choice(["v", None, "\\N"]), "é"],
                        )
                    case _:
                        connection.execute("DELETE FROM public.order_items WHERE order_id = %s", [key])
            if random.random() < 0.1:
                raise psycopg.Rollback(transaction)


@pytest.fixture
def commands(settings: Settings, tmp_path: Path) -> Iterator[tuple[Path, Command, Command]]:
    config = write_config(settings, tmp_path)
    capture = Command(config, ("capture",), tmp_path / "capture.log")
    apply = Command(config, ("apply",), tmp_path / "apply.log")
    yield config, capture, apply
    for command in (apply, capture):
        if command.alive:
            command.stop()


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_thirty_kills(
    settings: Settings, admin: psycopg.Connection[Any], commands: tuple[Path, Command, Command]
) -> None:
    config, capture, apply = commands
    random = Random(SEED)
    admin.execute("INSERT INTO public.orders SELECT g, 'first', g, g % 2 = 0 FROM generate_series(1, 300) g")
    load = Load(admin).start()
    try:
        capture.start()
        apply.start()
        kills = ["capture"] * CAPTURE_KILLS + ["apply"] * APPLY_KILLS
        random.shuffle(kills)
        for victim in kills:
            command = capture if victim == "capture" else apply
            # The moment is the test's input: anywhere in a start, a snapshot, a batch or a pause.
            threading.Event().wait(random.uniform(0.3, 2.0) if victim == "capture" else random.uniform(2.0, 9.0))
            assert command.alive, command.text()[-3000:]
            command.kill()
            command.start()
    finally:
        load.stop()
    assert load.transactions > 1000
    _everything_is_equal(settings, admin, config, capture, apply)


def _everything_is_equal(
    settings: Settings, admin: psycopg.Connection[Any], config: Path, capture: Command, apply: Command
) -> None:
    waited = run_command(config, "wait", format_lsn(insert_lsn(admin)), "--timeout", "120")
    assert waited.returncode == 0, waited.stderr + apply.text()[-3000:] + capture.text()[-3000:]
    _topics_equal(settings, admin)
    proved = run_command(config, "prove", "--json", timeout_s=300)
    proofs = json_of(proved)
    assert proved.returncode == 0, json.dumps([proof for proof in proofs if not proof["holds"]], indent=1)
    assert {(proof["view"], proof["sink"]) for proof in proofs} >= {
        ("paid_orders", "delta"),
        ("paid_orders", "search"),
        ("paid_orders", "cache"),
        ("items", "search"),
        ("items", "cache"),
        ("public.orders", "delta"),
    }
    assert wait_until(lambda: run_command(config, "status", "--json").returncode == 0, what="status to be in order")


def _topics_equal(settings: Settings, admin: psycopg.Connection[Any]) -> None:
    for table in ("orders", "order_items", "events", "documents"):
        positions: list[tuple[int, int]] = []
        state = folded(
            table_messages(settings, "public", table),
            lambda event, seen=positions: seen.append((event["source"]["commit_lsn"], event["source"]["ordinal"])),
        )
        streamed = [position for position in positions if position[1] > 0]
        assert len(streamed) == len(set(streamed)), f"{table}: a change is there twice"
        rows = admin.execute(f"SELECT to_jsonb(t)::text FROM public.{table} t").fetchall()
        assert len(state) == len(rows)
    amounts = dict(admin.execute("SELECT id, amount::text FROM public.orders").fetchall())
    captured = folded(table_messages(settings, "public", "orders"))
    assert {after["id"]: after["amount"] for after in captured.values()} == amounts
