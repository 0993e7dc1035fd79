"""COPY's text format: one line in, one row of values out.

Keeps true: what comes out is what Postgres prints, NULL apart from the empty text.
Reference: https://www.postgresql.org/docs/current/sql-copy.html
"""

from __future__ import annotations

import re
from typing import Final

from cdc.changes import Row
from cdc.errors import ProtocolError

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_line(line: bytes) -> Row:
    """The values of one row; the line ends with a newline."""
    if line[-1:] != b"\n":
        raise ProtocolError("a COPY line does not end with a newline")
    try:
        text = line[:-1].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a COPY line is not UTF-8") from error
    fields = text.split("\t")
    if "\\" not in text:
        return tuple(fields)
    return tuple([None if field == "\\N" else _unescaped(field) for field in fields])


def _unescaped(field: str) -> str:
    return _ESCAPE.sub(_character, field) if "\\" in field else field


def _character(match: re.Match[str]) -> str:
    character = match[1]
    return _PLAIN.get(character, character)
