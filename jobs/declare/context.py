"""What translating one expression needs: where names resolve, which rule a node has, and how to refuse.

In: a sqlglot node. Out: a Typed Spark expression, or a ConfigError at the node's place. Keeps true: a node without a
rule, or with a part that its rule does not know, is refused by name; nothing passes through untranslated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from jobs.declare.source import Source
from jobs.identifiers import identifier
from jobs.plan.types import Type, Typed

UNSUPPORTED: Final = "VIEW_UNSUPPORTED"
UNKNOWN_TABLE: Final = "VIEW_UNKNOWN_TABLE"
UNKNOWN_COLUMN: Final = "VIEW_UNKNOWN_COLUMN"
ROW_WISE: Final = "views are row-wise for now: each row comes from one row of one table; leave it to the reader's query"


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column of the table in FROM: its name in Delta, its type, and the rule that conceals it, if any."""

    delta: str
    type: Type
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The one table in FROM: the words that may qualify a column, and its columns by Postgres name."""

    qualifiers: frozenset[tuple[str, ...]]
    table: str
    columns: Mapping[str, ScopeColumn]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of node is translated; `parts` are the only arguments that it may have."""

    translate: Callable[[Context, exp.Expr], Typed]
    parts: frozenset[str]
    word: str


@dataclass(slots=True)
class Context:
    """One view's translation; `used` collects the columns it reads."""

    source: Source
    scope: Scope
    rules: Mapping[type[exp.Expr], Rule]
    functions: Mapping[str, Rule]
    used: set[str] = field(default_factory=set)

    def translate(self, node: exp.Expr) -> Typed:
        """The Spark expression of a node."""
        rule = self._rule(node)
        for part, value in node.args.items():
            if isinstance(value, exp.Query):
                raise self._unknown(value)
            if part not in rule.parts and value not in (None, False, []):
                hint = f"its part `{part}` has no exact translation"
                raise self.refuse(node, f"{rule.word} is not supported in this form in views", hint)
        return rule.translate(self, node)

    def part(self, node: exp.Expr, name: str = "this") -> Typed:
        """The translation of one of a node's arguments."""
        return self.translate(node.args[name])

    def column(self, node: exp.Column) -> Typed:
        """A reference to a column of the table."""
        self.check_qualifier(node)
        name = identifier(node.this)
        found = self.scope.columns.get(name)
        if found is None:
            hint = suggestion(name, self.scope.columns, what=f"columns of {self.scope.table}")
            raise self.error(node.this, f"table {self.scope.table} has no column {name}", hint, UNKNOWN_COLUMN)
        if found.rule is not None and not _only_shown(node):
            raise self.refuse(
                node,
                f"column {name} arrives concealed ({found.rule}), so nothing can be computed from it",
                "select it as it is, or test it with IS NULL; or take its rule out of source.columns",
            )
        self.used.add(name)
        return Typed(quote_column(found.delta), found.type, column=name)

    def check_qualifier(self, node: exp.Column) -> None:
        """What stands before a column's dot must be the table in FROM."""
        qualifier = tuple(identifier(node.args[part]) for part in ("catalog", "db", "table") if node.args.get(part))
        if qualifier and qualifier not in self.scope.qualifiers:
            words = " or ".join(sorted(".".join(each) for each in self.scope.qualifiers))
            raise self.error(node, f"unknown table {'.'.join(qualifier)}", f"here it is called {words}", UNKNOWN_TABLE)

    def refuse(self, node: exp.Expr, message: str, hint: str) -> ConfigError:
        """The error that a node has no exact translation."""
        return self.error(node, message, hint, UNSUPPORTED)

    def error(self, node: exp.Expr, message: str, hint: str, code: str) -> ConfigError:
        """An error at a node's place."""
        start, length = span(node)
        return self.source.error(start, message, hint, code=code, length=length)

    def _rule(self, node: exp.Expr) -> Rule:
        if isinstance(node, exp.Anonymous):
            rule = self.functions.get(str(node.this).lower())
        else:
            rule = self.rules.get(type(node))
        if rule is None:
            raise self._unknown(node)
        return rule

    def _unknown(self, node: exp.Expr) -> ConfigError:
        word, hint = self._described(node)
        return self.refuse(node, f"{word} is not supported yet in views", hint)

    def _described(self, node: exp.Expr) -> tuple[str, str]:
        """How a node without a rule is called, and the remedy."""
        written = self._written(node)
        if isinstance(node, exp.Window):
            return "a window function", ROW_WISE
        if isinstance(node, exp.AggFunc):
            return f"the aggregate {written}", ROW_WISE
        if isinstance(node, (exp.Subquery, exp.Exists, exp.Query)):
            return "a subquery", ROW_WISE
        words = self._words()
        if isinstance(node, exp.Anonymous):
            return f"the function {written}", suggestion(written, words, what="functions")
        supported = f"supported functions: {', '.join(words)}"
        what = "the function" if isinstance(node, exp.Func) else "the expression"
        return f"{what} {written}", supported

    def _written(self, node: exp.Expr) -> str:
        if "start" in node.meta:
            return self.source.text[node.meta["start"] : node.meta["end"] + 1]
        if isinstance(node, exp.Func):
            return node.sql_name().lower()
        return f"`{node.sql('postgres')[:60]}`"

    def _words(self) -> list[str]:
        rules = [*self.rules.values(), *self.functions.values()]
        return sorted({rule.word.removesuffix("()") for rule in rules if rule.word.endswith("()")})


def _only_shown(node: exp.Column) -> bool:
    """Whether a column is an output as it stands, or only tested for NULL: what its values are does not matter."""
    above = node.parent
    if isinstance(above, exp.Is):
        return isinstance(above.expression, exp.Null)
    if isinstance(above, exp.Alias):
        above = above.parent
    return isinstance(above, exp.Select)


def span(node: exp.Expr) -> tuple[int, int]:
    """Where a node stands: its first character and how many to mark; a node without a place has its parent's."""
    own = node.meta.get("start")
    if own is not None:
        return own, node.meta["end"] - own + 1
    spans = [(each.meta["start"], each.meta["end"]) for each in node.walk() if "start" in each.meta]
    if spans:
        start = min(start for start, _ in spans)
        return start, max(end for _, end in spans) - start + 1
    return span(node.parent) if node.parent is not None else (0, 1)


def quote_column(name: str) -> str:
    """A Delta column's name in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
