"""Window functions: OVER (PARTITION BY .. ORDER BY .. frame), and DISTINCT ON, which is one.

In: the window calls of a select list. Out: their results beside the rows. Keeps true: partitions are attributes, NULLs
are ordered as in Postgres; a result that depends on how ties are broken is told as a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from jobs.declare.aggregates import average, is_average, require_identical
from jobs.declare.calls import written
from jobs.declare.frames import Frame, frame_of
from jobs.declare.literals import settle
from jobs.declare.ordering import direction, require_sure_order
from jobs.declare.quotients import quotient
from jobs.declare.resolution import Resolution
from jobs.declare.rows import Rows, as_expr
from jobs.declare.uniqueness import facts
from jobs.declare.window_functions import Call, refuse_distinct, window_function
from jobs.identifiers import identifier
from jobs.plan.nodes import Attribute, Expr, Window, WindowCall
from jobs.plan.types import BOOL, Typed

_PARTS: Final = frozenset({"this", "partition_by", "order", "spec", "alias", "over"})
_DEFINITION: Final = ("partition_by", "order", "spec")
_NAMED: Final = "write the whole window: OVER (PARTITION BY .. ORDER BY ..)"


@dataclass(frozen=True, slots=True)
class Over:
    """A window: what stands in its parentheses, the columns of its partition and of its order, and all it reads."""

    sql: str
    partition: tuple[Attribute, ...]
    ordered: tuple[Attribute, ...]
    reads: frozenset[Attribute]
    frame: Frame
    is_ordered: bool


def windows(node: exp.Expr) -> Iterator[exp.Window]:
    """The window calls of an expression that belong to its own query."""
    if isinstance(node, exp.Window):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from windows(child)


def add_windows(resolution: Resolution, rows: Rows, select: exp.Select, nodes: Sequence[exp.Expr]) -> None:
    """Put the results of all window calls beside the rows."""
    named = {identifier(each.this): each for each in select.args.get("windows") or []}
    found = [each for node in nodes for each in windows(node)]
    # All windows first: their partitions may add columns to the rows.
    overs = [_over(rows, _definition(resolution, node, named)) for node in found]
    calls: dict[str, WindowCall] = {}
    answers: dict[int, Typed] = {}
    averages: dict[int, list[Attribute]] = {}
    for node, over in zip(found, overs, strict=True):
        made = _calls(resolution, rows, node, over)
        kept = [calls.setdefault(call.expr.sql, call).column for call, _ in made]
        if len(kept) > 1:
            averages[id(node)] = kept
        else:
            answers[id(node)] = Typed(kept[0].sql, kept[0].type, c_collated=made[0][1].c_collated)
    if calls:
        rows.plan = Window(rows.plan, tuple(calls.values()))
        for at, parts in averages.items():
            typed = quotient(*(Typed(part.sql, part.type) for part in parts))
            column = rows.beside(typed, frozenset(parts), "avg")
            answers[at] = Typed(column.sql, column.type)
        rows.answers.update(answers)


def _definition(resolution: Resolution, node: exp.Expr, named: Mapping[str, exp.Expr]) -> dict[str, object]:
    """A window's parts, with those of the window that it is named after."""
    resolution.only(node, _PARTS, "a window", _NAMED)
    own = {part: node.args[part] for part in _DEFINITION if node.args.get(part)}
    alias = node.args.get("alias")
    if alias is None:
        return own
    base = named.get(identifier(alias))
    if base is None:
        raise resolution.refuse(node, f"there is no window {identifier(alias)}", _NAMED)
    inherited = _definition(resolution, base, {name: each for name, each in named.items() if each is not base})
    if ("spec" in inherited and own) or "partition_by" in own or ("order" in own and "order" in inherited):
        raise resolution.refuse(node, "this use of a named window is not supported in views", _NAMED)
    return {**inherited, **own}


def _over(rows: Rows, parts: Mapping[str, object]) -> Over:
    partition = tuple(dict.fromkeys(_partition(rows, _expressions(parts.get("partition_by")))))
    order = parts.get("order")
    items = order.expressions if isinstance(order, exp.Order) else []
    ordered = [_ordered(rows, item) for item in items]
    frame = frame_of(rows, parts["spec"] if isinstance(parts.get("spec"), exp.Expr) else None)  # type: ignore[arg-type]
    by = f"PARTITION BY {', '.join(column.sql for column in partition)}" if partition else ""
    texts = [f"{expr.sql} {direction(item)}" for expr, item in zip(ordered, items, strict=True)]
    in_order = f"ORDER BY {', '.join(texts)}" if texts else ""
    return Over(
        sql=" ".join(part for part in (by, in_order) if part) + frame.sql,
        partition=partition,
        ordered=tuple(expr.attribute for expr in ordered if expr.attribute is not None),
        reads=frozenset(partition).union(*(expr.reads for expr in ordered)),
        frame=frame,
        is_ordered=bool(texts),
    )


def _expressions(value: object) -> list[exp.Expr]:
    return list(value) if isinstance(value, list) else []


def _partition(rows: Rows, nodes: Iterable[exp.Expr]) -> Iterator[Attribute]:
    for node in nodes:
        typed, reads = rows.typed(node)
        if reads:
            require_identical(rows, node, settle(typed), "PARTITION BY")
            yield rows.beside(settle(typed), reads, node.alias_or_name or "partition")


def _ordered(rows: Rows, item: exp.Expr) -> Expr:
    typed, reads = rows.typed(item.this)
    return as_expr(require_sure_order(rows, item.this, typed), reads)


def _calls(resolution: Resolution, rows: Rows, node: exp.Window, over: Over) -> list[tuple[WindowCall, Typed]]:
    """The calls whose results a window call is made of: one, and for an average the sum and the count."""
    if not is_average(node.this) or isinstance(node.this, exp.Filter):
        return [_call(resolution, rows, node, over)]
    refuse_distinct(rows, node.this)
    parts, reads = rows.reading(lambda: average(rows, node.this))
    if over.frame.by_row:
        _warn_of_ties(resolution, rows, node, over)
    return [_windowed(rows, Call(typed.sql, "", typed), typed, reads, over, "avg") for typed in parts]


def _call(resolution: Resolution, rows: Rows, node: exp.Window, over: Over) -> tuple[WindowCall, Typed]:
    call = [Call("", "", Typed("", BOOL))]

    def translated() -> Typed:
        call[0] = window_function(rows, node.this)
        return call[0].typed

    typed, reads = rows.reading(translated)
    word = written(rows, node.this)
    if call[0].needs_order and not over.is_ordered:
        raise resolution.refuse(
            node, f"{word} without ORDER BY depends on the order of rows", "write OVER (ORDER BY ..)"
        )
    if call[0].by_row or (call[0].framed and over.frame.by_row):
        _warn_of_ties(resolution, rows, node, over)
    return _windowed(rows, call[0], typed, reads, over, word)


def _windowed(
    rows: Rows, call: Call, typed: Typed, reads: frozenset[Attribute], over: Over, word: str
) -> tuple[WindowCall, Typed]:
    sql = f"{call.before} OVER ({over.sql}){call.after}"
    column = rows.numbers.new(word, typed.type)
    return WindowCall(column, Expr(sql, typed.type, reads | over.reads), frozenset(over.partition)), typed


def _warn_of_ties(resolution: Resolution, rows: Rows, node: exp.Window, over: Over) -> None:
    if not _is_unique(rows, over):
        word = written(rows, node.this)
        resolution.warnings.append(
            f"{word}() OVER ({over_text(resolution, node)}): cannot prove that its order is unique, so ties are open"
        )


def over_text(resolution: Resolution, node: exp.Window) -> str:
    """The window as the user might have written it, for people."""
    return node.sql("postgres").partition(" OVER ")[2].strip("()") or "window"


def _is_unique(rows: Rows, over: Over) -> bool:
    return facts(rows.plan).key_within((*over.partition, *over.ordered)) is not None
