"""One value of a row, ours and the peer's: nothing if they are the same, else the kinds of difference between them.

In: the column's type and two JSON values, numbers as Decimal. Out: names of kinds (bench/compare/kinds.py). Keeps true:
a kind that says only the form differs was checked to hold the same value; what no rule explains is UNEXPLAINED.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

from bench.compare import printed

ABSENT: Final = object()
"""The value of a column that the row does not have."""
UNEXPLAINED: Final = "unexplained"
PLACEHOLDER: Final = "__debezium_unavailable_value"
_PLACEHOLDER_BYTES: Final = b64encode(PLACEHOLDER.encode()).decode()

Rule = Callable[[str, Any, Any], bool]
_SPECIAL = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
_MOMENTS = ("date", "timestamp", "timestamptz")
_ALIASES = {"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz"}
_ALIASES |= {"time without time zone": "time", "time with time zone": "timetz"}
_DOMAINS = {"public.day": "date"}
_DRIVER_PRINTS = ("line", "lseg", "box", "path", "polygon", "circle", "regclass")
_UNCONVERTED: Final = ("money", "name", "bit varying", "interval", "xml", "point")
"""Types whose arrays Debezium leaves out."""
_CONVERTED: Final = frozenset(
    (
        *("boolean", "smallint", "integer", "bigint", "oid", "real", "double precision", "text", "character varying"),
        *("character", '"char"', "bytea", "uuid", "json", "jsonb", "inet", "cidr", "macaddr", "macaddr8", *_MOMENTS),
        *("time", "timetz", "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange", "public.citext"),
    )
)
"""Types whose arrays Debezium brings whatever is in them, so that one that is null is not excused."""
_CUTOVER: Final = 1582
_JAVA = re.compile(r"\[L[\w.]+;@[0-9a-f]+")


def differences(kind: str, ours: Any, theirs: Any) -> Iterator[str]:
    """The kinds of difference; an array's, element by element where both have the elements."""
    if same(ours, theirs):
        return
    kind = _plain(kind)
    if kind.endswith("[]") and _are_alike(ours, theirs):
        for mine, other in zip(ours, theirs, strict=True):
            yield from differences(kind[:-2], mine, other)
        return
    yield next((name for name, rule in _RULES.items() if _holds(rule, kind, ours, theirs)), UNEXPLAINED)


def same(ours: Any, theirs: Any) -> bool:
    """Equal as JSON: a number is no truth value, and has a sign if it is zero."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, int | Decimal) and isinstance(theirs, int | Decimal) and bool not in (type(ours), type(theirs)):
        return ours == theirs and Decimal(ours).is_signed() == Decimal(theirs).is_signed()
    return type(ours) is type(theirs) and bool(ours == theirs)


def _are_alike(ours: Any, theirs: Any) -> bool:
    return (
        isinstance(ours, list)
        and isinstance(theirs, list)
        and len(ours) == len(theirs)
        and PLACEHOLDER not in theirs
        and not any(isinstance(each, list) for each in ours)
    )


def _plain(kind: str) -> str:
    """Without what a column's declaration adds to its type."""
    bare = re.sub(r"\(.*?\)", "", kind)
    suffix = "[]" if bare.endswith("[]") else ""
    bare = bare.removesuffix("[]").strip()
    if bare.startswith("interval"):
        bare = "interval"
    if not suffix:  # of domains' arrays, Debezium knows less than of domains
        bare = _DOMAINS.get(bare, bare)
    return _ALIASES.get(bare, bare) + suffix


def _holds(rule: Rule, kind: str, ours: Any, theirs: Any) -> bool:
    try:
        return rule(kind, ours, theirs)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # a value that is not of the rule's form
        return False


def _year(text: str) -> int:
    match = re.match(r"(\d+)-", text)
    return 0 if match is None else -int(match[1]) if text.endswith("BC") else int(match[1])


def _is_old(kind: str, ours: Any, theirs: Any) -> bool:
    return kind in _MOMENTS and _year(ours) <= _CUTOVER and isinstance(theirs, str) and theirs.endswith("Z")


def _is_cut(kind: str, ours: Any, theirs: Any) -> bool:
    whole = {"time": f"{ours}Z", "timetz": printed.utc(ours) if kind == "timetz" else ""}[kind]
    return len(theirs) < len(whole) and whole.startswith(theirs.removesuffix("Z"))


def _is_hstore(kind: str, ours: Any, theirs: Any) -> bool:
    return kind == "public.hstore" and printed.hstore(ours) == json.loads(theirs)


def _is_point(kind: str, ours: Any, theirs: Any) -> bool:
    x, y = ours.strip("()").split(",")
    told = (float(theirs["x"]), float(theirs["y"]))
    return kind == "point" and struct.pack("dd", float(x), float(y)) == struct.pack("dd", *told)


def _is_float(kind: str, ours: Any, theirs: Any) -> bool:
    size = {"real": "f", "double precision": "d"}[kind]
    return struct.pack(size, float(ours)) == struct.pack(size, float(theirs))


def _is_literal(kind: str, ours: Any, theirs: Any) -> bool:
    """Arrays of one's own types stand as Postgres prints them."""
    return kind.endswith("[]") and isinstance(ours, str) and ours.startswith("{") and _is_list(theirs)


def _has_bounds(kind: str, ours: Any, theirs: Any) -> bool:
    is_array = kind.endswith("[]") or kind == "public.numbers"
    return is_array and re.match(r"(\[-?\d+:-?\d+\])+=", ours) is not None and (theirs is None or _is_list(theirs))


def _is_list(theirs: Any) -> bool:
    return isinstance(theirs, list) and not any(isinstance(each, str) and _JAVA.match(each) for each in theirs)


def _lost_nesting(kind: str, ours: Any, theirs: Any) -> bool:
    nested = isinstance(ours, list) and any(isinstance(each, list) for each in ours)
    literal = isinstance(ours, str) and ours.startswith("{{")
    flat = [each is None or _JAVA.fullmatch(each) is not None for each in theirs]
    return kind.endswith("[]") and (nested or literal) and all(flat) and len(flat) > 0


def _lost_array(kind: str, ours: Any, theirs: Any) -> bool:
    if not kind.endswith("[]") or ours is None or theirs is not None:
        return False
    element = kind.removesuffix("[]")
    return any(word in repr(ours) for word in _SPECIAL) if element == "numeric" else element not in _CONVERTED


def _is_money(kind: str, ours: Any, theirs: Any) -> bool:
    return kind == "money" and bool(ours.replace("$", "").replace(",", "") == theirs)


def _is_bits(kind: str, ours: Any, theirs: Any) -> bool:
    return kind in ("bit", "bit varying") and int(ours or "0", 2) == printed.bits(theirs)


def _has_driver_text(kind: str, ours: Any, theirs: Any) -> bool:
    return kind in _DRIVER_PRINTS and printed.text_of(theirs) != ours


def _is_unknown(kind: str, ours: Any, theirs: Any) -> bool:
    return isinstance(ours, str) and printed.text_of(theirs) == ours


_RULES: Final[dict[str, Rule]] = {
    "generated-column": lambda kind, ours, theirs: ours is ABSENT and kind.endswith(" generated"),
    "column-absent": lambda kind, ours, theirs: theirs is ABSENT and kind.removesuffix("[]") in _UNCONVERTED,
    "toast-placeholder": lambda kind, ours, theirs: theirs in (PLACEHOLDER, [PLACEHOLDER], _PLACEHOLDER_BYTES),
    "infinity": lambda kind, ours, theirs: (
        kind in (*_MOMENTS, "interval") and ours in ("infinity", "-infinity") and isinstance(theirs, str)
    ),
    "numeric-special": lambda kind, ours, theirs: kind == "numeric" and _SPECIAL.get(ours) == theirs,
    "numeric-padded": lambda kind, ours, theirs: kind == "numeric" and Decimal(ours) == Decimal(theirs),
    "float-digits": _is_float,
    "iso-time": lambda kind, ours, theirs: (
        kind in _MOMENTS and "BC" not in ours and printed.moment(kind, theirs) == ours
    ),
    "year-bc": lambda kind, ours, theirs: kind in _MOMENTS and printed.moment(kind, theirs) == ours,
    "old-date": _is_old,
    "time-zone-mark": lambda kind, ours, theirs: kind == "time" and theirs == f"{ours}Z",
    "timetz-moved": lambda kind, ours, theirs: kind == "timetz" and printed.utc(ours) == theirs,
    "time-24": lambda kind, ours, theirs: kind in ("time", "timetz") and ours.startswith("24:00:00"),
    "time-array-cut": _is_cut,
    "interval-form": lambda kind, ours, theirs: (
        kind == "interval" and printed.interval(ours) == printed.iso_interval(theirs)
    ),
    "money-form": _is_money,
    "bits-as-bytes": _is_bits,
    "hstore-json": _is_hstore,
    "point-struct": _is_point,
    "vector-lost": lambda kind, ours, theirs: kind in ("int2vector", "oidvector") and theirs in ([], None),
    "array-bounds": _has_bounds,
    "array-nested": _lost_nesting,
    "array-literal": _is_literal,
    "array-lost": _lost_array,
    "unknown-type": _is_unknown,
    "unknown-type-driver": _has_driver_text,
}
"""In this order: the first that holds names the kind."""
