"""Ranges of real topics as the last change per key: by the driver, one by one or in bulk, and by Spark, the same."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from decimal import Decimal

import pytest

import jobs.bulk.scan
import jobs.kafka_options
import jobs.small_range
from cdc.errors import OperatorError, TransientError
from cdc.settings import Kafka
from jobs.changes import read_changes
from sinks.protocol import AT, DELETE, UPSERT
from tests.support.reading import (
    ALL,
    each_way,  # noqa: F401
    found,
    orders_log,  # noqa: F401
    orders_table,  # noqa: F401
    range_reader,  # noqa: F401
    row,
)


def test_the_last_change_of_each_key_wins(log, read):
    log.transaction(10, ("c", row(1)), ("c", row(2)), ("u", row(1, "second", "2.50")))
    log.transaction(20, ("u", row(1, None, None)), ("d", {"id": 2}), ("c", row(3)))
    assert found(read()) == {
        1: (UPSERT, 20, None, None),
        2: (DELETE, 20, None, None),
        3: (UPSERT, 20, "n", Decimal("1.00")),
    }


def test_a_row_says_where_it_is_in_kafka(log, read, orders):
    log.raw(0, b'{"id":7}', value_of(7))
    (only,) = read().frame.collect()
    assert only[AT] == f"{orders.topic}@0:0"


def value_of(key: int) -> bytes:
    source = {"commit_lsn": 5, "lsn": 5, "ordinal": 1}
    return json.dumps({"before": None, "after": row(key), "source": source, "op": "c"}).encode()


def test_only_transactions_of_the_range_count(log, read):
    for lsn in (10, 20, 30, 40):
        log.transaction(lsn, ("u", row(1, str(lsn))), ("u", row(lsn)))
    got = found(read(floor=20, ceiling=40))
    assert set(got) == {1, 20, 30}
    assert got[1][2] == "30"


def test_offsets_bound_the_range(log, read):
    log.transaction(10, ("c", row(1)), ("c", row(2)))
    start = log.ends
    log.transaction(20, ("u", row(1, "inside")))
    end = log.ends
    log.transaction(30, ("u", row(1, "after")), ("u", row(2, "after")))
    assert found(read(start=start, end=end)) == {1: (UPSERT, 20, "inside", Decimal("1.00"))}


def test_an_empty_range_has_no_changes(log, read):
    changes = read()
    assert changes.empty
    assert found(changes) == {}
    log.transaction(10, ("c", row(1)))
    assert read(floor=11).empty
    assert read(start=log.ends).empty


def test_a_snapshot_stands_right_before_its_point(log, read):
    log.transaction(99, ("r", row(1)), ("r", row(2)))
    log.transaction(100, ("u", row(2, "after the snapshot")))
    assert found(read(ceiling=100)).keys() == {1, 2}
    assert found(read(ceiling=100))[2][2] == "n"
    assert found(read(floor=100)) == {2: (UPSERT, 100, "after the snapshot", Decimal("1.00"))}
    assert found(read())[2][2] == "after the snapshot"


def test_a_record_written_twice_or_late_changes_nothing(log, read):
    first = [("c", row(1, "first")), ("c", row(2, "first"))]
    log.transaction(10, *first)
    log.transaction(20, ("u", row(1, "second")), ("d", {"id": 2}))
    log.transaction(10, *first)
    assert found(read()) == {1: (UPSERT, 20, "second", Decimal("1.00")), 2: (DELETE, 20, None, None)}


def test_a_tombstone_alone_is_a_delete(log, read, kafka, orders, spark):
    log.transaction(10, ("c", row(1)))
    middle = log.ends
    log.transaction(20, ("d", {"id": 1}))
    # Compaction may leave the tombstone and take the event before it.
    start = tuple(end - 1 if end > before else end for before, end in zip(middle, log.ends, strict=True))
    assert found(read(start=start)) == {1: (DELETE, 20, None, None)}


def test_an_aborted_transaction_is_not_there(log, read):
    log.transaction(10, ("c", row(1)))
    log.aborted(20, ("u", row(1, "never")), ("c", row(2)))
    log.transaction(30, ("c", row(3)))
    assert found(read()).keys() == {1, 3}
    assert found(read())[1][2] == "n"


def test_a_truncate_voids_what_was_before_it(log, read):
    log.transaction(10, *(("c", row(key)) for key in range(20)))
    log.transaction(20, ("u", row(1)), ("t", None), ("c", row(2, "after")), ("c", row(30)))
    changes = read()
    assert changes.truncated_at == (20, 2)
    assert not changes.empty
    assert found(changes).keys() == {2, 30}


def test_a_truncate_with_nothing_after_it_is_not_empty(log, read):
    log.transaction(10, ("c", row(1)))
    log.transaction(20, ("t", None))
    changes = read()
    assert (changes.truncated_at, changes.count, changes.empty) == ((20, 1), 0, False)


def test_without_a_truncate_there_is_none(log, read):
    log.transaction(10, ("c", row(1)))
    log.transaction(20, ("t", None))
    assert read(ceiling=20).truncated_at is None


def test_a_range_that_the_topic_does_not_have_is_an_error(log, read, monkeypatch):
    monkeypatch.setitem(jobs.kafka_options.PATIENCE, "kafkaConsumer.pollTimeoutMs", "1000")
    log.transaction(10, ("c", row(1)))
    with pytest.raises(OperatorError) as caught:
        read(end=tuple(end + 5 for end in log.ends))
    assert caught.value.code == "RECORDS_LOST"


def test_a_topic_that_is_not_there_is_an_error(log, read, orders):
    with pytest.raises(OperatorError) as caught:
        read(end=(1, 1), info=replace(orders, topic=f"{orders.topic}-gone"))
    assert caught.value.code == "TOPIC_MISSING"


def test_kafka_away_is_transient(spark, orders, free_port_kafka, way):
    with pytest.raises(TransientError) as caught:
        read_changes(spark, orders, free_port_kafka, ((0, 0), (1, 1)), (0, ALL))
    assert caught.value.code == "KAFKA_UNAVAILABLE"


@pytest.fixture
def free_port_kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    monkeypatch.setitem(jobs.kafka_options.PATIENCE, "kafka.default.api.timeout.ms", "2000")
    monkeypatch.setitem(jobs.kafka_options.PATIENCE, "kafka.request.timeout.ms", "1000")
    monkeypatch.setattr(jobs.small_range, "SILENCE_S", 1.0)
    monkeypatch.setattr(jobs.bulk.scan, "SILENCE_S", 1.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Kafka(bootstrap=f"127.0.0.1:{probe.getsockname()[1]}")
