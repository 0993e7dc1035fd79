"""Days and moments: adding days and intervals, parts of them, and the beginning of their month, year and the like.

In: nodes over dates and timestamps. Out: Spark expressions with Postgres's result types. Keeps true: months first, the
last day of a month where it is shorter, then days, then time; a timestamptz is reckoned in UTC, as proofs do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule, span
from jobs.declare.literals import coerce, settle
from jobs.plan.types import DATE, INT4, TIMESTAMP, TIMESTAMPTZ, Family, Type, Typed, cast, decimal

MOMENTS: Final = frozenset({Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ})
_AMOUNT = re.compile(r"([+-]?[0-9]{1,6})\s*([a-z]*)")
DAYS_MAX: Final = 3_000_000
_MONTHS: Final = {"year": 12, "month": 1, "mon": 1}
_DAYS: Final = {"week": 7, "day": 1}
_SECONDS: Final = {"hour": 3600, "minute": 60, "min": 60, "second": 1, "sec": 1}
_EXTRACTS = re.compile(r"\b(extract|date_part)\s*\(", re.IGNORECASE)
_LITERAL_NEXT = re.compile(r"\s*\(\s*'")
_INTERVALS: Final = "write interval '3 months', with whole years, months, weeks, days, hours, minutes, seconds"
_PARTS: Final[Mapping[str, tuple[str, int]]] = {
    "YEAR": ("year({0})", 6),
    "QUARTER": ("quarter({0})", 1),
    "MONTH": ("month({0})", 2),
    "WEEK": ("weekofyear({0})", 2),
    "DAY": ("day({0})", 2),
    "DOY": ("dayofyear({0})", 3),
    "DOW": ("(dayofweek({0}) - 1)", 1),
    "ISODOW": ("(weekday({0}) + 1)", 1),
    "HOUR": ("hour({0})", 2),
    "MINUTE": ("minute({0})", 2),
}
_TIMES: Final = frozenset({"HOUR", "MINUTE"})
_UNITS: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")


def is_interval(node: exp.Expr) -> bool:
    """Whether a node is an interval literal."""
    return isinstance(node.unnest(), exp.Interval)


def is_moment(type_: Type) -> bool:
    """Whether values of the type are days or moments."""
    return type_.family in MOMENTS


def plus_interval(context: Context, node: exp.Expr, value: Typed, interval: exp.Expr, *, minus: bool = False) -> Typed:
    """A day or moment, and an interval after or before it; of a day it is a timestamp."""
    value = settle(value)
    if not is_moment(value.type):
        hint = "supported: date, timestamp and timestamptz + interval '..'"
        raise context.refuse(node, f"{value.type.name} and an interval are not supported in views", hint)
    sign = -1 if minus else 1
    months, days, seconds = (sign * each for each in _interval(context, interval.unnest()))
    found = cast(value, TIMESTAMP) if value.type is DATE else value
    sql = found.sql
    for count, unit in ((months, "MONTH"), (days, "DAY"), (seconds, "SECOND")):
        if count:
            sql = f"({sql} + INTERVAL '{count}' {unit})"
    return Typed(sql, found.type)


def _interval(context: Context, node: exp.Expr) -> tuple[int, int, int]:
    """Months, days and seconds."""
    text, unit = node.this, node.args.get("unit")
    if not (isinstance(text, exp.Literal) and text.args.get("is_string")) or (
        unit is not None and not isinstance(unit, exp.Var)
    ):
        raise context.refuse(node, "this interval is not supported in views", _INTERVALS)
    written = f"{text.this} {unit.name if unit is not None else ''}".strip().lower()
    found = [0, 0, 0]
    at = 0
    while at < len(written):
        match = _AMOUNT.match(written, at)
        word = match[2].removesuffix("s") if match else ""
        place = next((n for n, units in enumerate((_MONTHS, _DAYS, _SECONDS)) if word in units), None)
        if match is None or place is None:
            raise context.refuse(node, "this interval is not supported in views", _INTERVALS)
        found[place] += int(match[1]) * {**_MONTHS, **_DAYS, **_SECONDS}[word]
        at = match.end() + len(written[match.end() :]) - len(written[match.end() :].lstrip())
    return found[0], found[1], found[2]


def of_days(context: Context, node: exp.Expr, left: Typed, right: Typed) -> Typed | None:
    """date + days, date - days, date - date; None if no side is a day or a moment."""
    left, right = coerce(context, node, left, right.type), coerce(context, node, right, left.type)
    if not is_moment(left.type) and not is_moment(right.type):
        return None
    is_sum = isinstance(node, exp.Add)
    pair = (right, left) if is_sum and right.type is DATE else (left, right)
    is_days = pair[1].type.family is Family.INT and pair[1].type.width <= INT4.width
    if pair[0].type is DATE and is_days and isinstance(node, (exp.Add, exp.Sub)):
        return _plus_days(*pair, minus=not is_sum)
    if isinstance(node, exp.Sub) and left.type is right.type is DATE:
        return Typed(f"datediff({left.sql}, {right.sql})", INT4)
    hint = "supported: date + days, date - days, date - date; date, timestamp and timestamptz + interval '..'"
    message = f"{left.type.name} and {right.type.name} together here are not supported in views"
    raise context.refuse(node, message, hint)


def _plus_days(value: Typed, days: Typed, *, minus: bool) -> Typed:
    count = f"CAST({days.sql} AS INT)"
    if not days.digits:
        # Spark's own addition would go round at the end of its days.
        wrong = "CAST(raise_error('date out of range') AS INT)"
        count = f"(CASE WHEN {days.sql} NOT BETWEEN -{DAYS_MAX} AND {DAYS_MAX} THEN {wrong} ELSE {count} END)"
    return Typed(f"{'date_sub' if minus else 'date_add'}({value.sql}, {count})", DATE)


def extract(context: Context, node: exp.Expr) -> Typed:
    """extract(part FROM value), a numeric of whole numbers."""
    part = node.this.name.upper()
    if _called(context, node) != "extract":
        raise context.refuse(node, "date_part is a float, and not supported in views", f"write extract({part} FROM ..)")
    value = settle(context.part(node, "expression"))
    how = _PARTS.get(part)
    if how is None or not is_moment(value.type) or (part in _TIMES and value.type is DATE):
        hint = f"supported: {', '.join(_PARTS).lower()} of date, timestamp and timestamptz"
        raise context.refuse(node, f"extract({part.lower()}) of {value.type.name} is not supported in views", hint)
    sql = how[0].format(value.sql)
    if part == "YEAR":
        # There is no year 0 in Postgres.
        sql = f"({sql} - CASE WHEN {sql} < 1 THEN 1 ELSE 0 END)"
    type_ = decimal(how[1], 0)
    return Typed(f"CAST({sql} AS {type_.spark})", type_)


def _called(context: Context, node: exp.Expr) -> str:
    """The parser has one node for extract() and date_part(): what the user wrote stands before what it is of."""
    before = context.source.text[: span(node.args["expression"])[0]]
    found: list[str] = _EXTRACTS.findall(before)
    return found[-1].lower() if found else ""


def truncated(context: Context, node: exp.Expr) -> Typed:
    """date_trunc('month', value); of a date it is a timestamptz."""
    # The parser takes a column's name for a unit's.
    if not _LITERAL_NEXT.match(context.source.text, node.meta["end"] + 1):
        raise context.refuse(node, "date_trunc takes a literal in views", "write date_trunc('month', ..)")
    value, unit = settle(context.part(node)), node.args["unit"].name.upper()
    if unit not in _UNITS or not is_moment(value.type):
        hint = f"supported: {', '.join(_UNITS).lower()} of date, timestamp and timestamptz"
        raise context.refuse(node, f"date_trunc('{unit.lower()}') of {value.type.name} is not supported in views", hint)
    type_ = TIMESTAMPTZ if value.type is DATE else value.type
    return cast(Typed(f"date_trunc('{unit}', {cast(value, TIMESTAMPTZ).sql})", TIMESTAMPTZ), type_)


def as_moments(context: Context, node: exp.Expr, left: Typed, right: Typed) -> tuple[Typed, Typed] | None:
    """A day beside a moment is its midnight; None if the two are not such a pair."""
    left, right = coerce(context, node, left, right.type), coerce(context, node, right, left.type)
    families = {left.type.family, right.type.family}
    if len(families) == 1 or not families <= MOMENTS:
        return None
    wide = TIMESTAMPTZ if Family.TIMESTAMPTZ in families else TIMESTAMP
    return cast(left, wide), cast(right, wide)


RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Extract: Rule(extract, frozenset({"this", "expression"}), "extract()"),
    exp.TimestampTrunc: Rule(truncated, frozenset({"this", "unit"}), "date_trunc()"),
}
