"""Histories of a real source, under changes of every kind and kills of apply: each past state is told as it was."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
import pytest

import afterimage
from cdc.check.fix import fix
from cdc.errors import CdcError
from cdc.lsn import format_lsn, parse_lsn
from cdc.postgres import connect
from cdc.settings import Apply, Delta, History, Kafka, Settings
from cdc.stack.server import Endpoint
from jobs.ledger import Ledger
from jobs.query import parse_when, run_query
from tests.support.capturing import folded, table_messages
from tests.support.pipelines import Pipeline
from tests.support.processes import Command, write_config
from tests.support.servers import PostgresServer, fresh_database
from tests.support.source import prepared_source
from tests.support.spark import SHORT_LIVED
from tests.support.wait import wait_until

HOSTILE = '"we.ird *Schema"."""; drop table x; --/../é"'
TABLES = ("public.orders", "public.order_items", HOSTILE)
SEED, STEPS = 20261119, 50
TRUNCATE_AT, ALTER_AT, KILLS_AT = 20, 30, (15, 25, 35)


WRITTEN = '"event": "view written"'


@dataclass(frozen=True)
class Noted:
    """What the tables held, read by the only one who writes them, and the position and time of that."""

    lsn: str
    time: dt.datetime
    rows: dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def pipeline(postgres: PostgresServer, kafka: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Mirrors alone, two of them with a history from the beginning."""
    folder = tmp_path_factory.mktemp("history")
    with fresh_database(postgres) as database, prepared_source(database, "history", folder) as source:
        source.views.mkdir(parents=True)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address),
                "delta": Delta(path=str(folder / "delta")),
                "apply": Apply(master="local[2]", spark=SHORT_LIVED),
                "history": History(tables=("public.order*", '"we.ird *Schema".*'), keep="1h"),
            }
        )
        fix(settings)
        config = write_config(settings, folder)
        assert settings.source.admin is not None
        with connect(settings.source, settings.source.admin) as admin:
            capture = Command(config, ("capture",), folder / "capture.log")
            apply = Command(config, ("apply",), folder / "apply.log")
            made = Pipeline(settings, config, admin, capture, apply)
            try:
                yield made
            finally:
                made.stop()


def step(admin: psycopg.Connection[Any], random: Random, number: int) -> None:
    """One transaction."""
    key = random.randint(1, 12)
    with admin.transaction():
        for _ in range(random.randint(1, 4)):
            match random.randint(0, 6):
                case 0 | 1:
                    admin.execute(
                        "INSERT INTO public.orders (id, customer, amount, paid) VALUES (%s, %s, %s, %s) "
                        "ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, paid = excluded.paid",
                        [key, f"c{number}", random.randint(-999, 999) / 100, random.choice([True, False, None])],
                    )
                case 2:
                    admin.execute("DELETE FROM public.orders WHERE id = %s", [key])
                case 3:
                    moved = 1000 * number + random.randint(0, 999)
                    admin.execute("UPDATE public.orders SET id = %s WHERE id = %s", [moved, key])
                case 4:
                    admin.execute(
                        "INSERT INTO public.order_items VALUES (%s, %s, 'p', 1)", [number, random.random() * 99]
                    )
                case 5:
                    admin.execute(
                        "UPDATE public.order_items SET quantity = quantity + 1 WHERE order_id %% 3 = %s", [key % 3]
                    )
                case _:
                    admin.execute(
                        f"INSERT INTO {HOSTILE} VALUES (%s, %s, %s, 'é') ON CONFLICT DO NOTHING".encode(),
                        [f"k{key}", number, random.choice([None, "x"])],
                    )
            key = random.randint(1, 12)


def note(admin: psycopg.Connection[Any]) -> Noted:
    """Between two milliseconds, so that a time means one state."""
    admin.execute("SELECT pg_sleep(0.003)")
    lsn, time = admin.execute("SELECT pg_current_wal_insert_lsn()::text, clock_timestamp()").fetchone()
    admin.execute("SELECT pg_sleep(0.003)")
    rows = {}
    for table in TABLES:
        cursor = admin.execute(f"SELECT * FROM {table} ORDER BY 1, 2".encode())
        names = [column.name for column in cursor.description or ()]
        rows[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return Noted(lsn, time, rows)


def as_of(settings: Settings, when: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    found, lsns = {}, set()
    for table in TABLES:
        answer = run_query(settings, f"SELECT * FROM {table} ORDER BY 1, 2", as_of=parse_when(when))
        lsns.add(answer.cut.lsn)
        named = {delta: delta for delta in answer.table.column_names}
        if table == HOSTILE:
            named = {'Key%20"%201': 'Key " 1', "a%2eb%60c": "a.b`c", "é%20%25s%20%7b%7d": "é %s {}"}
        found[table] = [
            {named.get(name, name): value for name, value in row.items()} for row in answer.table.to_pylist()
        ]
    return min(lsns), found


@pytest.mark.timeout(900)
def test_every_past_state_is_told_after_kills(pipeline: Pipeline) -> None:
    random, admin, settings = Random(SEED), pipeline.admin, pipeline.settings
    for number in range(10):
        step(admin, random, number)
    pipeline.start()
    pipeline.catch_up()
    noted = []
    for number in range(10, STEPS):
        if number == TRUNCATE_AT:
            admin.execute("TRUNCATE public.orders")
        if number == ALTER_AT:
            admin.execute("ALTER TABLE public.order_items ADD COLUMN later text")
        written = pipeline.apply.text().count(WRITTEN)
        step(admin, random, number)
        noted.append(note(admin))
        if number in KILLS_AT:
            # As soon as one table of a batch has been committed to: others have not, nor has the ledger.
            admin.execute("INSERT INTO public.order_items VALUES (%s, 0, 'q', 1)", [-number])
            wait_until(lambda: pipeline.apply.text().count(WRITTEN) > written, timeout_s=200, what="a commit")  # noqa: B023
            pipeline.apply.kill()
            pipeline.apply.start()
    pipeline.catch_up(400)
    for each in noted:
        assert as_of(settings, each.lsn)[1] == each.rows, each.lsn
        lsn, rows = as_of(settings, each.time.isoformat())
        assert rows == each.rows, each.time
        assert lsn >= parse_lsn(each.lsn)
    require_once(settings)
    proofs = pipeline.prove()
    assert all(proof["holds"] for proof in proofs), proofs
    assert {proof["view"] for proof in proofs if proof["sink"] == "history"} >= {"public.orders", "public.order_items"}


def require_once(settings: Settings) -> None:
    """The log has each change of the topic that came after its beginning, and none twice."""
    state = Ledger(settings.delta_root).read()
    pipeline = afterimage.open_folder(settings.delta_root)
    begin = _begin(settings, state.lsn)
    events: list[tuple[int, int]] = []
    folded(
        table_messages(settings, "public", "orders"),
        lambda event: events.append((event["source"]["commit_lsn"], event["source"]["ordinal"])),
    )
    sql = f'SELECT "__lsn", "__ordinal" FROM orders_changes WHERE "__op" <> \'t\' AND "__lsn" >= {begin}'
    logged = [tuple(row.values()) for row in pipeline.at().query(sql).arrow().to_pylist()]
    assert sorted(logged) == sorted(set(events) & {each for each in events if each[0] >= begin})


def _begin(settings: Settings, lsn: int) -> int:
    with pytest.raises(CdcError, match="goes back to") as caught:
        run_query(settings, "SELECT 1 AS x FROM orders", as_of=parse_when("0/1"))
    assert caught.value.code == "HISTORY_BEYOND"
    begin = caught.value.message.partition("goes back to ")[2].partition(" ")[0]
    return parse_lsn(begin)


def test_tables_without_a_history_have_a_short_past(pipeline: Pipeline) -> None:
    """By what the ledger named; else it is said how far back one can go."""
    admin, settings = pipeline.admin, pipeline.settings
    if not pipeline.apply.alive:
        pipeline.start()
    admin.execute("INSERT INTO public.documents (body) VALUES ('one')")
    pipeline.catch_up()
    before = Ledger(settings.delta_root).read()
    admin.execute("INSERT INTO public.documents (body) VALUES ('two')")
    pipeline.catch_up()
    sql = "SELECT count(*) AS n FROM documents d LEFT JOIN orders o ON false"
    printed = pipeline.run("query", sql, "--as-of", format_lsn(before.lsn), "--format", "json")
    assert json.loads(printed.stdout) == [{"n": 1}], printed.stderr
    assert f"as of {format_lsn(before.lsn)}" in printed.stderr
    assert run_query(settings, sql).table.to_pylist() == [{"n": 2}]
    with pytest.raises(CdcError) as caught:
        run_query(settings, sql, as_of=parse_when("0/1"))
    assert caught.value.code in ("NO_HISTORY", "HISTORY_BEYOND")
    cut = afterimage.open_folder(settings.delta_root).at(as_of=format_lsn(before.lsn))
    assert cut.lsn == format_lsn(before.lsn)
    assert cut.table("documents", ["body"]).arrow().to_pylist() == [{"body": "one"}]
