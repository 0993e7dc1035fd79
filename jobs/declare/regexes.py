"""Regular expressions that both engines understand alike.

In: ~ and !~ with a literal pattern. Out: Spark's RLIKE with the pattern written anew. Keeps true: only what has one
meaning in Postgres's and in Java's syntax; whether there is a match does not depend on which one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from jobs.declare.context import Context, Rule
from jobs.declare.literals import string
from jobs.declare.operators import text
from jobs.plan.types import BOOL, Typed

_HINT: Final = "supported: characters, . ^ $ | ( ) [a-z] [^a-z] * + ? {n} {n,m}, and a backslash before punctuation"
_TOKEN = re.compile(
    r"(?P<set>\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[^\W]|[ .,:;/@#%+])+-?\])"
    r"|(?P<many>[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})"
    r"|(?P<escaped>\\[^\w\s])"
    r"|(?P<special>[.^$|()])"
    r"|(?P<plain>[^\\\[\]{}*+?])",
    re.DOTALL,
)
_RANGE = re.compile(r"([A-Za-z0-9])-([A-Za-z0-9])")
# The ends of the text alone, in Postgres; its . takes a line's end as well, so (?s).
_ENDS: Final = {"^": "\\A", "$": "\\z"}
_NOTHING: Final = ("", "|", "(")
_MANY_MAX: Final = 255


def java_pattern(pattern: str) -> str | None:
    """The same pattern in Java's words; None where it may mean something else there."""
    written, before, depth, at = ["(?s)"], "", 0, 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None or not _may_follow(match, before):
            return None
        piece, at = match[0], match.end()
        depth += (piece == "(") - (piece == ")")
        if depth < 0:
            return None
        before = piece if match["special"] else "*" if match["many"] else "x"
        written.append(_written(match))
    return None if depth or before in _NOTHING else "".join(written)


def _may_follow(match: re.Match[str], before: str) -> bool:
    if match["many"]:
        counts = [int(each) for each in re.findall("[0-9]+", match[0])]
        return before in ("x", ".", ")") and sorted(counts) == counts and max(counts, default=0) <= _MANY_MAX
    if match["set"]:
        return all(low <= high for low, high in _RANGE.findall(match[0]))
    return match[0] not in ("|", ")") or bool(match["escaped"]) or before not in _NOTHING


def _written(match: re.Match[str]) -> str:
    piece = match[0]
    if match["special"]:
        return _ENDS.get(piece, piece)
    is_bare = match["plain"] is None or piece.isalnum() or piece in "_\n\t" or not piece.isascii()
    return piece if is_bare else f"\\{piece}"


def matches(context: Context, node: exp.Expr) -> Typed:
    """text ~ 'pattern'."""
    value, pattern = text(context, node, "this"), node.args["expression"]
    if not isinstance(pattern, exp.Literal) or not pattern.args.get("is_string"):
        raise context.refuse(pattern, "a regular expression must be a literal in views", "write ~ 'pattern'")
    written = java_pattern(str(pattern.this))
    if written is None:
        raise context.refuse(pattern, "this regular expression may mean something else in Spark", _HINT)
    return Typed(f"({value.sql} RLIKE {string(written)})", BOOL)


RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.RegexpLike: Rule(matches, frozenset({"this", "expression"}), "~"),
}
