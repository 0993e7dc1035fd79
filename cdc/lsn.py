"""Log sequence numbers: 64-bit positions in the write-ahead log, integers here and `0/16B3748` for people."""

from __future__ import annotations

import re

_LSN = re.compile(r"^([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})$")


def parse_lsn(text: str) -> int:
    """`16/B374D848` as an integer; ValueError for anything else."""
    match = _LSN.match(text.strip())
    if match is None:
        raise ValueError(f"not a log position: {text!r} (expected two hexadecimal numbers, like 16/B374D848)")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """The integer as Postgres prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
