"""A view's output columns: `*` expanded, every expression named, no name twice.

In: the parts of a SELECT and a translation context. Out: outputs in order. Keeps true: an output's value prints in
Delta as it prints in Postgres, and its name is the one that Postgres would give it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.context import Context, quote_column
from jobs.declare.literals import settle
from jobs.declare.row import Row
from jobs.identifiers import identifier
from jobs.plan.types import Family, Typed

OUTPUT: Final = "VIEW_OUTPUT"
NAME_BYTES_MAX: Final = 63


@dataclass(frozen=True, slots=True)
class Output:
    """One output column; `source` is the table's column that it projects plainly, if it does."""

    name: str
    typed: Typed
    source: str | None
    node: exp.Expr


def outputs(context: Context, row: Row, nodes: Sequence[exp.Expr]) -> tuple[Output, ...]:
    """The outputs of a select list."""
    found = tuple(output for node in nodes for output in _outputs(context, row, node))
    seen: set[str] = set()
    for output in found:
        if output.name in seen:
            hint = "give one of them another name with AS"
            raise _error(context, output.node, f"the view has two columns {output.name}", hint)
        seen.add(output.name)
    return found


def is_star(node: exp.Expr) -> bool:
    """`*` or `table.*`."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def star_span(node: exp.Expr) -> tuple[int, int]:
    """Where `*` or `table.*` begins and ends."""
    places = [each.meta for each in node.walk() if "start" in each.meta]
    return min(place["start"] for place in places), max(place["end"] for place in places)


def _outputs(context: Context, row: Row, node: exp.Expr) -> Iterator[Output]:
    if not is_star(node):
        yield _output(context, node)
        return
    star = node if isinstance(node, exp.Star) else node.this
    if any(star.args.values()):
        raise context.refuse(node, "only a plain * is supported in views", "name the columns")
    if isinstance(node, exp.Column):
        row.check_qualifier(context, node)
    for name, column in row.columns.items():
        row.used.add(name)
        yield Output(name, Typed(quote_column(column.delta), column.type, column=name), name, node)


def _output(context: Context, node: exp.Expr) -> Output:
    inner = node.this if isinstance(node, exp.Alias) else node
    typed = settle(context.translate(inner))
    if isinstance(node, exp.Alias):
        name = identifier(node.args["alias"])
    elif isinstance(node, exp.Column):
        name = identifier(node.this)
    else:
        raise _error(context, node, "this expression has no name", "name it: .. AS name")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise _error(context, node, f"Postgres cuts names over {NAME_BYTES_MAX} bytes", "choose a shorter name")
    _check_prints(context, inner, typed)
    return Output(name, typed, typed.column, node)


def _check_prints(context: Context, node: exp.Expr, typed: Typed) -> None:
    if typed.type.family is Family.DECIMAL and not typed.type.fixed:
        hint = f"write the literals with the same digits (0.00 for 0), or cast the whole: (..)::{typed.type.name}"
        raise context.refuse(node, "Postgres would print these numbers with differing numbers of digits", hint)


def _error(context: Context, node: exp.Expr, message: str, hint: str) -> ConfigError:
    return context.error(node, message, hint, OUTPUT)
