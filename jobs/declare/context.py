"""What translating one expression needs: which rule a node has, and how to refuse.

In: a sqlglot node. Out: a Typed Spark expression, or a ConfigError at the node's place. Keeps true: a node without a
rule, or with a part that its rule does not know, is refused by name; nothing passes through untranslated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from jobs.declare.source import Source
from jobs.plan.types import Typed

UNSUPPORTED: Final = "VIEW_UNSUPPORTED"
UNKNOWN_TABLE: Final = "VIEW_UNKNOWN_TABLE"
UNKNOWN_COLUMN: Final = "VIEW_UNKNOWN_COLUMN"
_READER: Final = "a view is the same whenever it is computed: leave it to the reader's query"
_CHANGES: Final = "{} changes without the tables, so no view can have it"
_VOLATILE: Final = frozenset({"gen_random_uuid", "clock_timestamp", "statement_timestamp", "timeofday", "nextval"})
_SESSION: Final = frozenset(
    {"user", "current_user", "session_user", "system_user", "current_role", "current_catalog", "current_schema"}
)
_CLOCKS: Final = (
    exp.CurrentTimestamp,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.Localtime,
    exp.Localtimestamp,
    exp.Rand,
    exp.Uuid,
)
_REMEDIES: Final[Mapping[type[exp.Expr], tuple[str, str]]] = {
    exp.ILike: ("ILIKE", "write lower(column COLLATE \"C\") LIKE '..', for ASCII letters"),
    exp.RegexpILike: ("~*", "write ~ with both cases of each letter: [Pp]"),
    exp.SimilarTo: ("SIMILAR TO", "write LIKE, or ~ with a regular expression"),
}
ROW_WISE: Final = "views are row-wise for now: each row comes from one row of one table; leave it to the reader's query"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of node is translated; `parts` are the only arguments that it may have."""

    translate: Callable[[Context, exp.Expr], Typed]
    parts: frozenset[str]
    word: str


@dataclass(slots=True)
class Context:
    """How the nodes of one query are translated. `known` may have the answer to a whole expression already."""

    source: Source
    rules: Mapping[type[exp.Expr], Rule]
    functions: Mapping[str, Rule]
    known: Callable[[exp.Expr], Typed | None] | None = None
    beyond: str = ROW_WISE
    """What to do about an aggregate, a window function or a subquery that cannot stand where it does."""

    def translate(self, node: exp.Expr) -> Typed:
        """The Spark expression of a node."""
        if isinstance(node, exp.Column) and _is_session(node):
            hint = f'a column of this name is written "{node.name.lower()}"'
            raise self.refuse(node, _CHANGES.format(node.name), hint)
        found = self.known(node) if self.known is not None else None
        if found is not None:
            return found
        rule = self._rule(node)
        if any(needed and node.args.get(part) is None for part, needed in node.arg_types.items()):
            raise self.refuse(node, f"{rule.word} takes more arguments", "write it as in a Postgres console")
        for part, value in node.args.items():
            if part in rule.parts:
                continue
            if isinstance(value, exp.Query):
                raise self._unknown(value)
            if value not in (None, False, []):
                hint = f"its part `{part}` has no exact translation"
                raise self.refuse(node, f"{rule.word} is not supported in this form in views", hint)
        return rule.translate(self, node)

    def part(self, node: exp.Expr, name: str = "this") -> Typed:
        """The translation of one of a node's arguments."""
        return self.translate(node.args[name])

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
        if isinstance(node, _CLOCKS) or (isinstance(node, exp.Anonymous) and str(node.this).lower() in _VOLATILE):
            return self.refuse(node, _CHANGES.format(self._written(node)), _READER)
        word, hint = self._described(node)
        return self.refuse(node, f"{word} is not supported yet in views", hint)

    def _described(self, node: exp.Expr) -> tuple[str, str]:
        """How a node without a rule is called, and the remedy."""
        if type(node) in _REMEDIES:
            return _REMEDIES[type(node)]
        written = self._written(node)
        if isinstance(node, exp.Window):
            return "a window function", self.beyond
        if isinstance(node, exp.AggFunc):
            return f"the aggregate {written}", self.beyond
        if isinstance(node, (exp.Subquery, exp.Exists, exp.Query)):
            return "a subquery", self.beyond
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


def _is_session(node: exp.Column) -> bool:
    """Whether a column's name is a word that Postgres answers itself."""
    plain = isinstance(node.this, exp.Identifier) and not node.this.args.get("quoted") and not node.args.get("table")
    return plain and node.name.lower() in _SESSION


def only_shown(node: exp.Column) -> bool:
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
