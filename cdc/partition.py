"""Which partition a key belongs to. In: the key's bytes. Out: a number below the topic's partition count.

Keeps true: one key, one partition, in every process and on every machine; truncates and views rely on it.
"""

from __future__ import annotations

import zlib


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a record's key."""
    return zlib.crc32(key) % partitions
