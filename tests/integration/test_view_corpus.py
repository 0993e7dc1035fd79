"""Two corpora of views, kept by refreshes on Spark: after each random batch what Postgres answers, row by row as text.

A longer run, with a part of it through capture and Kafka: `python -m tests.soak.views`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError
from jobs.declare import declare_views
from jobs.declare.source import Source
from tests.support.corpus_kept import Keeper
from tests.support.corpus_mutants import MUTANTS, ROWS, Mutant
from tests.support.corpus_on_delta import OnDelta
from tests.support.servers import PostgresServer, fresh_database
from tests.support.view_corpus import CORPORA, ViewCorpus, batches, prepared, refused_views, tables_of

BATCHES = 2
ON_DELTA = (
    "group_booleans",
    "group_by_uuid",
    "group_days",
    "group_texts",
    "join_four_commas",
    "join_full",
    "join_left_chain",
    "join_self",
    "tally_join",
    "anti_not_in",
    "union_types",
    "window_top_n",
    "views_base",
    "views_average",
    "views_above_average",
)
"""Of every kind some, and views upon views; all of them: `python -m tests.soak.refreshed_views`."""


@dataclass(frozen=True)
class Bed:
    """A corpus whose tables are there and filled."""

    connection: psycopg.Connection[Any]
    corpus: ViewCorpus

    def keeper(self, spark: SparkSession) -> Keeper:
        tables = tables_of(self.connection)
        return Keeper(spark, self.connection, tables, self.corpus.declared(tables))


@contextmanager
def bed(postgres: PostgresServer, name: str) -> Iterator[Bed]:
    with fresh_database(postgres) as database, database.connect() as connection:
        corpus = ViewCorpus(name)
        prepared(connection, corpus)
        yield Bed(connection, corpus)


@pytest.mark.parametrize("name", CORPORA)
def test_refreshed_views_are_what_postgres_answers(spark: SparkSession, postgres: PostgresServer, name: str) -> None:
    with bed(postgres, name) as made:
        changes = batches(name, random.Random(1), made.connection)
        changes.fill()
        keeper = made.keeper(spark)
        assert keeper.differences() == []
        for _ in range(BATCHES):
            changes.batch()
            keeper.batch()
            assert keeper.differences() == []
        assert sum(view.affected for view in keeper.views.values()) > len(keeper.views)
        assert sum(view.tallied for view in keeper.views.values()) > 0


def test_views_over_tables_of_several_files_are_what_postgres_answers(
    spark: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Through the lookups and merges of apply itself."""
    with bed(postgres, "shop") as made:
        changes = batches("shop", random.Random(1), made.connection)
        changes.fill()
        made.corpus.keep_only(*ON_DELTA)
        tables = tables_of(made.connection)
        kept = OnDelta(spark, made.connection, tables, made.corpus.declared(tables), tmp_path)
        assert kept.differences() == []
        for _ in range(BATCHES):
            changes.batch()
            assert kept.batch() == []
        assert set(kept.ways()) >= {"tallied", "full", "incremental"}


def test_the_comparison_sees_a_row_that_was_not_refreshed(spark: SparkSession, postgres: PostgresServer) -> None:
    with bed(postgres, "shop") as made:
        batches("shop", random.Random(1), made.connection).fill()
        made.corpus.keep_only("join_left", "group_average")
        keeper = made.keeper(spark)
        made.connection.execute("UPDATE orders SET total = total + 1, status = 'gone' WHERE customer_id IS NOT NULL")
        told = keeper.differences(refreshed=False)
        assert [text.partition(":")[0] for text in told] == ["group_average", "join_left"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_noticed(
    spark: SparkSession, shop: psycopg.Connection[Any], mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _differs(spark, shop, mutant)
    mutant.apply(monkeypatch)
    assert _differs(spark, shop, mutant)


def _differs(spark: SparkSession, connection: psycopg.Connection[Any], mutant: Mutant) -> bool:
    connection.execute(f"TRUNCATE customers, orders, items, products, events; {ROWS}".encode())
    corpus = ViewCorpus("shop")
    corpus.keep_only(mutant.view)
    keeper = Bed(connection, corpus).keeper(spark)
    if keeper.differences():
        return True
    connection.execute(mutant.batch.encode())
    keeper.batch()
    return bool(keeper.differences())


@pytest.mark.parametrize(("text", "reason"), refused_views(), ids=lambda value: value[:60])
def test_what_cannot_be_exact_is_refused(shop_tables: dict[Any, Any], text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declare_views({"v": Source("v.sql", text)}, shop_tables, queries=True)
    message = caught.value.message.splitlines()[0].partition(": ")[2]
    assert f"{message} | {caught.value.hint}" == reason


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with bed(postgres, "shop") as made:
        yield made.connection


@pytest.fixture(scope="module")
def shop_tables(shop: psycopg.Connection[Any]) -> dict[Any, Any]:
    return tables_of(shop)
