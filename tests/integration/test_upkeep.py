"""Random views kept up to date by affected keys, on real Spark: after every batch the same bag as computed anew.

With any rule broken, some view goes wrong.
"""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.support.random_plans import PlanMaker, changed, random_tables
from tests.support.refreshing import Refreshed
from tests.support.upkeep_mutants import MUTANTS, Mutant

SEEDS = int(os.environ.get("AFTERIMAGE_UPKEEP_SEEDS", "4"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_refreshes_equal_the_answer(spark: SparkSession, seed: int) -> None:
    assert _stays_equal(spark, seed, batches=2)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_noticed(spark: SparkSession, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _stays_equal(spark, mutant.seed, batches=4), "with the rule whole"

    mutant.apply(monkeypatch)

    assert not _stays_equal(spark, mutant.seed, batches=4)


def _stays_equal(spark: SparkSession, seed: int, batches: int) -> bool:
    rng = random.Random(seed)
    view = PlanMaker(rng).view()
    tables = random_tables(rng)
    kept = Refreshed(spark, view, tables)
    for _ in range(batches):
        tables = changed(rng, tables)
        kept.refresh(tables)
        if kept.rows != kept.answer(tables):
            return False
    return True
