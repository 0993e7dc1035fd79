"""The corpora of views in tests/corpus/views: a schema each, and view files over it, as users write them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from cdc.postgres import SESSION
from jobs.declare import declare_views, with_bodies
from jobs.declare.relations import Tables
from jobs.declare.source import Source
from jobs.tables import TableInfo
from sinks.spec import ViewSpec
from tests.support.answers import described
from tests.support.corpus_batches import SHOP, Batches
from tests.support.corpus_tpch import TpchBatches

FOLDER = Path(__file__).parents[1] / "corpus" / "views"
CORPORA = ("shop", "tpch")
_TABLES = """
SELECT c.relname, array(
    SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (num, at)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num ORDER BY k.at)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' ORDER BY c.relname
"""


@dataclass(frozen=True)
class ViewCorpus:
    """One of them, by its folder's name."""

    name: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def ddl(self) -> str:
        """What makes its tables."""
        return (self.folder / "schema.ddl").read_text(encoding="utf-8")

    @cached_property
    def texts(self) -> dict[str, Source]:
        """Its views."""
        return {path.stem: Source(path.name, path.read_text(encoding="utf-8")) for path in self.folder.glob("*.sql")}

    def keep_only(self, *names: str) -> None:
        """Leave the other views out."""
        for name in self.texts.keys() - set(names):
            del self.texts[name]

    def declared(self, tables: Tables) -> dict[str, ViewSpec]:
        """All of its views, those first that others read."""
        texts = with_bodies(self.texts, tables, None)
        specs = {spec.name: spec for spec in declare_views(texts, tables, queries=True)}
        return dict(_in_order(specs))


def prepared(connection: psycopg.Connection[Any], corpus: ViewCorpus) -> None:
    """Make its tables, and let Postgres print as proofs do."""
    connection.execute(corpus.ddl.encode())
    for name, value in SESSION.items():
        if name != "search_path":
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])


def batches(name: str, rng: random.Random, connection: psycopg.Connection[Any]) -> Batches | TpchBatches:
    """What fills and changes its tables."""
    return TpchBatches(rng, connection) if name == "tpch" else Batches(rng, connection, SHOP)


def refused_views() -> list[tuple[str, str]]:
    """Views over the shop's tables that cannot be exact, and what the user is told: the reason, and the remedy."""
    lines = (FOLDER / "refused.txt").read_text(encoding="utf-8").splitlines()
    return [(text, reason.strip()) for text, reason in zip(lines[::2], lines[1::2], strict=True)]


def tables_of(connection: psycopg.Connection[Any]) -> dict[tuple[str, str], TableInfo]:
    """The tables of the schema public."""
    rows = connection.execute(_TABLES).fetchall()
    return {("public", name): described(connection, name, tuple(key)) for name, key in rows}


def _in_order(specs: Mapping[str, ViewSpec]) -> list[tuple[str, ViewSpec]]:
    done: dict[str, ViewSpec] = {}

    def add(spec: ViewSpec) -> None:
        for name in spec.relations:
            if name in specs and name not in done:
                add(specs[name])
        done[spec.name] = spec

    for spec in specs.values():
        add(spec)
    return list(done.items())
