"""Elements of arrays, as Postgres prints them between braces.

In: a value. Out: Spark SQL for its text as an element. Keeps true: array_out's quotes: around what is empty, reads as
NULL, or holds a brace, a comma, a quote, a backslash or white space.
"""

from __future__ import annotations

from typing import Final

from jobs.declare.literals import string
from jobs.plan.types import Family, Typed

_PLAIN: Final = frozenset({Family.INT, Family.DECIMAL, Family.UUID})
_QUOTED: Final = string(r'\A\z|\A[Nn][Uu][Ll][Ll]\z|[{},"\\ \t\n\r\x0B\f]')
_QUOTE: Final = string('"')


def array_element(value: Typed) -> str | None:
    """The element's text; None where it is not known how the type prints."""
    text = _text(value)
    return None if text is None else f"coalesce({text}, 'NULL')"


def _text(value: Typed) -> str | None:
    family, sql = value.type.family, value.sql
    printed = f"trim(LEADING '+' FROM CAST({sql} AS STRING))"
    if family in _PLAIN and value.type.fixed:
        return f"CAST({sql} AS STRING)"
    match family:
        case Family.BOOL:
            return f"(CASE WHEN {sql} THEN 't' WHEN NOT {sql} THEN 'f' END)"
        case Family.DATE:
            return printed
        case Family.TIMESTAMP:
            return f"({_QUOTE} || {printed} || {_QUOTE})"
        case Family.TIMESTAMPTZ:
            return f"({_QUOTE} || {printed} || '+00' || {_QUOTE})"
        case Family.TEXT:
            return f"(CASE WHEN {sql} RLIKE {_QUOTED} THEN {_QUOTE} || {_escaped(sql)} || {_QUOTE} ELSE {sql} END)"
    return None


def _escaped(sql: str) -> str:
    backslashes = f"replace({sql}, {string(chr(92))}, {string(chr(92) * 2)})"
    return f"replace({backslashes}, {_QUOTE}, {string(chr(92) + chr(34))})"
