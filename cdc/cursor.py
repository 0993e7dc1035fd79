"""A bounds-checked cursor over one message. In: bytes and a start. Out: numbers and texts, in order.

Keeps true: nothing is read past the end (struct.error or ValueError instead), and `finish` refuses what is left.
"""

from __future__ import annotations

import struct
from typing import Final

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_I32: Final = struct.Struct(">i")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")


class Cursor:
    """Reads big-endian numbers and NUL-terminated texts; the errors are struct.error and ValueError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def u8(self) -> int:
        """One byte."""
        return self._number(_U8)

    def u16(self) -> int:
        """Two bytes."""
        return self._number(_U16)

    def u32(self) -> int:
        """Four bytes."""
        return self._number(_U32)

    def i32(self) -> int:
        """Four bytes, signed."""
        return self._number(_I32)

    def u64(self) -> int:
        """Eight bytes."""
        return self._number(_U64)

    def i64(self) -> int:
        """Eight bytes, signed."""
        return self._number(_I64)

    def u32_many(self, count: int) -> tuple[int, ...]:
        """`count` numbers of four bytes; a count beyond the data is refused before memory is taken for it."""
        return struct.unpack(f">{count}I", self.take(4 * count))

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        end = self._at + length
        if end > len(self._data):
            raise ValueError(f"{length} bytes announced, {len(self._data) - self._at} left")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def string(self) -> str:
        """UTF-8 up to the next NUL."""
        end = self._data.index(0, self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def finish(self) -> None:
        """Refuse bytes that nobody read."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")

    def _number(self, format_: struct.Struct) -> int:
        value: int = format_.unpack_from(self._data, self._at)[0]
        self._at += format_.size
        return value
