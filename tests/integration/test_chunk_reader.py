"""Chunks of keys of any type: together they are the table, each row once."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.backfill import Backfill, Chunk, Key
from cdc.catalog import load_relations
from cdc.postgres import connect
from cdc.settings import Settings
from cdc.tables import Tables
from cdc.visibility import Visibility
from snapshot.chunk import ChunkReader, Range, Told

KEYS = {
    "char(4)": "('a'), ('a b'), ('b'), ('B'), ('é'), (''), ('z''\\')",
    'text COLLATE "C"': "('a'), ('B'), ('b'), (''), (E'\\t'), ('é'), ('%s')",
    'text COLLATE "und-x-icu"': "('a'), ('B'), ('b'), ('ä'), ('A'), ('-'), ('_')",
    "numeric(9,3)": "(1), (-1), (0.001), (100), ('NaN'), (2.5), (-2.5)",
    "float8": "('NaN'), ('-Infinity'), (0.1), (1e300), (-0.0), (3), (1e-9)",
    "timestamptz": "('infinity'), ('0044-03-15 BC'), ('2026-11-18'), ('epoch'), ('-infinity'), ('9999-1-1'), ('1-1-1')",
    "bytea": "('\\x00'), ('\\x'), ('\\xff'), ('\\x5c'), ('\\x27'), ('\\x0001'), ('\\x0a')",
    "public.mood": "('sad'), ('ok'), ('happy'), ('a''b'), ('5'), ('x y'), ('Z')",
    "int[]": "('{}'), ('{1}'), ('{1,NULL}'), ('{NULL}'), ('{2}'), ('{1,1}'), ('{{1}}')",
    "public.positive": "(1), (10), (2), (20), (3), (30), (4)",
    "public.citext": "('a'), ('B'), ('c'), ('D'), ('é'), (''), ('Zz')",
}


@pytest.fixture
def typed(source: Settings, admin: Any) -> dict[str, str]:
    admin.execute("CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'happy', 'a''b', '5', 'x y', 'Z')")
    admin.execute("CREATE DOMAIN public.positive AS int CHECK (value > 0)")
    admin.execute("CREATE EXTENSION citext SCHEMA public")
    tables = {}
    for number, (kind, values) in enumerate(KEYS.items()):
        name = tables[kind] = f"keyed_{number}"
        admin.execute(f"CREATE TABLE public.{name} (v text, k {kind}, n int, PRIMARY KEY (k, n))")
        rows = (
            f"SELECT 'v', k::text::{kind.split(' COLLATE')[0]}, n FROM (VALUES {values}) x(k), generate_series(1, 2) n"
        )
        admin.execute(f"INSERT INTO public.{name} {rows}")
        admin.execute(f'GRANT SELECT ON public.{name} TO "{source.source.read.user}"')
    return tables


def test_chunks_are_the_table_whatever_the_key(source: Settings, admin: Any, typed: dict[str, str]) -> None:
    with connect(source.source, source.source.read) as connection:
        relations = load_relations(connection, [f"public.{name}" for name in typed.values()])
        tables = Tables("p", "db", 1, {relation.oid: relation for relation in relations})
        reader = ChunkReader(connection, tables)
        for relation in relations:
            backfill = Backfill("b", relation.oid, "public", relation.name, "t", initial=True)
            chunks = list(read_all(reader, backfill, 3))
            rows = [row.key for chunk in chunks for row in chunk.rows]
            assert len(rows) == len(set(rows)) == 14, relation.name
            assert [len(chunk.rows) for chunk in chunks] == [3, 3, 3, 3, 2], relation.name


def test_a_chunk_is_read_again_as_it_was_planned(source: Settings, admin: Any) -> None:
    admin.execute("INSERT INTO public.order_items SELECT g, g % 3, 'p', 1 FROM generate_series(1, 30) g")
    with connect(source.source, source.source.read) as connection:
        (relation,) = load_relations(connection, ["public.order_items"])
        reader = ChunkReader(connection, Tables("p", "db", 1, {relation.oid: relation}))
        backfill = Backfill("b", relation.oid, "public", relation.name, "t", initial=True)
        first, second, *_ = read_all(reader, backfill, 7)
        admin.execute("DELETE FROM public.order_items WHERE line = 0 AND order_id = 24")
        again = reader.read(backfill, Range(second.begin, second.end, is_planned=True, rows=0), told())
    assert (first.end, second.begin) == (("0", "21"), ("0", "21"))
    assert len(again.rows) == len(second.rows) - 1
    assert again.sees.xmax > second.sees.xmax
    assert again.after_lsn > second.after_lsn


def test_a_table_that_is_gone_has_no_chunk(source: Settings, admin: Any) -> None:
    with connect(source.source, source.source.read) as connection:
        reader = ChunkReader(connection, Tables("p", "db", 1, {}))
        backfill = Backfill("b", 1, "public", "gone", "t", initial=True)
        assert reader.read(backfill, Range(None, None, is_planned=False, rows=3), told()) is None


def told() -> Told:
    def sees(_: Visibility) -> None:
        pass

    def ends(_: Key | None) -> None:
        pass

    return Told(sees, ends)


def read_all(reader: ChunkReader, backfill: Backfill, rows: int) -> list[Chunk]:
    begin: Key | None = None
    chunks: list[Chunk] = []
    while not chunks or begin is not None:
        chunk = reader.read(backfill, Range(begin, None, is_planned=False, rows=rows), told())
        assert chunk is not None
        chunks.append(chunk)
        begin = chunk.end
    return chunks
