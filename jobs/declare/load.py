"""View files, as apply sees them.

In: a folder of SQL files and the tables that are captured. Out: ViewSpecs. Keeps true: a view is either exactly what
its SQL would answer in Postgres, or refused before anything starts; a view is declared after those that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from cdc.errors import ConfigError
from jobs.declare.dependencies import in_order, mentioned
from jobs.declare.header import CODE as HEADER
from jobs.declare.header import read_header
from jobs.declare.keys import KEY
from jobs.declare.parse import SQL, is_row_wise, parse_statement
from jobs.declare.query import DeclaredQuery, declare_query
from jobs.declare.relations import Relation, Relations, Tables
from jobs.declare.row_wise import declare_row_wise
from jobs.declare.source import Source
from jobs.declare.view_name import check_name
from sinks.spec import SinkOptions, ViewSpec

OnError = Callable[[str, ConfigError], None]
"""Told which view is wrong, and what is."""
Check = Callable[[SinkOptions, ViewSpec], object]

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_UNREADABLE: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What sqlglot, and rules that trust it, raise for texts that Postgres would refuse."""

QUERIES: Final = True
"""Whether views may be more than row-wise."""


def load_views(
    folder: Path, relations: Tables, on_error: OnError | None = None, *, queries: bool = QUERIES
) -> list[ViewSpec]:
    """Every `*.sql` file of the folder, by name. With `on_error`, a view that is wrong is told and left out."""
    return declare_views(view_texts(folder, on_error), relations, on_error, queries=queries)


def view_texts(folder: Path, on_error: OnError | None = None) -> dict[str, Source]:
    """The files' texts, by the views' names."""
    if not folder.is_dir():
        hint = "make the folder (it may be empty), or set `views` in the configuration"
        raise ConfigError(f"the folder of the views does not exist: {folder}", hint, code="VIEW_FOLDER")
    texts: dict[str, Source] = {}
    for path in sorted(folder.glob("*.sql")):
        try:
            texts[path.stem] = _text(path)
        except ConfigError as error:
            tell(path.stem, error, on_error)
    return texts


def declare_views(
    texts: Mapping[str, Source],
    relations: Tables,
    on_error: OnError | None = None,
    *,
    queries: bool = QUERIES,
    check: Check | None = None,
) -> list[ViewSpec]:
    """The views of these texts, by name; each is known to those that read it.

    What `check` finds wrong with the options of a view's sinks is said of their place in the file.
    """
    specs: dict[str, ViewSpec] = {}
    known: dict[str, Relation] = {}
    patterns: dict[str, str] = {}
    for name in in_order(texts, lambda view, error: tell(view, error, on_error)) if queries else texts:
        try:
            found = _declared(name, texts, Relations(relations, known, frozenset(texts)), queries=queries)
            _check_options(texts[name], found.spec, patterns, check)
        except ConfigError as error:
            tell(name, error, on_error)
        except _UNREADABLE as error:
            hint = "run the file in a Postgres console: it must work there as it is"
            message = f"{texts[name].name}: this cannot be read as a view ({type(error).__name__})"
            tell(name, ConfigError(message, hint, code=SQL), on_error)
        else:
            specs[name], known[name] = found.spec, found.relation
    return [specs[name] for name in sorted(specs)]


def tell(view: str, error: ConfigError, on_error: OnError | None) -> None:
    """What is wrong with a view, to whoever asked for it; else it ends everything."""
    if on_error is None:
        raise error
    on_error(view, error)


def _declared(name: str, texts: Mapping[str, Source], relations: Relations, *, queries: bool) -> DeclaredQuery:
    source = texts[name]
    if not queries:
        return declare_row_wise(name, source, relations.tables)
    check_name(name, source, relations.tables)
    statement = parse_statement(source)
    header = read_header(source, before=statement.tokens[0].start)
    if is_row_wise(statement.root) and not mentioned(statement.root) & set(texts):
        try:
            return declare_row_wise(name, source, relations.tables)
        except ConfigError as error:
            # A key other than the table's is one to be checked: a query's.
            if error.code != KEY or header.key is None:
                raise
    return declare_query(name, source, statement, header, relations)


def _text(path: Path) -> Source:
    try:
        return Source(str(path), path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", "a view file is UTF-8 text", code="VIEW_FILE") from error


def _check_options(source: Source, spec: ViewSpec, patterns: dict[str, str], check: Check | None) -> None:
    """What a sink says of its options, at their place in the file."""
    for option in spec.sinks:
        try:
            if check is not None:
                check(option, spec)
            if option.name == "cache" and "key" in option.options:
                _check_pattern(option.options["key"], spec, patterns)
        except ConfigError as error:
            header = read_header(source, before=parse_statement(source).tokens[0].start)
            own = [word for word in header.entries if word.startswith(f"{option.name}.")]
            entry = header.entries.get(own[0] if len(own) == 1 else "sinks")
            if entry is None:
                raise
            where, size = entry.value_at, len(entry.value)
            raise source.error(where, error.message, error.hint or "", code=HEADER, length=size) from error


def _check_pattern(pattern: str, spec: ViewSpec, patterns: dict[str, str]) -> None:
    """Two views must not write the same cache keys."""
    if "{view}" in pattern:
        return
    own = _PLACEHOLDER.sub(_any, pattern)
    for other, view in patterns.items():
        if fnmatchcase(own.replace("*", "x"), other) or fnmatchcase(other.replace("*", "x"), own):
            message = f"the views {view} and {spec.name} would write the same keys by their cache.key"
            raise ConfigError(message, "put {view} into the pattern")
    patterns[own] = spec.name


def _any(placeholder: re.Match[str]) -> str:
    return placeholder[0] if placeholder[1] in ("pipeline", "generation") else "*"
