"""What view files tell of a view without the tables that it reads: whether there is one, whether Delta has its rows.

In: the files' texts. Out: answers for who may ask no server. Keeps true: a file that is wrong declares its view too;
what is wrong with it is told by who declares it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import ConfigError
from jobs.batch import TABLE
from jobs.declare.bodies import SUFFIX, has_body
from jobs.declare.dependencies import mentioned
from jobs.declare.header import read_header
from jobs.declare.parse import Statement, is_row_wise, parse_statement
from jobs.declare.source import Source


def is_filed(name: str, texts: Mapping[str, Source]) -> bool:
    """Whether a file declares the view, or it is the body that LIMIT of one may be cut from."""
    view = name.removesuffix(SUFFIX)
    return name in texts or (view != name and view in texts and has_body(view, texts[view]))


def kept_elsewhere(name: str, texts: Mapping[str, Source]) -> tuple[str, ...]:
    """The sinks of a view that no Delta table holds; none where one does: a query, or what a query reads."""
    try:
        statement = parse_statement(texts[name])
        header = read_header(texts[name], before=statement.tokens[0].start)
    except (ConfigError, KeyError):
        return ()
    sinks = tuple(option.name for option in header.sinks)
    is_query = not is_row_wise(statement.root) or mentioned(statement.root) & texts.keys()
    is_read = any(name in mentioned(other.root) for each in texts.values() if (other := _statement(each)) is not None)
    return () if TABLE in sinks or is_query or is_read else sinks


def named_sinks(source: Source) -> tuple[str, ...] | None:
    """The sinks that a text names; None of one that can't be read."""
    try:
        header = read_header(source, before=parse_statement(source).tokens[0].start)
    except ConfigError:
        return None
    return tuple(option.name for option in header.sinks)


def _statement(source: Source) -> Statement | None:
    try:
        return parse_statement(source)
    except ConfigError:
        return None
