"""Which records of a view's topic are its rows now: the newest of each key, unless that is a tombstone.

In: keys with offsets, in the order of the topic. Out: offsets, and the digests of their keys. Keeps true: 25 bytes of
memory a record, whatever its size; keys are told apart by 128 bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_DIGEST: Final = np.dtype([("high", "<u8"), ("low", "<u8")])
Digests = NDArray[Any]


class KeyDigests:
    """Digests of keys, side by side."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, key: bytes) -> None:
        """One key."""
        self._bytes += blake2b(key, digest_size=_DIGEST.itemsize).digest()

    def array(self) -> Digests:
        """All of them."""
        return np.frombuffer(self._bytes, dtype=_DIGEST)


class Fold:
    """Takes every record; `live` then tells which of them count."""

    def __init__(self) -> None:
        self._digests = KeyDigests()
        self._offsets = array("q")
        self._is_row = bytearray()

    def add(self, key: bytes, offset: int, *, is_row: bool) -> None:
        """One record."""
        self._digests.add(key)
        self._offsets.append(offset)
        self._is_row.append(is_row)

    def live(self) -> tuple[Digests, NDArray[np.int64]]:
        """Digests and offsets of the rows."""
        digests = self._digests.array()
        order = np.lexsort((digests["low"], digests["high"]))  # stable: records of a key stay in their order
        ordered = digests[order]
        newest = np.ones(len(order), dtype=bool)
        newest[:-1] = ordered[:-1] != ordered[1:]
        at = order[newest]
        at = at[np.frombuffer(self._is_row, dtype=np.uint8)[at] == 1]
        return digests[at], np.frombuffer(self._offsets, dtype=np.int64)[at]


def missing_from(live: tuple[Digests, NDArray[np.int64]], kept: Iterable[Any]) -> frozenset[int]:
    """The offsets of the rows whose keys are not among the kept ones."""
    digests, offsets = live
    gone = ~np.isin(_texts(digests), _texts(np.asarray(kept, dtype=_DIGEST)))
    return frozenset(offsets[gone].tolist())


def _texts(digests: Digests) -> NDArray[Any]:
    """numpy compares bytes, which a structure's fields are not; V16 would not be sorted."""
    return np.ascontiguousarray(digests).view("S16")
