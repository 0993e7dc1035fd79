"""Topics read from their beginning into HeldKeys: what a reader of the compacted topics knows of the tables.

In: the topics with the end offsets of the newest progress record. Out: every key with its row's digest. Keeps true: all
records before those ends were seen; a topic that ends before them has been made anew and is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from cdc.errors import OperatorError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, consumer, translate, translated
from cdc.recover.held import Bucket, HeldKeys
from cdc.recover.image import Image, image_of
from cdc.settings import Kafka

_BATCH: Final = 10_000
_SILENCE_S: Final = 30.0
_PAUSE_S: Final = 0.05
_FROM_START: Final = {"auto.offset.reset": "earliest", "fetch.max.bytes": 8 << 20, "queued.max.messages.kbytes": 16_384}


def fold_topics(
    kafka: Kafka, ends: Mapping[str, tuple[int, ...]], held: HeldKeys, report: Callable[[int], None]
) -> None:
    """Read every committed record; `report` hears how many offsets are behind."""
    todo = {(topic, at): end for topic, all_ends in ends.items() for at, end in enumerate(all_ends)}
    behind: dict[Bucket, int] = {}
    client = consumer(kafka, "recover", **_FROM_START)
    try:
        with translated("reading the topics"):
            client.assign([TopicPartition(topic, at, 0) for topic, at in todo])
        while todo:
            images = _take(client, todo, behind)
            for bucket, some in images.items():
                held.fold(bucket, some)
            report(sum(behind.values()))
    finally:
        client.close()


def _take(
    client: Consumer, todo: dict[Bucket, int], behind: dict[Bucket, int]
) -> dict[Bucket, list[tuple[bytes, Image]]]:
    """Some records by partition, each let go once it is looked at; partitions that end are taken out of `todo`."""
    images: dict[Bucket, list[tuple[bytes, Image]]] = defaultdict(list)
    for taken in range(_BATCH):
        message = client.poll(_PAUSE_S if taken else _SILENCE_S)
        if message is None:
            if not taken:
                raise TransientError("the topics did not answer", "is Kafka up?", code="KAFKA_UNAVAILABLE")
            break
        bucket = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            key = message.key() or b""
            images[bucket].append((key, image_of(key, message.value())))
            behind[bucket] = (message.offset() or 0) + 1
        elif error.code() != END_OF_PARTITION:
            raise translate(error, f"reading {bucket[0]}")
        elif bucket in todo:
            _require_reached(bucket, message, todo.pop(bucket))
            if not todo:
                break
    return images


def _require_reached(bucket: Bucket, ended: Any, end: int) -> None:
    if ended.offset() < end:
        raise OperatorError(
            f"topic {bucket[0]} ends before what the progress topic says of it",
            "was the topic deleted and made again? capture anew under another pipeline name",
            code="TOPIC_CHANGED",
        )
