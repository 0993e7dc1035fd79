"""Which views read which, and the order in which they are declared.

In: the texts of all views. Out: their names, each after those that it reads. Keeps true: views that read each other
in a circle are refused, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from jobs.declare.parse import parse_statement
from jobs.declare.source import Source
from jobs.identifiers import identifier

CYCLE: Final = "VIEW_CYCLE"


def in_order(texts: Mapping[str, Source], on_error: Callable[[str, ConfigError], None]) -> list[str]:
    """The views, each after those that it reads; those that read each other are told, and left out."""
    graph = {name: _read(source) & set(texts) for name, source in sorted(texts.items())}
    while True:
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            circle: list[str] = list(reversed(error.args[1]))
            found = _circular(texts, circle)
            for name in sorted(set(circle)):
                on_error(name, found)
            graph = {name: read - set(circle) for name, read in graph.items() if name not in circle}


def _circular(texts: Mapping[str, Source], circle: Sequence[str]) -> ConfigError:
    message = f"{texts[circle[0]].name}: views that read each other: {' -> '.join(circle)}"
    return ConfigError(message, "let one of them read the tables instead", code=CYCLE)


def _read(source: Source) -> set[str]:
    try:
        return mentioned(parse_statement(source).root)
    except ConfigError:
        # It is told where it is declared.
        return set()


def mentioned(root: exp.Expr) -> set[str]:
    """The names without a schema that a query has in FROM, those of a WITH left out where these are known."""
    return set(_named(root, frozenset()))


def _named(node: exp.Expr, known: frozenset[str]) -> Iterator[str]:
    own = node.args.get("with_")
    for each in own.expressions if own is not None else ():
        yield from _named(each.this, known)
        known |= {identifier(each.args["alias"].this)}
    if isinstance(node, exp.Table) and _is_name(node) and identifier(node.this) not in known:
        yield identifier(node.this)
    for child in node.iter_expressions():
        if child is not own:
            yield from _named(child, known)


def _is_name(node: exp.Table) -> bool:
    return isinstance(node.this, exp.Identifier) and not node.args.get("db")
