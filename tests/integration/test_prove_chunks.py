"""A view proved in chunks: the same findings as in one piece, exact while rows come, go and move between the chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import psycopg
import pytest

from cdc.check.fix import fix
from cdc.postgres import connect
from cdc.settings import Prove, Settings
from jobs.prove import Difference, Extras, LocalHolder, Mend, Mended, Progress, ViewProof, chunks, prove
from jobs.prove.chunks import large_views
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.fakes.memory_sink import MemorySink
from tests.support.servers import Database
from tests.support.source import prepared_source

ROWS = 1_000
TABLE = f"""
CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
CREATE TABLE public.many (name public.citext, id int, n int, note text, PRIMARY KEY (name, id));
INSERT INTO public.many SELECT chr(65 + g % 2 * 32 + g % 26) || g % 40, g, g, 'note ' || g
FROM generate_series(1, {ROWS}) g;
ANALYZE public.many;
"""
COLUMNS = ("name", "id", "n", "note")
SPEC = ViewSpec(
    "many",
    Kind.MIRROR,
    "public",
    "many",
    ("id", "name"),
    ("id", "name"),
    COLUMNS,
    "SELECT name, id, n, note FROM public.many",
    "",
    (SinkOptions("delta"),),
    "",
)
KINDS = {"name": "string", "id": "int", "n": "int", "note": "string"}
Row = tuple[Any, ...]


@pytest.fixture
def many(pg_database: Database, pipeline_name: str, tmp_path: Any) -> Iterator[Settings]:
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=TABLE, tables=("public.many",)) as settings:
        fix(settings)
        yield settings.model_copy(update={"prove": Prove(chunk_rows=90)})


@pytest.fixture
def admin(many: Settings) -> Iterator[psycopg.Connection[Any]]:
    assert many.source.admin is not None
    with connect(many.source, many.source.admin) as connection:
        yield connection


class Copy:
    """A sink that an apply of one line keeps up to date, but for the keys that `spoil` has changed."""

    def __init__(self, settings: Settings, admin: psycopg.Connection[Any]) -> None:
        self._settings = settings
        self._admin = admin
        self.sink = MemorySink(kinds=KINDS)
        self.spoiled: dict[tuple[Any, ...], list[Row]] = {}
        self.lsns: list[int] = []

    def run_to(self, lsn: int) -> int:
        self.lsns.append(lsn)
        rows = self._admin.execute("SELECT name::text, id, n, note FROM public.many").fetchall()
        kept = [row for row in rows if row[:2] not in self.spoiled]
        self.sink.stored = kept + [row for rows in self.spoiled.values() for row in rows]
        self.sink.lsn = lsn
        return lsn

    def mend(self, mend: Mend) -> Mended:
        for row in mend.rows:
            self.spoiled.pop((row[0], int(row[1] or 0)), None)
        for key in mend.gone:
            self.spoiled.pop((key[1], int(key[0] or 0)), None)
        self.run_to(mend.lsn)
        return Mended(len(mend.rows), len(mend.gone), mend.left)

    def prove(self, *, whole: bool = False, **extras: Any) -> ViewProof:
        extras = {"rest": lambda _: None, **extras}
        chosen = Prove() if whole else self._settings.prove
        settings = self._settings.model_copy(update={"prove": chosen})
        holder = LocalHolder(self.run_to)
        [proof] = prove(settings, [SPEC], lambda *_: self.sink, holder, extras=Extras(**extras))
        return proof


@pytest.fixture
def copy(many: Settings, admin: psycopg.Connection[Any]) -> Copy:
    return Copy(many, admin)


def counts(proof: ViewProof) -> dict[Difference, int]:
    return {
        Difference.MISSING: proof.missing,
        Difference.EXTRA: proof.extra,
        Difference.DIFFERENT: proof.different,
        Difference.DUPLICATE: proof.duplicate,
    }


def test_every_row_is_compared_once_each_chunk_at_an_lsn_of_its_own(copy: Copy) -> None:
    proof = copy.prove()
    assert proof.holds, proof
    assert proof.rows == ROWS
    assert proof.chunks == len(set(copy.lsns)) == -(-ROWS // 90)
    assert (proof.first_lsn, proof.lsn) == (copy.lsns[0], copy.lsns[-1])


def spoil_some(copy: Copy, random: Random) -> None:
    """A few keys, each in one of the ways that there are."""
    for number in random.sample(range(1, ROWS + 1), 12):
        row = copy._admin.execute("SELECT name::text, id, n, note FROM public.many WHERE id = %s", (number,)).fetchone()
        assert row is not None
        ways: list[Callable[[Row], list[Row]]] = [
            lambda row: [],
            lambda row: [row, row],
            lambda row: [(*row[:2], row[2] + 1, row[3])],
            lambda row: [(*row[:2], None, row[3])],
            lambda row: [(*row[:2], str(row[2]), row[3])],
            lambda row: [(row[0].swapcase(), *row[1:])],
            lambda row: [(row[0], str(row[1]), *row[2:])],
            lambda row: [row, (row[0], -row[1], *row[2:])],
            lambda row: [row, (None, *row[1:])],
        ]
        copy.spoiled[row[:2]] = random.choice(ways)(row)


@pytest.mark.parametrize("seed", range(3))
def test_chunks_find_what_one_piece_finds(copy: Copy, seed: int) -> None:
    spoil_some(copy, Random(seed))
    whole, chunked = copy.prove(whole=True, with_values=True), copy.prove(with_values=True)
    assert chunked.chunks > 10 > whole.chunks
    assert counts(chunked) == counts(whole)
    assert len(chunked.examples) == min(20, sum(counts(whole).values()))
    assert all((example.source, example.sink) != (None, None) for example in chunked.examples)


def test_a_mend_touches_the_differing_keys_alone(copy: Copy, admin: psycopg.Connection[Any]) -> None:
    row = admin.execute("SELECT name::text, id, n, note FROM public.many WHERE id = 500").fetchone()
    assert row is not None
    copy.spoiled = {row[:2]: [(*row[:2], 0, "stale")], ("stray", 7): [("stray", 7, 1, "")]}
    found = copy.prove(mender=copy.mend)
    assert (found.different, found.extra, found.mended) == (1, 1, Mended(1, 1, 0))
    assert copy.prove().holds


def test_rows_that_come_go_and_move_between_the_chunks_are_no_differences(
    copy: Copy, admin: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "STRAYS_MAX", 10)
    random, moved = Random(5), list[int]()

    def write(_: float) -> None:
        for _ in range(10):
            number = random.randint(1, ROWS)
            admin.execute("DELETE FROM public.many WHERE id = %s", (random.randint(1, ROWS),))
            admin.execute("UPDATE public.many SET name = %s, id = -id WHERE id = %s", (random.choice("AzMm"), number))
            admin.execute("UPDATE public.many SET n = n + 1 WHERE id = %s", (random.randint(1, ROWS),))
            admin.execute("INSERT INTO public.many VALUES ('A', %s, 1, '')", (-ROWS - len(moved),))
            moved.append(number)

    proof = copy.prove(rest=write)
    assert proof.holds, proof
    assert len(moved) > 100
    assert proof.chunks > 2 * -(-ROWS // 90), "what came into ranges that had been read was looked up"


def test_a_proof_ends_where_rows_are_appended_faster_than_it_reads(copy: Copy, admin: psycopg.Connection[Any]) -> None:
    rests: list[float] = []

    def append(seconds: float) -> None:
        rests.append(seconds)
        assert len(rests) < 100, "the proof runs after the end of the table"
        admin.execute(
            "INSERT INTO public.many SELECT 'zzz', %s * 1000 + g, 1, '' FROM generate_series(1, 100) g", (len(rests),)
        )

    proof = copy.prove(rest=append)
    assert proof.holds, proof
    assert proof.rows > ROWS, "what the sink holds besides was looked up"


def test_one_sink_that_fails_midway_does_not_end_the_others(many: Settings, copy: Copy) -> None:
    other = MemorySink(name="cache", kinds=KINDS)
    told: list[Progress] = []

    def run_to(lsn: int) -> int:
        other.lsn = lsn if len(told) < 5 else lsn - 1
        told.append(Progress(""))
        copy.run_to(lsn)
        other.stored = copy.sink.stored
        return lsn

    view = replace(SPEC, sinks=(SinkOptions("cache"), SinkOptions("delta")))
    sinks = {"cache": other, "delta": copy.sink}
    first, second = prove(many, [view], lambda _, options: sinks[options.name], LocalHolder(run_to))
    assert "it stands at" in (first.problem or "")
    assert second.holds


def test_what_postgres_refuses_midway_is_that_views_problem_alone(
    many: Settings, copy: Copy, admin: psycopg.Connection[Any]
) -> None:
    seen: list[float] = []

    def drop(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 4:
            admin.execute("ALTER TABLE public.many RENAME COLUMN note TO other")

    other = replace(SPEC, name="other", postgres_sql="SELECT 'a' AS name, 1 AS id, 1 AS n, '' AS note")
    sinks = {"many": copy.sink, "other": MemorySink([("a", 1, 1, "")])}

    def run_to(lsn: int) -> int:
        sinks["other"].lsn = lsn
        return copy.run_to(lsn) if len(seen) < 4 else lsn

    extras = Extras(rest=drop)
    many_proof, other_proof = prove(
        many, [SPEC, other], lambda spec, _: sinks[spec.name], LocalHolder(run_to), extras=extras
    )
    assert "note" in (many_proof.problem or "")
    assert other_proof.holds


def test_what_has_no_order_costs_as_much_in_chunks_or_is_small_is_read_in_one_piece(
    many: Settings, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("INSERT INTO public.many SELECT 'z' || g, -g, g, '' FROM generate_series(1, 20000) g")
    admin.execute("ANALYZE public.many")
    admin.execute("CREATE TABLE public.labels (id int PRIMARY KEY, label text)")
    admin.execute("GRANT SELECT ON public.labels TO public")
    admin.execute("INSERT INTO public.labels SELECT g, '' FROM generate_series(-20000, 20000) g")
    admin.execute("ANALYZE public.labels")
    joined = "SELECT m.name, m.id, m.n, l.label FROM public.many m JOIN public.labels l ON l.id = m.id"
    views = [
        SPEC,
        replace(SPEC, name="join", kind=Kind.QUERY, postgres_sql=joined),
        replace(SPEC, name="sorted", kind=Kind.QUERY, postgres_sql=f"{SPEC.postgres_sql} ORDER BY note LIMIT 9000"),
        replace(SPEC, name="small", postgres_sql=f"{SPEC.postgres_sql} WHERE id = 1"),
        replace(SPEC, name="nulls", nullable_key=True),
        replace(SPEC, name="wrong", postgres_sql="SELECT nowhere FROM public.many"),
    ]
    assert set(large_views(many, views)) == {"many", "join"}
