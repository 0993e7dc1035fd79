"""LIMIT at the top of a view: cut from a view of its own, its body, which is kept up to date like any other.

In: the texts of view files, the tables. Out: the same, and for each that is cut the text of its body. Keeps true: both
together answer what the file does; what stands in them stands where it does in the file, so errors point there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cdc.errors import ConfigError
from jobs.declare.header import Header, read_header
from jobs.declare.load import OnError, declare_views, tell
from jobs.declare.parse import Statement, is_row_wise, parse_statement
from jobs.declare.relations import Tables
from jobs.declare.source import Source
from jobs.declare.view_name import NAME, is_name
from jobs.identifiers import identifier
from jobs.upkeep.verdict import Mode, verdict
from sinks.spec import ViewSpec

SUFFIX: Final = "__body"
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_CUTTING: Final = frozenset({TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH})
_DIRECTIONS: Final = frozenset({TokenType.ASC, TokenType.DESC})
_CUTS: Final = ("order", "limit", "offset")
# What a body does not have, and what is said of the body alone.
_SHOWN: Final = re.compile(r"(sinks|description|cache\.\w+|search\.\w+)\s*:")
_UPKEEP: Final = re.compile(r"(refresh|max_affected)\s*:")
_COMMENT: Final = re.compile(r"^[ \t]*--[ \t]*(.*)$")


def body_of(view: str) -> str:
    """How the body of a view is called."""
    return f"{view}{SUFFIX}"


def has_body(view: str, source: Source) -> bool:
    """Whether there may be one, as far as the view's text tells: its tables decide whether it is worth it."""
    return _parts(view, source) is not None


def with_bodies(texts: Mapping[str, Source], tables: Tables, on_error: OnError | None) -> dict[str, Source]:
    """These, with LIMIT cut from a body where there is one that needs not be computed as a whole."""
    parts = {name: found for name, source in texts.items() if (found := _parts(name, source)) is not None}
    for name in sorted(parts):
        if body_of(name) in texts:
            message = f"{texts[body_of(name)].name}: {body_of(name)} is what the LIMIT of the view {name} is cut from"
            tell(body_of(name), ConfigError(message, "give the file another name", code=NAME), on_error)
            del parts[name]
    split = {**texts, **{each: text for found in parts.values() for each, text in found.items()}}
    if not parts:
        return split
    whole, cut = _declared(texts, tables), _declared(split, tables)
    for name in parts:
        # What is refused is so with a body as without, and is said of the file then.
        if name not in cut or (name in whole and not _is_kept(cut.get(body_of(name)))):
            split[name] = texts[name]
            del split[body_of(name)]
    return split


def cut_text(name: str, source: Source) -> str:
    """What the view says where LIMIT is cut from a body; without one, its own text."""
    parts = _parts(name, source)
    return source.text if parts is None else parts[name].text


def _declared(texts: Mapping[str, Source], tables: Tables) -> dict[str, ViewSpec]:
    return {spec.name: spec for spec in declare_views(texts, tables, lambda *_: None)}


def _is_kept(body: ViewSpec | None) -> bool:
    """Whether a change does not make all of it be computed again."""
    return body is not None and body.plan is not None and verdict(body.plan).mode is not Mode.GATED


def _parts(name: str, source: Source) -> dict[str, Source] | None:
    """The texts of both; None where there is no LIMIT, or the order is of more than its columns."""
    try:
        statement = parse_statement(source)
        header = read_header(source, before=statement.tokens[0].start)
    except ConfigError:
        return None  # it is told where it is declared
    at = _order(statement.tokens)
    if at is None or not is_name(body_of(name)) or not _is_worth(statement.root, header):
        return None
    names = _names(statement.root)
    tail = _tail(source.text, statement, at, names) if names is not None else None
    if tail is None:
        return None
    return {body_of(name): _body(source, statement, at), name: _cut(name, source, statement, at, tail)}


def _is_worth(root: exp.Query, header: Header) -> bool:
    """Not where the file wants all of it computed in full, nor for rows of one table, which are there already."""
    body = root.copy()
    for part in _CUTS:
        body.set(part, None)
    is_cut = bool(root.args.get("limit") or root.args.get("offset"))
    return is_cut and header.refresh != "full" and not is_row_wise(body)


def _order(tokens: Sequence[Token]) -> int | None:
    """Where the ORDER BY of the whole query stands among the tokens."""
    depth, found = 0, None
    for at, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type is TokenType.ORDER_BY:
            found = at
    return found


@dataclass(frozen=True, slots=True)
class _Names:
    """What an ORDER BY can name: outputs, by their name and by what they are. `is_open`: there may be more of them."""

    outputs: Mapping[str, str]
    expressions: Sequence[tuple[exp.Expr, str]]
    is_open: bool

    def of(self, node: exp.Expr) -> str | None:
        """How an item of the order is called in the body; None where its columns do not have it."""
        if isinstance(node, exp.Literal):
            return str(node.this)
        if isinstance(node, exp.Column) and not node.args.get("table"):
            found = self.outputs.get(identifier(node.this))
            if found is not None or self.is_open:
                return found or node.this.sql("postgres")
        equal = next((name for each, name in self.expressions if each == node), None)
        if equal is not None or not isinstance(node, exp.Collate):
            return equal
        # Within an expression a name is an input's column, not an output's.
        inner = next((name for each, name in self.expressions if each == node.this), None)
        return f"{inner} COLLATE {node.expression.sql('postgres')}" if inner is not None else None


def _names(root: exp.Query) -> _Names | None:
    """None where the order decides which rows there are, not only which are kept."""
    if isinstance(root, exp.SetOperation):
        return _Names({}, (), is_open=True)
    if not isinstance(root, exp.Select) or (root.args.get("distinct") or exp.Distinct()).args.get("on"):
        return None
    named = [(each.unalias(), _output(each)) for each in root.expressions if _output(each) is not None]
    outputs = {identifier(name): name.sql("postgres") for _, name in named if name is not None}
    expressions = [(each, name.sql("postgres")) for each, name in named if name is not None]
    return _Names(outputs, expressions, is_open=any(isinstance(each, exp.Star) for each in root.expressions))


def _output(node: exp.Expr) -> exp.Identifier | None:
    found = node.args.get("alias") if isinstance(node, exp.Alias) else node.this
    return found if isinstance(found, exp.Identifier) else None


def _tail(text: str, statement: Statement, at: int, names: _Names) -> str | None:
    """ORDER BY and what follows it, with the body's names in the place of what they stand for."""
    found, done = "", statement.tokens[at].start
    for item, tokens in zip(statement.root.args["order"].expressions, _items(statement.tokens[at + 1 :]), strict=True):
        name = names.of(item.this)
        if name is None:
            return None
        start, end = tokens[0].start, tokens[-1].end + 1
        found += text[done:start] + name.ljust(end - start)
        done = end
    return found + text[done:]


def _items(tokens: Sequence[Token]) -> list[list[Token]]:
    """The expressions of an ORDER BY, without their directions."""
    depth, items, is_over = 0, list[list[Token]]([[]]), False
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type in _CUTTING:
            break
        if depth == 0 and token.token_type is TokenType.COMMA:
            items.append([])
            is_over = False
            continue
        is_over = is_over or (depth == 0 and _is_direction(token, following))
        if not is_over:
            items[-1].append(token)
    return items


def _is_direction(token: Token, following: Token | None) -> bool:
    """Also NULLS FIRST and NULLS LAST; a column may be called nulls."""
    is_nulls = token.text.upper() == "NULLS" and following is not None and following.text.upper() in ("FIRST", "LAST")
    return token.token_type in _DIRECTIONS or is_nulls


def _body(source: Source, statement: Statement, at: int) -> Source:
    head = _header(source.text, statement, without=_SHOWN)
    return Source(source.name, head + source.text[len(head) : statement.tokens[at].start].rstrip())


def _cut(name: str, source: Source, statement: Statement, at: int, tail: str) -> Source:
    """The view, its body's rows in the place of its own query."""
    head = _header(source.text, statement, without=_UPKEEP)
    rest = source.text[len(head) : statement.tokens[at].start]
    query = f"SELECT * FROM {body_of(name)}"  # noqa: S608 - a view's name
    lines, last = rest.count("\n"), rest.rpartition("\n")[2]
    blank = " " * len(last) if lines else " " * max(1, len(rest) - len(query))
    return Source(source.name, head + query + "\n" * lines + blank + tail)


def _header(text: str, statement: Statement, *, without: re.Pattern[str]) -> str:
    """What stands before the query, some of its words made blank."""
    lines = text[: statement.tokens[0].start].split("\n")
    return "\n".join(_blank(line, without) for line in lines)


def _blank(line: str, without: re.Pattern[str]) -> str:
    comment = _COMMENT.match(line.rstrip("\r"))
    return " " * len(line) if comment is not None and without.match(comment[1]) else line
