"""Sequences of byte strings that grow at the end, in memory while all of them together are small, else on disk.

In: payloads. Out: the same payloads in the same order, as often as asked. Keeps true: the memory of all spools of a
store together stays within its limit, but for one payload and a read's buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from cdc.spool_file import EXTENT_BYTES, SpoolFile

_LENGTH: Final = struct.Struct(">I")
_CHUNK_BYTES: Final = 1 << 20
_PAYLOADS_PER_WRITE: Final = 1000
_JOINED_BYTES_MAX: Final = 4 << 20
_OVERHEAD_BYTES: Final = 48
"""What CPython keeps for a bytes object and a list's place for it."""


class SpoolStore:
    """All spools of one replication stream: one limit of memory, one file."""

    __slots__ = ("_open", "file", "memory_bytes", "memory_bytes_max")

    def __init__(self, directory: Path, memory_bytes_max: int) -> None:
        self.file = SpoolFile(directory)
        self.memory_bytes = 0
        self.memory_bytes_max = memory_bytes_max
        self._open: set[Spool] = set()

    def open(self) -> Spool:
        """A new spool."""
        spool = Spool(self)
        self._open.add(spool)
        return spool

    def relieve(self) -> None:
        """Write the largest out until memory is within its limit."""
        while self.memory_bytes > self.memory_bytes_max:
            max(self._open, key=lambda spool: spool.held_bytes).spill()

    def forget(self, spool: Spool) -> None:
        """It has been closed."""
        self._open.discard(spool)

    def close(self) -> None:
        """Close every spool."""
        for spool in list(self._open):
            spool.close()


class Spool:
    """Append, cut, iterate, close. Several iterations may run side by side; none may see an append or a cut."""

    __slots__ = ("_extents", "_held", "_store", "_stored_bytes", "held_bytes", "size_bytes")

    def __init__(self, store: SpoolStore) -> None:
        self._store = store
        self._held: list[bytes] = []
        self.held_bytes = 0
        self._extents: list[int] = []
        self._stored_bytes = 0
        self.size_bytes = 0
        """Of all payloads with their lengths: the mark at which the next one begins."""

    @property
    def is_spilled(self) -> bool:
        """Whether a part of it is on disk."""
        return self._stored_bytes > 0

    def append(self, payload: bytes) -> None:
        """Add one payload."""
        length = len(payload)
        self._held.append(payload)
        self.size_bytes += length + 4
        self.held_bytes += length + _OVERHEAD_BYTES
        store = self._store
        store.memory_bytes += length + _OVERHEAD_BYTES
        if store.memory_bytes > store.memory_bytes_max:
            store.relieve()
        elif self._stored_bytes and self.held_bytes > _CHUNK_BYTES:
            self.spill()

    def cut(self, mark: int) -> None:
        """Forget everything from this mark on, which `size_bytes` once was."""
        while self._held and self.size_bytes > mark:
            length = len(self._held.pop())
            self.size_bytes -= length + 4
            self._release(length + _OVERHEAD_BYTES)
        if self.size_bytes > mark:
            self.size_bytes = self._stored_bytes = mark
            kept = -(-mark // EXTENT_BYTES)
            self._extents, dropped = self._extents[:kept], self._extents[kept:]
            self._store.file.give_back(dropped)

    def spill(self) -> None:
        """Write what is held to the file."""
        for start in range(0, len(self._held), _PAYLOADS_PER_WRITE):
            for data in _framed(self._held[start : start + _PAYLOADS_PER_WRITE]):
                self._store.file.append(self._extents, self._stored_bytes, data)
                self._stored_bytes += len(data)
        self._held = []
        self._release(self.held_bytes)

    def __iter__(self) -> Iterator[bytes]:
        return chain(self._read(), self._held) if self._stored_bytes else iter(self._held)

    def close(self) -> None:
        """Give back memory and disk; the spool is empty afterwards. Closing twice is harmless."""
        self._release(self.held_bytes)
        self._held = []
        if self._extents:
            self._store.file.give_back(self._extents)
        self._extents, self._stored_bytes, self.size_bytes = [], 0, 0
        self._store.forget(self)

    def _release(self, count: int) -> None:
        self.held_bytes -= count
        self._store.memory_bytes -= count

    def _read(self) -> Iterator[bytes]:
        """What is on disk; it is read by position, so that iterations do not disturb each other."""
        file, extents, stored = self._store.file, self._extents, self._stored_bytes
        buffer, start, offset = b"", 0, 0
        while True:
            header_end = start + _LENGTH.size
            end = header_end + _LENGTH.unpack_from(buffer, start)[0] if len(buffer) >= header_end else header_end
            if end <= len(buffer):
                yield buffer[header_end:end]
                start = end
                continue
            if offset == stored:
                assert start == len(buffer), "the spool's file ends inside a payload"
                return
            wanted = min(stored, offset + max(EXTENT_BYTES, end - len(buffer)))
            buffer, start, offset = buffer[start:] + file.read(extents, offset, wanted), 0, wanted


def _framed(payloads: list[bytes]) -> Sequence[bytes]:
    """The payloads behind their lengths: in one piece, unless that would be a large one more in memory."""
    parts = [part for payload in payloads for part in (_LENGTH.pack(len(payload)), payload)]
    return parts if sum(map(len, payloads)) > _JOINED_BYTES_MAX else (b"".join(parts),)
