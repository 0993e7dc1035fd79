"""JSON as Postgres builds and prints it: json_build_object, jsonb_build_object and the like.

In: function nodes, and values for the aggregates. Out: Spark expressions of the very text. Keeps true: json is printed
as it was written and jsonb in its one canonical form, so a json value never becomes part of a jsonb one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.casts import to_text
from jobs.declare.context import Context, Rule
from jobs.declare.literals import settle, string
from jobs.declare.operators import REMEDIES
from jobs.plan.types import JSON, JSONB, Family, Type, Typed

_BARE: Final = frozenset({Family.BOOL, Family.INT, Family.DECIMAL})
_QUOTED: Final = frozenset({Family.TEXT, Family.UUID})
_TIMES: Final[Mapping[Family, str]] = {
    Family.DATE: "{}",
    Family.TIMESTAMP: "replace({}, ' ', 'T')",
    Family.TIMESTAMPTZ: "replace({}, ' ', 'T') || ':00'",
}
_NAMED: Final = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
_SPECIAL: Final = string('[\x01-\x1f"\\\\]')
_OTHER: Final = "supported: numbers, boolean, text, uuid, dates and times, json and jsonb; else cast it to text"


def json_text(context: Context, node: exp.Expr, typed: Typed, whole: Type) -> str:
    """The text of a value within JSON of the `whole` type; `null` for NULL."""
    value = settle(typed)
    family = value.type.family
    if value.type == JSONB or value.type == whole:
        return f"coalesce({value.sql}, 'null')"
    printed = to_text(value) if family in _BARE | _QUOTED | _TIMES.keys() else None
    if printed is None:
        hint = "cast it to jsonb in Postgres" if family is Family.JSON else REMEDIES.get(family, _OTHER)
        raise context.refuse(node, f"{value.type.name} in {whole.name} is not supported in views", hint)
    if family in _BARE:
        return f"coalesce({printed.sql}, 'null')"
    inner = _escaped(printed.sql) if family in _QUOTED else _TIMES[family].format(printed.sql)
    return f"coalesce('\"' || {inner} || '\"', 'null')"


def _escaped(sql: str) -> str:
    r"""As escape_json does it: \b \f \n \r \t \" \\, and \u00xx for the other control characters."""
    quoted = f"replace(replace({sql}, {string(chr(92))}, {string(chr(92) * 2)}), '\"', {string(chr(92) + chr(34))})"
    named = " ".join(f"WHEN {ord(char)} THEN {string(chr(92) + letter)}" for char, letter in _NAMED.items())
    other = f"format_string({string(chr(92) + 'u%04x')}, i)"
    step = f"(a, i) -> replace(a, char(i), CASE i {named} ELSE {other} END)"
    return f"(CASE WHEN {sql} RLIKE {_SPECIAL} THEN aggregate(sequence(1, 31), {quoted}, {step}) ELSE {sql} END)"


def _object(whole: Type) -> Callable[[Context, exp.Expr], Typed]:
    def built(context: Context, node: exp.Expr) -> Typed:
        arguments = node.expressions
        if len(arguments) % 2:
            raise context.refuse(node, "every key needs a value", "write json_build_object('key', value, ..)")
        keys = [_key(context, each) for each in arguments[::2]]
        values = [json_text(context, each, context.translate(each), whole) for each in arguments[1::2]]
        members = list(zip(keys, values, strict=True))
        if whole is JSONB:
            # The last of several with one key; by length and then by bytes.
            members = sorted(dict(members).items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
        colon = ": " if whole is JSONB else " : "
        return Typed(_joined("{", ((_quoted(key) + colon, value) for key, value in members), "}"), whole)

    return built


def _array(whole: Type) -> Callable[[Context, exp.Expr], Typed]:
    def built(context: Context, node: exp.Expr) -> Typed:
        values = [json_text(context, each, context.translate(each), whole) for each in node.expressions]
        return Typed(_joined("[", (("", value) for value in values), "]"), whole)

    return built


def _joined(begin: str, members: Iterable[tuple[str, str]], end: str) -> str:
    parts: list[str] = []
    text = begin
    for place, (label, value) in enumerate(members):
        parts += [string(text + (", " if place else "") + label), value]
        text = ""
    return f"concat({', '.join([*parts, string(text + end)])})"


def _key(context: Context, node: exp.Expr) -> str:
    if isinstance(node, exp.Literal) and node.args.get("is_string"):
        return str(node.this)
    raise context.refuse(node, "a key must be a string literal here", "write 'key'")


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


_ARGUMENTS: Final = frozenset({"this", "expressions"})
FUNCTIONS: Final[Mapping[str, Rule]] = {
    f"{type_.name}_build_{word}": Rule(build(type_), _ARGUMENTS, f"{type_.name}_build_{word}()")
    for type_ in (JSON, JSONB)
    for word, build in (("object", _object), ("array", _array))
}
