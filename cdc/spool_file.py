"""One nameless file that all spools of a stream share, cut into extents that they take and give back.

In: bytes to append to a list of extents. Out: the bytes at a place of such a list. Keeps true: one open file however
many transactions are on disk, and no name, so no crash leaves anything behind; the disk is free when all is given back.
"""

from __future__ import annotations

import errno
import os
import tempfile
from heapq import heappop, heappush
from io import FileIO
from pathlib import Path
from typing import Final

from cdc.errors import OperatorError

EXTENT_BYTES: Final = 256 << 10
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SpoolFile:
    """Made when the first extent is written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: FileIO | None = None
        self._free: list[int] = []
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Whether anything is on disk."""
        return self._file is not None

    def append(self, extents: list[int], length: int, data: bytes) -> None:
        """Put `data` behind the first `length` bytes that lie in `extents`; more extents are added as needed."""
        try:
            rest = memoryview(data)
            while rest:
                number, at = divmod(length, EXTENT_BYTES)
                if number == len(extents):
                    extents.append(self._take())
                written = os.pwrite(self._opened(), rest[: EXTENT_BYTES - at], extents[number] * EXTENT_BYTES + at)
                rest, length = rest[written:], length + written
        except OSError as error:
            raise _spill_error(error, self._directory) from error

    def read(self, extents: list[int], start: int, end: int) -> bytes:
        """The bytes [start, end) of what lies in `extents`."""
        parts = []
        while start < end:
            number, at = divmod(start, EXTENT_BYTES)
            part = os.pread(self._opened(), min(EXTENT_BYTES - at, end - start), extents[number] * EXTENT_BYTES + at)
            assert part, "the spool's file is shorter than what was written"
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def give_back(self, extents: list[int]) -> None:
        """These are not needed any more."""
        for extent in extents:
            heappush(self._free, extent)
        if len(self._free) == self._count:
            self.close()

    def close(self) -> None:
        """Give the disk back; everything in it is gone."""
        if self._file is not None:
            self._file.close()
        self._file, self._free, self._count = None, [], 0

    def _take(self) -> int:
        if self._free:
            return heappop(self._free)
        self._count += 1
        return self._count - 1

    def _opened(self) -> int:
        if self._file is None:
            self._file = _nameless_file(self._directory)
        return self._file.fileno()


def _nameless_file(directory: Path) -> FileIO:
    directory.mkdir(parents=True, exist_ok=True)
    file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - SpoolFile.close closes it
    assert isinstance(file, FileIO)
    return file


def _spill_error(error: OSError, directory: Path) -> OperatorError:
    if error.errno in _FULL:
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
