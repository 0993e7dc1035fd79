"""One Spark session for all tests that need one: apply's own session, on two cores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from cdc.settings import Settings
from jobs.session import spark_session

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""A test session is over before the better compiler has earned back its time."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with Delta and Kafka."""
    settings = Settings.model_validate(
        {
            "pipeline": "tests",
            "source": {"database": "none", "tables": ["public.*"]},
            "data": tmp_path_factory.mktemp("spark"),
            "apply": {"master": "local[2]", "spark": {"spark.sql.shuffle.partitions": "2", **SHORT_LIVED}},
        }
    )
    session = spark_session(settings, "tests")
    yield session
    session.stop()
