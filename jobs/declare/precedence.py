"""Whether the tree that sqlglot read is the one that Postgres would read.

In: a parsed expression. Out: nothing, or an error at an operator that needs parentheses. Keeps true: every operator
stands over operators that bind tighter by Postgres's table (its manual, 4.1.6), so that no other reading exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.context import UNSUPPORTED, span
from jobs.declare.source import Source

_COMPARED: Final = 5
_NEGATED: Final = 3

LEVELS: Final[Mapping[type[exp.Expr], int]] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: _NEGATED,
    exp.Is: 4,
    exp.NullSafeEQ: 4,
    exp.NullSafeNEQ: 4,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _COMPARED),
    **dict.fromkeys((exp.Between, exp.In, exp.Like, exp.Escape), 6),
    exp.DPipe: 7,
    **dict.fromkeys((exp.Add, exp.Sub), 8),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod), 9),
    exp.AtTimeZone: 10,
    exp.Collate: 11,
    exp.Neg: 12,
}
_LEFT_TO_RIGHT: Final = (exp.Or, exp.And, exp.DPipe, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_OPERANDS: Final = ("this", "expression", "low", "high")


def check_precedence(source: Source, root: exp.Expr) -> None:
    """Refuse a tree that only parentheses would make certain."""
    for node in root.walk():
        level = LEVELS.get(type(node))
        if level is None:
            continue
        for part, operand in _operands(node):
            if not _tighter(node, level, part, operand):
                raise _unclear(source, node, operand)


def _operands(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for part in _OPERANDS:
        operand = node.args.get(part)
        if isinstance(operand, exp.Expr) and type(operand) in LEVELS:
            yield part, operand


def _tighter(node: exp.Expr, level: int, part: str, operand: exp.Expr) -> bool:
    if _is_negated_word(node, operand):
        return True
    inner = LEVELS[type(operand)]
    if inner != level:
        return inner > level
    chained = part == "this" and isinstance(node, _LEFT_TO_RIGHT)
    return chained or isinstance(node, (exp.Not, exp.Neg, exp.Escape))


def _is_negated_word(node: exp.Expr, operand: exp.Expr) -> bool:
    # `a NOT IN (..)`, `a NOT BETWEEN ..` and `a IS NOT TRUE` come as NOT over the whole.
    return isinstance(node, exp.Not) and isinstance(operand, (exp.In, exp.Between, exp.Is))


def _unclear(source: Source, node: exp.Expr, operand: exp.Expr) -> ConfigError:
    start, length = span(operand)
    inner = operand.sql("postgres")[:60]
    return source.error(
        start,
        "without parentheses this can be read in two ways",
        f"write parentheses around what belongs together, perhaps ({inner})",
        code=UNSUPPORTED,
        length=length,
    )
