"""What Spark fails with and nobody foresaw: told by its classes and places, never by its message."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from cdc.errors import OperatorError
from jobs.failures import translated


def test_an_unforeseen_failure_says_where_it_was_thrown_and_quotes_nothing(spark: SparkSession):
    jvm = spark._jvm
    assert jvm is not None
    with capture_logs() as said, pytest.raises(OperatorError) as caught, translated("reading canary"):
        jvm.java.lang.Integer.parseInt("canary-7731")
    assert caught.value.code == "SPARK"
    [line] = [each for each in said if each["event"] == "spark failed"]
    assert line["causes"] == ["NumberFormatException"]
    assert any(frame.startswith("java.lang.Integer.parseInt:") for frame in line["at"])
    assert "canary-7731" not in f"{line} {caught.value.message} {caught.value.hint}"
