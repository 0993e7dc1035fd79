"""LIKE with a literal pattern.

In: LIKE nodes, with or without ESCAPE. Out: Spark's LIKE with the same meaning. Keeps true: Spark refuses a backslash
before an ordinary character, Postgres takes the character as it is; so the pattern is read and written anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.literals import string
from jobs.declare.operators import text
from jobs.plan.types import BOOL, Typed

_WILD: Final = "%_"


def spark_pattern(pattern: str, escape: str) -> str | None:
    """The pattern with a backslash as escape; None if it ends within an escape, which Postgres refuses too."""
    written, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            if at == len(pattern):
                return None
            written.append(_literally(pattern[at]))
        else:
            written.append(char if char in _WILD else _literally(char))
        at += 1
    return "".join(written)


def _literally(char: str) -> str:
    return f"\\{char}" if char in _WILD or char == "\\" else char


def like(context: Context, node: exp.Expr) -> Typed:
    """[NOT] LIKE 'pattern'."""
    return _like(context, node, "\\")


def escaped_like(context: Context, node: exp.Expr) -> Typed:
    """[NOT] LIKE 'pattern' ESCAPE 'c'."""
    inner, escape = node.args["this"], node.args["expression"]
    if not isinstance(inner, exp.Like) or not isinstance(escape, exp.Literal) or len(str(escape.this)) > 1:
        raise context.refuse(node, "this ESCAPE is not supported in views", "write LIKE '..' ESCAPE '!'")
    return _like(context, inner, str(escape.this))


def _like(context: Context, node: exp.Expr, escape: str) -> Typed:
    value, pattern = text(context, node, "this"), node.args["expression"]
    if not isinstance(pattern, exp.Literal) or not pattern.args.get("is_string"):
        hint = "write LIKE 'pattern'; for a column: starts_with, strpos"
        raise context.refuse(pattern, "LIKE needs a literal pattern in views", hint)
    written = spark_pattern(str(pattern.this), escape)
    if written is None:
        raise context.refuse(pattern, "the pattern ends with its escape character", "double it")
    word = "NOT LIKE" if node.args.get("negate") else "LIKE"
    return Typed(f"({value.sql} {word} {string(written)})", BOOL)


RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Like: Rule(like, frozenset({"this", "expression", "negate"}), "LIKE"),
    exp.Escape: Rule(escaped_like, frozenset({"this", "expression"}), "LIKE"),
}
