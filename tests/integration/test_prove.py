"""Proofs against a real Postgres: every type equal when it is, and every way of being wrong found and named."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from cdc.check.fix import fix
from cdc.errors import TransientError
from cdc.settings import Kafka, Settings
from cdc.stack.server import Endpoint
from jobs.control import ControlServer, Run, RunTo, Stand
from jobs.prove import ControlHolder, Difference, Extras, LocalHolder, Progress, ViewProof, holder, prove
from sinks.protocol import Position
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.fakes.memory_sink import MemorySink
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

TABLES = """
CREATE DOMAIN public.price AS numeric(10,2);
CREATE TYPE public.mood AS ENUM ('fine', 'so so');
CREATE TABLE public.things (
    id bigint, part text, b boolean, s smallint, f4 real, f8 double precision, n numeric(10,2), dom public.price,
    anyn numeric, d date, ts timestamp, tz timestamptz, raw bytea, c char(4), arr int[], js jsonb, m public.mood,
    u uuid, PRIMARY KEY (id, part)
);
INSERT INTO public.things VALUES
(1, 'é', true, -5, 0.1, 1e20, 5, 7.5, 1.50, '2026-11-18', '2026-11-18 10:40:13.5', '2026-11-18 10:40:13+02',
 '\\x00ff', 'ab', '{1,NULL}', '{"a": 1.0}', 'so so', '6f1f1c2e-0000-4000-8000-000000000001'),
(2, '', false, NULL, 'NaN', '-0', NULL, -0.01, 'NaN', '0001-01-01', '0001-01-01', '9999-12-31 23:59:59.999999+00',
 '', NULL, '{}', 'null', NULL, NULL);
"""
COLUMNS = ("id", "part", "b", "s", "f4", "f8", "n", "dom", "anyn", "d", "ts", "tz", "raw", "c", "arr", "js", "m", "u")
STORED: list[tuple[Any, ...]] = [
    (
        1,
        "é",
        True,
        -5,
        0.10000000149011612,
        1e20,
        Decimal("5.00"),
        Decimal("7.50"),
        "1.50",
        dt.date(2026, 11, 18),
        dt.datetime.fromisoformat("2026-11-18T10:40:13.5"),
        dt.datetime(2026, 11, 18, 8, 40, 13, tzinfo=dt.UTC),
        b"\x00\xff",
        "ab  ",
        "{1,NULL}",
        '{"a": 1.0}',
        "so so",
        "6f1f1c2e-0000-4000-8000-000000000001",
    ),
    (
        2,
        "",
        False,
        None,
        float("nan"),
        -0.0,
        None,
        Decimal("-0.01"),
        "NaN",
        dt.date(1, 1, 1),
        dt.datetime.fromisoformat("0001-01-01T00:00"),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        b"",
        None,
        "{}",
        "null",
        None,
        None,
    ),
]


def spec(sql: str = "SELECT * FROM public.things", *sinks: SinkOptions, columns: tuple[str, ...] = COLUMNS) -> ViewSpec:
    key = ("id", "part")
    return ViewSpec(
        "things", Kind.MIRROR, "public", "things", key, key, columns, sql, "", sinks or (SinkOptions("delta"),), ""
    )


@pytest.fixture
def things(pg_database: Database, pipeline_name: str, tmp_path: Any) -> Iterator[Settings]:
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=TABLES, tables=("public.things",)) as settings:
        fix(settings)
        with pg_database.connect() as connection:
            connection.execute("GRANT USAGE ON TYPE public.mood TO public")
        yield settings


def at_lsn(*stored: MemorySink) -> LocalHolder:
    def run_to(lsn: int) -> int:
        for sink in stored:
            sink.lsn = lsn
        return lsn

    return LocalHolder(run_to)


def prove_one(
    settings: Settings, sink: MemorySink, view: ViewSpec | None = None, *, with_values: bool = False
) -> ViewProof:
    [proof] = prove(settings, [view or spec()], lambda *_: sink, at_lsn(sink), extras=Extras(with_values))
    return proof


def replaced(row: int, column: str, value: Any) -> list[tuple[Any, ...]]:
    rows = [list(stored) for stored in STORED]
    rows[row][COLUMNS.index(column)] = value
    return [tuple(each) for each in rows]


def test_every_type_holds(things: Settings) -> None:
    proof = prove_one(things, MemorySink(STORED))
    assert proof.examples == ()
    assert proof.holds, proof
    assert proof.rows == 2


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("b", False),
        ("s", 5),
        ("f4", 0.2),
        ("f8", 1.0000000000000002e20),
        ("n", Decimal("5.01")),
        ("dom", None),
        ("anyn", "1.5"),
        ("d", dt.date(2026, 11, 19)),
        ("ts", dt.datetime.fromisoformat("2026-11-18T10:40:13.500001")),
        ("tz", dt.datetime(2026, 11, 18, 10, 40, 13, tzinfo=dt.UTC)),
        ("raw", b"\x00"),
        ("c", "ab"),
        ("arr", "{1,2}"),
        ("js", '{"a":1.0}'),
        ("m", 3),
    ],
)
def test_one_wrong_value_is_found_and_its_key_named(things: Settings, column: str, value: Any) -> None:
    proof = prove_one(things, MemorySink(replaced(0, column, value)))
    assert (proof.different, proof.missing, proof.extra, proof.duplicate) == (1, 0, 0, 0)
    [example] = proof.examples
    assert (example.difference, example.key) == (Difference.DIFFERENT, {"id": "1", "part": "é"})


def test_both_values_are_told_when_asked_for(things: Settings) -> None:
    sink = MemorySink([*replaced(0, "n", "5.00")[:1], (3, "x", *STORED[1][2:])])
    proof = prove_one(things, sink, with_values=True)
    different, extra, missing = proof.examples
    assert (different.source, different.sink) == ({"n": "5.00"}, {"n": "'5.00' (str)"})
    assert (extra.source, (extra.sink or {})["id"]) == (None, "3")
    assert ((missing.source or {})["anyn"], missing.sink) == ("NaN", None)
    assert all(example.source is None for example in prove_one(things, sink).examples)


def test_missing_extra_and_repeated_rows(things: Settings) -> None:
    stray = (9, "x", *STORED[0][2:])
    proof = prove_one(things, MemorySink([stray, STORED[1], STORED[1]]))
    assert (proof.different, proof.missing, proof.extra, proof.duplicate) == (0, 1, 1, 1)
    assert [(each.difference, each.key["id"]) for each in proof.examples] == [
        (Difference.DUPLICATE, "2"),
        (Difference.EXTRA, "9"),
        (Difference.MISSING, "1"),
    ]
    assert not proof.holds


def test_a_key_that_is_not_unique_in_postgres(things: Settings) -> None:
    sql = "SELECT t.* FROM public.things t, generate_series(1, 2) WHERE id = 1"
    proof = prove_one(things, MemorySink(STORED[:1]), spec(sql))
    assert (proof.duplicate, proof.missing, proof.extra, proof.different) == (1, 0, 0, 0)
    assert proof.examples[0].key == {"id": "1", "part": "é"}


def test_each_sink_is_judged_by_itself(things: Settings) -> None:
    sinks = {
        "delta": MemorySink(STORED),
        "search": MemorySink(STORED[:1], name="search"),
        "cache": MemorySink(STORED, name="cache", error=TransientError("cache is away", "start it")),
    }
    view = spec("SELECT * FROM public.things", *map(SinkOptions, sinks))
    gone = replace(spec("SELECT nowhere FROM public.things"), name="gone")
    told: list[Progress] = []
    proofs = prove(things, [gone, view], lambda _, options: sinks[options.name], at_lsn(*sinks.values()), told.append)
    assert [(proof.sink, proof.holds) for proof in proofs] == [
        ("delta", False),
        ("delta", True),
        ("search", False),
        ("cache", False),
    ]
    assert "nowhere" in (proofs[0].problem or "")
    assert proofs[3].problem == "cache is away (start it)"
    assert len({proof.lsn for proof in proofs}) == 1
    assert Progress("reading delta", "things", "delta", 2, 2) in told


def test_an_entry_with_a_ttl_may_be_gone_but_not_wrong(things: Settings) -> None:
    view = spec("SELECT * FROM public.things", SinkOptions("cache", {"ttl": "60"}))
    assert prove_one(things, MemorySink(STORED[:1], name="cache"), view).holds
    assert not prove_one(things, MemorySink(replaced(0, "s", 6), name="cache"), view).holds


def test_a_sink_that_stands_elsewhere_is_no_proof_but_its_differences_are_shown(things: Settings) -> None:
    sinks = {"delta": MemorySink(STORED, None), "search": MemorySink(STORED[:1], 1, name="search")}
    view = spec("SELECT * FROM public.things", *map(SinkOptions, sinks))
    lost, behind = prove(things, [view], lambda _, options: sinks[options.name], at_lsn())
    assert "lost" in (lost.problem or "")
    assert "stands at 0/1" in (behind.problem or "")
    assert (behind.missing, behind.examples[0].key["id"]) == (1, "2")


def test_what_moves_while_it_is_read_is_read_again(things: Settings) -> None:
    sink = MemorySink(STORED)
    moves = iter([1, 1])

    def move() -> None:
        assert sink.lsn is not None
        sink.lsn += next(moves, 0)

    sink.while_read = move
    assert prove_one(things, sink).holds
    moves = iter([1] * 10)
    with pytest.raises(TransientError) as caught:
        prove_one(things, sink)
    assert caught.value.code == "PROVE_MOVED"


def test_a_snapshot_that_was_passed_is_taken_again(things: Settings) -> None:
    sink = MemorySink(STORED)
    asked: list[int] = []

    def run_to(lsn: int) -> int:
        asked.append(lsn)
        sink.lsn = lsn if len(asked) == 3 else lsn + 1
        return sink.lsn

    [proof] = prove(things, [spec()], lambda *_: sink, LocalHolder(run_to))
    assert proof.holds
    assert proof.lsn == asked[2]


@contextmanager
def apply_process(settings: Settings, sink: MemorySink, refresh: Callable[[], list[Any]]) -> Iterator[list[int]]:
    """An apply loop on the control topic: runs on by itself, and where it is told."""
    ends: list[int] = [1]
    stop = threading.Event()

    def batch(lsn: int) -> None:
        sink.replace(refresh(), Position(lsn, 0, {}))
        ends.append(lsn)

    def loop(server: ControlServer) -> None:
        while not stop.is_set():
            server.poll(0.02)
            match server.step(ends[-1]):
                case Run():
                    batch(ends[-1] + 1)
                case RunTo(lsn):
                    batch(lsn)
                case Stand():
                    pass

    with ControlServer(settings) as server:
        server.acquire(30)
        thread = threading.Thread(target=loop, args=[server])
        thread.start()
        try:
            yield ends
        finally:
            stop.set()
            thread.join()


def test_through_the_control_topic(things: Settings, kafka: Endpoint) -> None:
    settings = things.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})
    sink = MemorySink()
    with apply_process(settings, sink, lambda: list(STORED)) as ends:
        for _ in range(2):
            [proof] = prove(settings, [spec()], lambda *_: sink, ControlHolder(settings))
            assert proof.holds, proof
            assert proof.lsn in ends
    with apply_process(settings, sink, lambda: list(STORED[:1])):
        [proof] = prove(settings, [spec()], lambda *_: sink, ControlHolder(settings))
    assert (proof.missing, proof.holds) == (1, False)


def test_apply_is_let_go_after_an_error(things: Settings, kafka: Endpoint) -> None:
    settings = things.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})
    sink = MemorySink()
    sink.while_read = lambda: (_ for _ in ()).throw(KeyboardInterrupt())
    with apply_process(settings, sink, lambda: list(STORED)) as ends:
        with pytest.raises(KeyboardInterrupt):
            prove(settings, [spec()], lambda *_: sink, ControlHolder(settings))
        held = ends[-1]
        wait_until(lambda: ends[-1] > held, timeout_s=60, what="apply to run on")


def test_an_apply_that_never_comes_back_is_not_waited_for(
    things: Settings, kafka: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "ABSENCE_MAX_S", 0.2)
    monkeypatch.setattr(holder, "_LOOK_EVERY_S", 0.2)
    settings = things.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})
    told: list[Progress] = []
    with pytest.raises(TransientError) as caught:
        prove(settings, [spec()], lambda *_: MemorySink(), ControlHolder(settings, on_progress=told.append))
    assert caught.value.code == "APPLY_GONE"
    assert Progress("apply ends its batch") in told
