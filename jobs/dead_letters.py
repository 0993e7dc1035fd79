"""Rows that a sink refused, written down where an operator finds them: the pipeline's dead-letter topic.

In: Rejected rows with their view and sink. Out: records that name topic, partition, offset and reason, never the row.
Keeps true: a refused row is written down before the view's batch counts as done, and too many of them stop the sink.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from cdc.errors import OperatorError, TransientError
from cdc.kafka_clients import producer, translated
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.names import dead_letter_topic
from cdc.settings import Settings
from jobs.batch import Target
from sinks.protocol import Rejected

_log = get(__name__)

_FLUSH_S = 30.0


class DeadLetters:
    """The dead-letter topic of one apply process."""

    def __init__(self, settings: Settings) -> None:
        self._topic = dead_letter_topic(settings.pipeline)
        self._limit = settings.apply.dead_letters_max
        self._counts: Counter[Target] = Counter()
        self._producer = producer(settings.kafka, f"dead-letters-{settings.pipeline}", **{"linger.ms": 5})

    def take(self, target: Target, rejected: Iterable[Rejected]) -> None:
        """Write them down; OperatorError when a sink has refused more than it may."""
        refused = list(rejected)
        if not refused:
            return
        self.write(target, refused)
        self._counts[target] += len(refused)
        if self._counts[target] > self._limit:
            raise OperatorError(
                f"{target.sink} has refused {self._counts[target]} rows of {target.view}, the last one at "
                f"{refused[-1].at}: {refused[-1].reason}",
                f"see {self._topic}; change the view or its mapping, then `afterimage rebuild {target.view}`; "
                "or raise apply.dead_letters_max",
                code="DEAD_LETTERS",
            )

    def write(self, target: Target, refused: Sequence[Rejected]) -> None:
        """Write them down, durably."""
        if not refused:
            return
        with translated("writing dead letters"):
            for row in refused:
                key, value = _record(target, row)
                self._producer.produce(self._topic, value, key)
            if self._producer.flush(_FLUSH_S):
                raise TransientError("the dead-letter topic does not answer", "is Kafka up?", code="KAFKA_UNAVAILABLE")
        _log.warning("rows refused", view=target.view, sink=target.sink, rows=len(refused), topic=self._topic)


def _record(target: Target, row: Rejected) -> tuple[bytes, bytes]:
    topic, _, place = row.at.rpartition("@")
    partition, _, offset = place.partition(":")
    body: dict[str, Any] = {
        "view": target.view,
        "sink": target.sink,
        "topic": topic,
        "partition": int(partition),
        "offset": int(offset),
        "commit_lsn": format_lsn(row.lsn),
        "reason": row.reason,
        "ts_ms": time.time_ns() // 1_000_000,
    }
    if row.columns:
        body["columns"] = list(row.columns)
    key = f"{target.view}/{target.sink}"
    return key.encode(), json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
