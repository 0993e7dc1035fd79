"""Numerics whose digits depend on their values: quotients and averages, and what is computed from them.

In: numbers. Out: Spark SQL that makes the text which Postgres prints. Keeps true: digit for digit Postgres's, which
takes so many that about 16 count (select_div_scale in numeric.c), at least those of both sides, and rounds half away
from zero; what 38 digits do not hold raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jobs.plan.types import Family, Type, Typed

COMPUTED: Final = Type(Family.NUMERIC, "numeric", "STRING", precision=38)
"""Its values are plain digits, 38 at most before the point and 37 behind it, unlike those of a numeric column."""
_BEHIND_MAX: Final = 37
_WHOLE: Final = "DECIMAL(38,0)"
_TOO_LONG: Final = "CAST(raise_error('a numeric with too many digits') AS INT)"


def is_computed(type_: Type) -> bool:
    """Whether values of the type are such texts."""
    return type_ == COMPUTED


def is_exact(type_: Type) -> bool:
    """Whether the type's values are numbers whose digits are all known."""
    return type_.family in (Family.INT, Family.DECIMAL) or is_computed(type_)


def is_sure(typed: Typed) -> bool:
    """Whether Postgres prints the number with the digits that its type has."""
    return typed.type.family is not Family.DECIMAL or typed.type.fixed


def text(typed: Typed) -> str:
    """The number as Postgres prints it, if it is fixed."""
    return typed.sql if is_computed(typed.type) else f"CAST({typed.sql} AS STRING)"


def as_pair(typed: Typed) -> Typed:
    """The number as one that can be compared with any other: before and behind the point."""
    fraction = "(CASE WHEN startswith(v.t, '-') THEN '-0.' ELSE '0.' END) || split_part(v.t, '.', 2)"
    pair = f"struct(CAST(split_part(v.t, '.', 1) AS {_WHOLE}) AS w, CAST({fraction} AS DECIMAL(38,{_BEHIND_MAX})) AS f)"
    return Typed(_let("v", {"t": text(typed)}, f"IF(v.t IS NULL, NULL, {pair})"), COMPUTED)


def quotient(left: Typed, right: Typed) -> Typed:
    """left / right."""
    unsure = [each.type.scale for each in (left, right) if not is_sure(each)]
    sure = [f"b.s{at}" for at, each in enumerate((left, right), 1) if is_sure(each)]
    digits = f"greatest(16 - 4 * (c.w1 - c.w2 - IF(c.f1 <= c.f2, 1, 0)), {', '.join(['0', *sure])})"
    # The digits that a text has by its type, and may not have in Postgres, do no harm where more are taken anyway.
    least = f"d.r < {max(unsure, default=0)} OR d.r > {_BEHIND_MAX}"
    sides = {name: value for at in (1, 2) for name, value in _taken_apart(at).items()}
    body = _let("e", {"n": f"IF({least}, {_TOO_LONG}, d.r) + b.s2 - b.s1"}, _divided())
    body = _let("d", {"r": digits}, body)
    body = _let("c", {name: value for at in (1, 2) for name, value in _leading(at).items()}, body)
    body = _let("b", {**sides, "minus": "startswith(a.t1, '-') <> startswith(a.t2, '-')"}, body)
    body = f"IF(a.t1 IS NULL OR a.t2 IS NULL, NULL, {body})"
    return Typed(_let("a", {"t1": text(left), "t2": text(right)}, body), COMPUTED)


def _taken_apart(at: int) -> Mapping[str, str]:
    """All digits as a whole number, and how many of them stand behind the point."""
    digits = f"CAST(replace(replace(a.t{at}, '.', ''), '-', '') AS {_WHOLE})"
    return {f"u{at}": digits, f"s{at}": f"length(split_part(a.t{at}, '.', 2))"}


def _leading(at: int) -> Mapping[str, str]:
    """The weight and the value of the first digit that is not 0, in base 10000."""
    written = f"(CAST(b.u{at} AS STRING) || repeat('0', pmod(-b.s{at}, 4)))"
    groups = f"((length({written}) + 3) div 4)"
    first = f"CAST(left({written}, CAST(length({written}) - 4 * ({groups} - 1) AS INT)) AS INT)"
    return {
        f"w{at}": f"IF(b.u{at} = 0, 0, {groups} - 1 - ((b.s{at} + 3) div 4))",
        f"f{at}": f"IF(b.u{at} = 0, 0, {first})",
    }


def _divided() -> str:
    """Long division, four digits a step."""
    first = {"f": f"CAST(CAST(b.u1 AS STRING) || repeat('0', pmod(e.n, 4)) AS {_WHOLE})"}
    start = (
        f"named_struct('d', CAST(CAST((g.f - g.f % b.u2) / b.u2 AS {_WHOLE}) AS STRING),"
        f" 'r', CAST(g.f % b.u2 AS {_WHOLE}))"
    )
    step = (
        "named_struct('d', s.d || lpad(CAST((s.r * 10000) div b.u2 AS STRING), 4, '0'),"
        f" 'r', CAST((s.r * 10000) % b.u2 AS {_WHOLE}))"
    )
    rounded = f"CAST(CAST(s.d AS {_WHOLE}) + IF(s.r * 2 >= b.u2, 1, 0) AS {_WHOLE})"
    steps = "slice(sequence(1, 40), 1, CAST(e.n div 4 AS INT))"
    whole = f"aggregate({steps}, {start}, (s, i) -> {step}, s -> {rounded})"
    return _let("g", first, _let("q", {"u": whole}, _placed("q.u", "d.r", "b.minus")))


def _placed(digits: str, behind: str, minus: str) -> str:
    """A whole number's digits with the point before the last so many; zero has no sign."""
    padded = (
        f"lpad(CAST({digits} AS STRING), greatest(length(CAST({digits} AS STRING)), CAST({behind} AS INT) + 1), '0')"
    )
    cut = (
        f"left(h.p, length(h.p) - CAST({behind} AS INT))"
        f" || IF({behind} > 0, '.' || right(h.p, CAST({behind} AS INT)), '')"
    )
    return _let("h", {"p": padded}, f"IF({minus} AND {digits} <> 0, '-', '') || {cut}")


def product(left: Typed, right: Typed) -> Typed:
    """left * right, with the digits behind the point of both."""
    body = _placed("CAST(b.u1 * b.u2 AS DECIMAL(38,0))", "d.r", "b.minus")
    body = _let("d", {"r": f"IF(b.s1 + b.s2 > {_BEHIND_MAX}, {_TOO_LONG}, b.s1 + b.s2)"}, body)
    sides = {name: value for at in (1, 2) for name, value in _taken_apart(at).items()}
    body = _let("b", {**sides, "minus": "startswith(a.t1, '-') <> startswith(a.t2, '-')"}, body)
    body = f"IF(a.t1 IS NULL OR a.t2 IS NULL, NULL, {body})"
    return Typed(_let("a", {"t1": text(left), "t2": text(right)}, body), COMPUTED)


def _let(name: str, values: Mapping[str, str], body: str) -> str:
    """The body, where `name.x` stands for a value that is computed once."""
    items = ", ".join(f"'{each}', {value}" for each, value in values.items())
    return f"transform(array(named_struct({items})), {name} -> {body})[0]"
