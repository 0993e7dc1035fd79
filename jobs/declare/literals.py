"""Literals: numbers, NULL, truth values, and string literals read as whatever type stands beside them.

In: literal nodes and, for an untyped string, the type that it takes on. Out: Spark literals of exactly that value.
Keeps true: a text that Postgres would read in more than one way, or by the session's settings, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.context import Context, Rule
from jobs.plan.types import BOOL, INT4, INT8, TEXT, UNKNOWN, Family, Type, Typed, decimal
from jobs.typemap import PRECISION_MAX

_NUMBER = re.compile(r"([0-9]+)(?:\.([0-9]*))?")
_SIGNED = re.compile(r"(-?)([0-9]+(?:\.[0-9]+)?)")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)?")
_OFFSET = re.compile(r"(.*?) ?(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)")
_CANONICAL_JSON: Final = ("[]", "{}", "null")
_INT4_MAX: Final = 2**31 - 1
_INT8_MAX: Final = 2**63 - 1


def string(text: str) -> str:
    """A Spark string literal. `$` is escaped lest Spark substitutes variables, the rest by Spark's own rules."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def number(text: str) -> Typed | None:
    """An unsigned numeric constant with the type that Postgres gives it; None if no Spark type holds it."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    if match[2] is None and int(match[1]) <= _INT4_MAX:
        return Typed(str(int(match[1])), INT4, digits=len(str(int(match[1]))))
    if match[2] is None and int(match[1]) <= _INT8_MAX:
        return Typed(f"{int(match[1])}L", INT8, digits=len(str(int(match[1]))))
    return _decimal(match[1].lstrip("0"), match[2] or "")


def _decimal(whole: str, fraction: str) -> Typed | None:
    precision, scale = max(1, len(whole) + len(fraction)), len(fraction)
    if precision > PRECISION_MAX:
        return None
    type_ = decimal(precision, scale)
    point = f".{fraction}" if fraction else ""
    return Typed(f"CAST('{whole or '0'}{point}' AS {type_.spark})", type_)


def literal(context: Context, node: exp.Expr) -> Typed:
    """A number or an untyped string."""
    if node.args.get("is_string"):
        return Typed(string(str(node.this)), UNKNOWN, literal=str(node.this))
    found = number(str(node.this))
    if found is None:
        hint = "write it in plain digits, 38 at most"
        raise context.refuse(node, f"the number {node.this} is not supported in views", hint)
    return found


def null(_context: Context, _node: exp.Expr) -> Typed:
    """NULL takes on the type beside it."""
    return Typed("NULL", UNKNOWN, null=True)


def boolean(_context: Context, node: exp.Expr) -> Typed:
    """TRUE and FALSE."""
    return Typed("TRUE" if node.this else "FALSE", BOOL)


def escaped_string(context: Context, node: exp.Expr) -> Typed:
    """E'..', U&'..', $$..$$ and bit strings."""
    hint = "write a plain '..' literal; a line break may stand in it as it is"
    raise context.refuse(node, "string literals with escapes are not supported in views", hint)


def settle(typed: Typed) -> Typed:
    """An untyped literal with nothing beside it is text."""
    if typed.type.family is not Family.UNKNOWN:
        return typed
    return Typed("CAST(NULL AS STRING)" if typed.null else typed.sql, TEXT)


def coerce(context: Context, node: exp.Expr, typed: Typed, type_: Type) -> Typed:
    """An untyped literal read as a value of a type; anything else stays."""
    if typed.type.family is not Family.UNKNOWN:
        return typed
    if type_.family is Family.UNKNOWN:
        return settle(typed)
    if typed.null:
        return Typed(f"CAST(NULL AS {type_.spark})", type_, null=True)
    assert typed.literal is not None
    read = _READERS.get(type_.family)
    found = read(typed.literal, type_) if read else None
    if found is None:
        raise _unreadable(context, node, type_)
    return found


def _unreadable(context: Context, node: exp.Expr, type_: Type) -> ConfigError:
    hint = _FORMS.get(type_.family, "cast the other side to text: column::text")
    return context.refuse(node, f"this literal cannot be read exactly as {type_.name}", hint)


def _text(text: str, _type: Type) -> Typed:
    return Typed(string(text), TEXT)


def _padded(text: str, type_: Type) -> Typed:
    """As it stands: blanks at its end don't count where it is compared."""
    return Typed(string(text), type_)


def _uuid(text: str, type_: Type) -> Typed | None:
    return Typed(string(text.lower()), type_) if _UUID.fullmatch(text.lower()) else None


def _json(text: str, type_: Type) -> Typed | None:
    return Typed(string(text), type_) if text in _CANONICAL_JSON else None


def _integer(text: str, type_: Type) -> Typed | None:
    match = _SIGNED.fullmatch(text)
    value = int(text) if match and "." not in text else None
    limit = 1 << (type_.width - 1)
    if value is None or not -limit <= value < limit:
        return None
    return Typed(f"CAST({value}BD AS {type_.spark})", type_)


def _numeric(text: str, _type: Type) -> Typed | None:
    match = _SIGNED.fullmatch(text)
    whole, _, fraction = match[2].partition(".") if match else ("", "", "")
    found = _decimal(whole.lstrip("0"), fraction) if match else None
    if found is None or match is None or not match[1]:
        return found
    return Typed(f"(- {found.sql})", found.type)


def _date(text: str, type_: Type) -> Typed | None:
    value = _iso(text) if _DATE.fullmatch(text) else None
    return Typed(f"DATE'{value.date().isoformat()}'", type_) if value else None


def _timestamp(text: str, type_: Type) -> Typed | None:
    value = _iso(text) if _TIMESTAMP.fullmatch(text) else None
    return Typed(f"TIMESTAMP_NTZ'{value.isoformat(' ')}'", type_) if value else None


def _timestamptz(text: str, type_: Type) -> Typed | None:
    match = _OFFSET.fullmatch(text)
    if match is None or not _TIMESTAMP.fullmatch(match[1]):
        return None
    offset = "+00:00" if match[2] in ("Z", "UTC") else match[2]
    local = match[1] if len(match[1]) > len("0000-00-00") else f"{match[1]} 00:00:00"
    value = _iso(local + offset)
    if value is None:
        return None
    try:
        utc = value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        return None
    return Typed(f"TIMESTAMP'{utc.isoformat(' ')} UTC'", type_)


def _iso(text: str) -> datetime | None:
    try:
        if len(text) == len("0000-00-00"):
            found = date.fromisoformat(text)
            return datetime(found.year, found.month, found.day)  # noqa: DTZ001
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_READERS: Final[Mapping[Family, Callable[[str, Type], Typed | None]]] = {
    Family.TEXT: _text,
    Family.UUID: _uuid,
    Family.JSON: _json,
    Family.CHAR: _padded,
    Family.INT: _integer,
    Family.DECIMAL: _numeric,
    Family.DATE: _date,
    Family.TIMESTAMP: _timestamp,
    Family.TIMESTAMPTZ: _timestamptz,
}
_FORMS: Final[Mapping[Family, str]] = {
    Family.BOOL: "write true or false without quotes",
    Family.UUID: "write it as xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
    Family.JSON: "supported: '[]', '{}', 'null'",
    Family.INT: "write a whole number in the type's range, without quotes",
    Family.DECIMAL: "write plain digits, without quotes",
    Family.DATE: "write '2026-01-31'",
    Family.TIMESTAMP: "write '2026-01-31 12:00:00'",
    Family.TIMESTAMPTZ: "write it with its offset: '2026-01-31 12:00:00+00'",
    Family.NUMERIC: "give the column a precision: column::numeric(12,2)",
}

RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Literal: Rule(literal, frozenset({"this", "is_string"}), "a literal"),
    exp.Null: Rule(null, frozenset(), "NULL"),
    exp.Boolean: Rule(boolean, frozenset({"this"}), "TRUE"),
    **{
        kind: Rule(escaped_string, frozenset(kind.arg_types), "a string literal with escapes")
        for kind in (exp.ByteString, exp.UnicodeString, exp.RawString, exp.HexString, exp.BitString, exp.National)
    },
}
