"""Casts, and AT TIME ZONE 'UTC'.

In: cast nodes. Out: Spark casts that round, fail and print as Postgres's do. Keeps true: a text is what Postgres prints
(in UTC, ISO style); a number that does not fit raises; a pair of types without an exact cast is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.literals import coerce
from jobs.declare.quotients import is_computed
from jobs.plan.types import (
    BOOL,
    DATE,
    INT2,
    INT4,
    INT8,
    JSON,
    JSONB,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    Family,
    Type,
    Typed,
    as_decimal,
    cast,
    decimal,
)
from jobs.typemap import PRECISION_MAX

D = exp.DType
_TARGETS: Final[Mapping[exp.DType, Type]] = {
    D.TEXT: TEXT,
    D.VARCHAR: VARCHAR,
    D.SMALLINT: INT2,
    D.INT: INT4,
    D.BIGINT: INT8,
    D.BOOLEAN: BOOL,
    D.DATE: DATE,
    D.TIMESTAMP: TIMESTAMP,
    D.TIMESTAMPTZ: TIMESTAMPTZ,
    D.UUID: UUID,
    D.JSON: JSON,
    D.JSONB: JSONB,
}
_SUPPORTED: Final = "supported: text, varchar, smallint, integer, bigint, numeric(p,s), boolean, date, timestamp, uuid"


def cast_to(context: Context, node: exp.Expr) -> Typed:
    """expression::type."""
    target = _target(context, node)
    value = coerce(context, node, context.part(node), target)
    found = _numeric(context, node, value, target) or _convert(value, target)
    if found is None:
        hint = _SUPPORTED if value.type.family is not Family.NUMERIC else "cast it to numeric(p,s) first"
        message = f"the cast from {value.type.name} to {target.name} is not supported in views"
        raise context.refuse(node, message, hint)
    length = _parameters(context, node)
    if target == TEXT:
        return replace(found, type=target, sql=f"left({found.sql}, {length[0]})" if length else found.sql)
    return found


def _target(context: Context, node: exp.Expr) -> Type:
    to = node.args["to"]
    plain = all(key in ("this", "expressions") or not value for key, value in to.args.items())
    parameters = _parameters(context, node) if plain else []
    if to.this is D.DECIMAL and plain:
        return _declared(context, node, parameters)
    found = _TARGETS.get(to.this)
    takes = 1 if to.this is D.VARCHAR else 0
    if found is None or len(parameters) > takes or not plain:
        raise context.refuse(node, f"casts to {to.sql('postgres').lower()} are not supported in views", _SUPPORTED)
    return found


def _declared(context: Context, node: exp.Expr, parameters: list[int]) -> Type:
    if not parameters:
        return Type(Family.NUMERIC, "numeric", "STRING")
    precision, scale = parameters[0], parameters[1] if len(parameters) > 1 else 0
    if not 0 <= scale <= precision <= PRECISION_MAX:
        hint = f"write numeric(p,s) with s <= p <= {PRECISION_MAX}"
        raise context.refuse(node, f"no decimal holds numeric({precision},{scale})", hint)
    return decimal(precision, scale)


def _parameters(context: Context, node: exp.Expr) -> list[int]:
    found = []
    for parameter in node.args["to"].expressions:
        value = parameter.this if isinstance(parameter, exp.DataTypeParam) else parameter
        if not (isinstance(value, exp.Literal) and str(value.this).isdigit()):
            raise context.refuse(node, "a type's parameters must be plain numbers", _SUPPORTED)
        found.append(int(value.this))
    return found


def _numeric(context: Context, node: exp.Expr, value: Typed, target: Type) -> Typed | None:
    """Casts to numeric, which need to know both sides' digits."""
    family = value.type.family
    if target.family is Family.NUMERIC and family in (Family.INT, Family.DECIMAL):
        return as_decimal(value)
    if target.family is Family.NUMERIC and is_computed(value.type):
        return value
    if target.family is Family.INT and is_computed(value.type):
        return cast(cast(value, decimal(PRECISION_MAX, 0)), target)
    if target.family is not Family.DECIMAL or family not in (Family.INT, Family.DECIMAL, Family.NUMERIC):
        return None
    # The cast rounds half away from zero and raises on overflow, in both.
    return Typed(f"CAST({value.sql} AS {target.spark})", target)


def _convert(value: Typed, target: Type) -> Typed | None:
    if value.type == target:
        return value
    if target in (TEXT, VARCHAR):
        return to_text(value)
    how = _CASTS.get((value.type.family, target.family))
    return how(value, target) if how else None


def to_text(value: Typed) -> Typed | None:
    """What Postgres prints; None where that is not sure."""
    type_ = value.type
    if type_.family is Family.DECIMAL and not type_.fixed:
        return None
    how = _TEXTS.get(type_.family)
    if how is None or not type_.castable:
        return None
    return Typed(how.format(value.sql), TEXT)


def _plain(value: Typed, target: Type) -> Typed:
    return cast(value, target)


def _rounded(value: Typed, target: Type) -> Typed:
    """Postgres rounds half away from zero where Spark's cast to an integer would truncate."""
    whole = decimal(min(PRECISION_MAX, value.type.precision - value.type.scale + 1), 0)
    return Typed(f"CAST(CAST({value.sql} AS {whole.spark}) AS {target.spark})", target)


_CASTS: Final[Mapping[tuple[Family, Family], Callable[[Typed, Type], Typed]]] = {
    (Family.INT, Family.INT): _plain,
    (Family.DECIMAL, Family.INT): _rounded,
    (Family.DATE, Family.TIMESTAMP): _plain,
    (Family.TIMESTAMP, Family.DATE): _plain,
    (Family.TIMESTAMPTZ, Family.DATE): _plain,
    (Family.TIMESTAMPTZ, Family.TIMESTAMP): _plain,
    (Family.TIMESTAMP, Family.TIMESTAMPTZ): _plain,
}

_TEXTS: Final[Mapping[Family, str]] = {
    Family.TEXT: "{}",
    Family.UUID: "{}",
    Family.JSON: "{}",
    Family.OTHER: "CAST({} AS STRING)",
    Family.NUMERIC: "{}",
    Family.CHAR: "rtrim({})",
    Family.BOOL: "CAST({} AS STRING)",
    Family.INT: "CAST({} AS STRING)",
    Family.DECIMAL: "CAST({} AS STRING)",
    # Spark writes a plus sign before years above 9999.
    Family.DATE: "trim(LEADING '+' FROM CAST({} AS STRING))",
    Family.TIMESTAMP: "trim(LEADING '+' FROM CAST({} AS STRING))",
    Family.TIMESTAMPTZ: "(trim(LEADING '+' FROM CAST({} AS STRING)) || '+00')",
}


def at_time_zone(context: Context, node: exp.Expr) -> Typed:
    """timestamptz AT TIME ZONE 'UTC', and back; the session's zone is UTC in both engines."""
    value, zone = context.part(node), node.args["zone"]
    if not (isinstance(zone, exp.Literal) and str(zone.this).upper() == "UTC"):
        raise context.refuse(node, "only the time zone 'UTC' is supported in views", "write AT TIME ZONE 'UTC'")
    if value.type.family is Family.TIMESTAMPTZ:
        return cast(value, TIMESTAMP)
    if value.type.family is Family.TIMESTAMP:
        return cast(value, TIMESTAMPTZ)
    raise context.refuse(node, f"AT TIME ZONE on {value.type.name} is not supported in views", "cast it to timestamp")


RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Cast: Rule(cast_to, frozenset({"this", "to"}), "the cast"),
    exp.AtTimeZone: Rule(at_time_zone, frozenset({"this", "zone"}), "AT TIME ZONE"),
}
