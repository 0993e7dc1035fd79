"""A view file's SELECT, taken apart: its one table, its output columns, its filter.

In: the file's text. Out: a Select whose nodes keep their places. Keeps true: a clause that the view cannot have (a
join, GROUP BY, LIMIT, ..) is refused by its name, with the remedy; nothing of the text is dropped unseen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cdc.errors import ConfigError
from jobs.declare.context import ROW_WISE, UNSUPPORTED, span
from jobs.declare.precedence import check_precedence
from jobs.declare.source import Source
from jobs.declare.spelling import check_spelling

SQL: Final = "VIEW_SQL"
_ONE_SELECT: Final = "a view file holds one SELECT .. FROM table [WHERE ..]"
_READER: Final = "a view is a set of rows: leave it to the reader's query"

# What a SELECT can have beyond columns, FROM and WHERE: how it is called, its keyword, the remedy.
_CLAUSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "with_": ("WITH", "WITH", ROW_WISE),
    "distinct": ("DISTINCT", "DISTINCT", ROW_WISE),
    "into": ("SELECT INTO", "INTO", "the view's name is its file's name"),
    "joins": ("a join", "JOIN", ROW_WISE),
    "laterals": ("LATERAL", "LATERAL", ROW_WISE),
    "group": ("GROUP BY", "GROUP", ROW_WISE),
    "having": ("HAVING", "HAVING", ROW_WISE),
    "windows": ("WINDOW", "WINDOW", ROW_WISE),
    "order": ("ORDER BY", "ORDER", _READER),
    "limit": ("LIMIT", "LIMIT", _READER),
    "offset": ("OFFSET", "OFFSET", _READER),
    "locks": ("FOR UPDATE", "FOR", "leave it out: a view only reads"),
    "sample": ("TABLESAMPLE", "TABLESAMPLE", "a view is the same each time it is computed"),
}
_KNOWN: Final = frozenset({"expressions", "from_", "where", "kind"})


@dataclass(frozen=True, slots=True)
class Statement:
    """A view's query, and its tokens without comments."""

    root: exp.Query
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """The parts of a row-wise SELECT. `table` is its FROM item, `tokens` the statement without comments."""

    table: exp.Table
    outputs: tuple[exp.Expr, ...]
    where: exp.Expr | None
    tokens: tuple[Token, ...]


def parse_statement(source: Source) -> Statement:
    """The view's query, or the error at its place."""
    tokens = _tokens(source)
    _check_tokens(source, tokens)
    root = _tree(source, tokens)
    check_precedence(source, root)
    return Statement(root, tokens)


def parse_select(source: Source) -> Select:
    """The view's row-wise SELECT, or the error at its place."""
    tokens = _tokens(source)
    _check_tokens(source, tokens)
    _check_start(source, tokens)
    root = _one_select(source, _tree(source, tokens), tokens)
    _check_clauses(source, root, tokens)
    table = _table(source, root, tokens)
    if not root.expressions:
        raise _at(source, tokens[0], "the view has no columns", _ONE_SELECT, SQL)
    check_precedence(source, root)
    where = root.args.get("where")
    return Select(table, tuple(root.expressions), where.this if where else None, tokens)


def is_row_wise(root: exp.Query) -> bool:
    """Whether a query may be one that makes each row from one row of one table."""
    if not isinstance(root, exp.Select) or any(value for name, value in root.args.items() if name not in _KNOWN):
        return False
    table = root.args.get("from_")
    nested = (exp.Query, exp.Window, exp.AggFunc, exp.Filter, exp.JSONArrayAgg, exp.JSONObjectAgg)
    if table is None or not isinstance(table.this, exp.Table) or any(table.this.args.get(part) for part in _ITEM_PARTS):
        return False
    return not any(isinstance(node, nested) for node in root.walk() if node is not root)


_ITEM_PARTS: Final = ("joins", "sample", "only")


def _tokens(source: Source) -> tuple[Token, ...]:
    try:
        tokens = list(sqlglot.tokenize(source.text, read="postgres"))
    except TokenError as error:
        raise _unreadable(source, str(error)) from error
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return tuple(tokens)


def _unreadable(source: Source, message: str) -> ConfigError:
    # A string or comment that never ends: sqlglot tells no place but the text before it.
    before = re.sub(r"^Error tokenizing '|'$", "", message, flags=re.DOTALL)
    at = source.text.rfind(before[-20:]) + len(before[-20:]) if before and before[-20:] in source.text else 0
    hint = "is a quote or a comment left open?"
    return source.error(min(at, max(0, len(source.text) - 1)), "this is not readable as SQL", hint, code=SQL)


def _check_tokens(source: Source, tokens: Sequence[Token]) -> None:
    """What the parser would pass over in silence."""
    if not tokens:
        raise source.error(0, "the file holds no SELECT", _ONE_SELECT, code=SQL)
    for token, following in itertools.pairwise(tokens):
        if token.token_type is TokenType.SEMICOLON:
            raise _at(source, following, "the file holds more than one statement", _ONE_SELECT, SQL)
        if token.token_type is TokenType.COMMA and following.token_type in (TokenType.FROM, TokenType.R_PAREN):
            raise _at(source, token, "a comma with nothing after it", "remove the comma", SQL)
        if token.token_type is following.token_type is TokenType.STRING:
            raise _at(source, following, "string literals side by side", "write one literal, or ||", UNSUPPORTED)
    check_spelling(source, tokens)


def _check_start(source: Source, tokens: Sequence[Token]) -> None:
    if tokens[0].token_type is not TokenType.SELECT:
        named = {"WITH": ROW_WISE, "(": _ONE_SELECT}
        word = tokens[0].text.upper()
        hint = named.get(word, _ONE_SELECT)
        raise _at(source, tokens[0], f"a view cannot begin with {word}", hint, UNSUPPORTED)


def _tree(source: Source, tokens: Sequence[Token]) -> exp.Query:
    try:
        # Without what follows the last token: a comment after the semicolon would count as a statement.
        root = sqlglot.parse_one(source.text[: tokens[-1].end + 1], read="postgres")
    except ParseError as error:
        raise _parse_error(source, error) from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # sqlglot takes some functions for others with more arguments.
        hint = "run the file in a Postgres console: is every function given its arguments?"
        raise source.error(tokens[0].start, "this is not readable as SQL", hint, code=SQL) from error
    if not isinstance(root, exp.Query):
        raise source.error(0, "this is not a SELECT", _ONE_SELECT, code=SQL)
    return root


def _one_select(source: Source, root: exp.Query, tokens: Sequence[Token]) -> exp.Select:
    if isinstance(root, exp.SetOperation):
        word = type(root).__name__.upper()
        message = f"{word} is not supported yet in views"
        raise _at_clause(source, tokens, word, root.expression, message, ROW_WISE)
    if not isinstance(root, exp.Select):
        raise source.error(0, "this is not a SELECT", _ONE_SELECT, code=SQL)
    return root


def _parse_error(source: Source, error: ParseError) -> ConfigError:
    first = error.errors[0] if error.errors else {}
    highlight = first.get("highlight") or " "
    offset = source.offset(first.get("line") or 1, first.get("col") or 1) - len(highlight) + 1
    description = re.sub(r" for <class '[\w.]*\.(\w+)'>", r" for \1", str(first.get("description") or error))
    message = f"this is not readable as SQL: {description[:1].lower()}{description[1:].rstrip('.')}"
    hint = "run the file in a Postgres console: it must work there as it is"
    return source.error(max(0, offset), message, hint, code=SQL, length=len(highlight))


def _check_clauses(source: Source, root: exp.Select, tokens: Sequence[Token]) -> None:
    for name, value in root.args.items():
        if name in _KNOWN or not value:
            continue
        called, keyword, hint = _CLAUSES.get(name, (name.strip("_").upper(), name.strip("_").upper(), _ONE_SELECT))
        if name == "joins":
            called, hint = "a join", ROW_WISE
        raise _at_clause(source, tokens, keyword, value, f"{called} is not supported yet in views", hint)
    if root.args.get("kind"):
        raise _at(source, tokens[0], "this form of SELECT is not supported in views", _ONE_SELECT, UNSUPPORTED)


def _at_clause(
    source: Source, tokens: Sequence[Token], keyword: str, value: object, message: str, hint: str
) -> ConfigError:
    found = next((token for token in tokens if token.text.upper().split(maxsplit=1)[:1] == [keyword]), None)
    if found is not None:
        return _at(source, found, message, hint, UNSUPPORTED)
    node = value[0] if isinstance(value, list) else value
    start, length = span(node) if isinstance(node, exp.Expr) else (tokens[0].start, 1)
    return source.error(start, message, hint, code=UNSUPPORTED, length=length)


def _table(source: Source, root: exp.Select, tokens: Sequence[Token]) -> exp.Table:
    found = root.args.get("from_")
    if found is None:
        raise _at(source, tokens[-1], "the view has no FROM", _ONE_SELECT, SQL)
    table = found.this
    start, length = span(table)
    if isinstance(table, exp.Subquery):
        raise source.error(start, "a subquery is not supported yet in views", ROW_WISE, code=UNSUPPORTED, length=length)
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise source.error(start, "FROM must name a table", _ONE_SELECT, code=UNSUPPORTED, length=length)
    allowed = {"this", "db", "catalog", "alias"}
    others = [name for name, value in table.args.items() if value and name not in allowed]
    alias = table.args.get("alias")
    if others or (alias is not None and alias.args.get("columns")):
        called = {"only": "ONLY", "sample": "TABLESAMPLE", "joins": "a join"}
        what = called.get(others[0] if others else "", "this form of FROM")
        raise source.error(start, f"{what} is not supported in views", _ONE_SELECT, code=UNSUPPORTED, length=length)
    return table


def _at(source: Source, token: Token, message: str, hint: str, code: str) -> ConfigError:
    return source.error(token.start, message, hint, code=code, length=token.end - token.start + 1)
