"""Writers on executors and on the driver: the same outcome, the same errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from pyspark.sql import SparkSession

from cdc.errors import CdcError, ConfigError, OperatorError, RecordError, TransientError
from sinks import executor
from sinks.entries import Entry, RowShape
from sinks.executor import PartitionWriter, write_partitions
from sinks.protocol import DELETE, UPSERT, Rejected, Written
from tests.support.sinks import ORDERS

SHAPE = RowShape(("id",), ("id", "name", "price"), as_json=True)
CHANGES = [(UPSERT, 10, (1, "a", None)), (DELETE, 11, (2,)), (UPSERT, 12, (3, "c", None))]


@pytest.fixture(params=["driver", "executors"], autouse=True)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "executors":
        monkeypatch.setattr(executor, "DRIVER_BYTES_MAX", -1)


def refusing(*keys: str) -> PartitionWriter:
    def write(entries: Iterator[Entry]) -> Iterable[Rejected]:
        return [entry.rejected("no") for entry in entries if entry.key[0] in keys]

    return write


def raising(error: type[CdcError]) -> PartitionWriter:
    def write(entries: Iterator[Entry]) -> Iterable[Rejected]:
        raise error(f"it failed: {next(entries).lsn}", "do this", code="SOME_CODE")

    return write


def test_what_happened_is_counted(spark: SparkSession):
    assert write_partitions(ORDERS.frame(spark, CHANGES), SHAPE, refusing()) == Written(2, 1)
    refused = write_partitions(ORDERS.frame(spark, CHANGES), SHAPE, refusing("3"))
    assert refused == Written(1, 1, (Rejected("t:0:12", 12, "no"),))


@pytest.mark.parametrize("error", [TransientError, OperatorError, RecordError, ConfigError])
def test_errors_arrive_as_they_were(spark: SparkSession, error: type[CdcError]):
    with pytest.raises(error, match="it failed: 10") as raised:
        write_partitions(ORDERS.frame(spark, CHANGES[:1]), SHAPE, raising(error))
    assert (raised.value.code, raised.value.hint) == ("SOME_CODE", "do this")


def test_a_store_that_refuses_everything_stops_the_write(spark: SparkSession):
    keys = [str(key) for key in range(10_001)]
    frame = ORDERS.frame(spark, [(UPSERT, 10, (int(key), "a", None)) for key in keys])
    with pytest.raises(OperatorError, match="row after row"):
        write_partitions(frame.coalesce(1), SHAPE, refusing(*keys))
