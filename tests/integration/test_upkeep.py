"""Random views kept up to date by affected keys, on real Spark: after every batch the same bag as computed anew."""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.support.random_plans import PlanMaker, changed, random_tables
from tests.support.refreshing import Refreshed

SEEDS = int(os.environ.get("AFTERIMAGE_UPKEEP_SEEDS", "8"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_refreshes_equal_the_answer(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    view = PlanMaker(rng).view()
    tables = random_tables(rng)
    kept = Refreshed(spark, view, tables)
    for _ in range(2):
        tables = changed(rng, tables)
        plan = kept.refresh(tables)
        assert kept.rows == kept.answer(tables), plan
