"""A sequence of byte strings that is only ever appended to, in memory while small and in a file when large.

In: payloads. Out: the same payloads in the same order, as often as asked. Keeps true: memory stays within
`memory_bytes_max` and a read's buffer; the file has no name, so no crash leaves it behind.
"""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from collections.abc import Iterator
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Final

from cdc.errors import OperatorError

_LENGTH: Final = struct.Struct(">I")
_CHUNK_BYTES: Final = 1 << 20
_PAYLOADS_PER_WRITE: Final = 1000
_PAYLOAD_OVERHEAD_BYTES: Final = 48  # what CPython keeps for a bytes object and a list's place for it


class Spool:
    """Append, iterate, close. Several iterations may run side by side; none may see an append."""

    __slots__ = ("_directory", "_file", "_memory_bytes", "_memory_bytes_max", "_payloads", "count", "size_bytes")

    def __init__(self, directory: Path, memory_bytes_max: int) -> None:
        self._directory = directory
        self._memory_bytes_max = memory_bytes_max
        self._payloads: list[bytes] = []
        self._memory_bytes = 0
        self._file: FileIO | None = None
        self.count = 0
        self.size_bytes = 0

    @property
    def is_spilled(self) -> bool:
        """Whether a file is in use."""
        return self._file is not None

    def append(self, payload: bytes) -> None:
        """Add one payload."""
        self._payloads.append(payload)
        self.count += 1
        self.size_bytes += len(payload)
        self._memory_bytes += len(payload) + _PAYLOAD_OVERHEAD_BYTES
        if self._memory_bytes > self._memory_bytes_max:
            self._spill()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._payloads) if self._file is None else chain(_read(self._file), self._payloads)

    def close(self) -> None:
        """Give back memory and file; the spool is empty afterwards. Closing twice is harmless."""
        self._payloads = []
        self._memory_bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = _nameless_file(self._directory)
                self._memory_bytes_max = min(self._memory_bytes_max, _CHUNK_BYTES)
            for start in range(0, len(self._payloads), _PAYLOADS_PER_WRITE):
                _write(self._file, self._payloads[start : start + _PAYLOADS_PER_WRITE])
        except OSError as error:
            raise _spill_error(error, self._directory) from error
        self._payloads = []
        self._memory_bytes = 0


def _nameless_file(directory: Path) -> FileIO:
    directory.mkdir(parents=True, exist_ok=True)
    file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - Spool.close closes it
    assert isinstance(file, FileIO)
    return file


def _write(file: FileIO, payloads: list[bytes]) -> None:
    parts = [part for payload in payloads for part in (_LENGTH.pack(len(payload)), payload)]
    rest = memoryview(b"".join(parts))
    while rest:
        rest = rest[file.write(rest) :]


def _read(file: FileIO) -> Iterator[bytes]:
    """The file's payloads; it is read by position, so that iterations do not disturb each other."""
    buffer, start, offset = b"", 0, 0
    while True:
        header_end = start + _LENGTH.size
        end = header_end + _LENGTH.unpack_from(buffer, start)[0] if len(buffer) >= header_end else header_end
        if end <= len(buffer) and header_end <= len(buffer):
            yield buffer[header_end:end]
            start = end
            continue
        more = os.pread(file.fileno(), max(_CHUNK_BYTES, end - len(buffer)), offset)
        if not more:
            assert start == len(buffer), "the spool's file ends inside a payload"
            return
        offset += len(more)
        buffer, start = buffer[start:] + more, 0


def _spill_error(error: OSError, directory: Path) -> OperatorError:
    if error.errno == errno.ENOSPC:
        return OperatorError(
            f"the disk of {directory} is full: a large transaction cannot be buffered",
            "free space there, or point `data` at a larger disk; capture resumes where it stopped",
            code="DISK_FULL",
        )
    return OperatorError(
        f"a large transaction cannot be buffered in {directory}: {error.strerror}",
        "make the folder writable for the user that runs capture",
        code="SPILL",
    )
