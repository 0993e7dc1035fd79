"""View files, as apply sees them.

In: a folder of SQL files and the tables that are captured. Out: ViewSpecs. Keeps true: a view is either exactly what
its SQL would answer in Postgres, or refused before anything starts; a view is declared after those that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc.errors import ConfigError
from jobs.declare.dependencies import in_order, mentioned
from jobs.declare.header import read_header
from jobs.declare.keys import KEY
from jobs.declare.parse import is_row_wise, parse_statement
from jobs.declare.query import DeclaredQuery, declare_query
from jobs.declare.relations import Relation, Relations, Tables
from jobs.declare.row_wise import declare_row_wise
from jobs.declare.source import Source
from jobs.declare.view_name import check_name
from sinks.spec import ViewSpec

OnError = Callable[[ConfigError], None]

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
            tell(error, on_error)
    return texts


def declare_views(
    texts: Mapping[str, Source], relations: Tables, on_error: OnError | None = None, *, queries: bool = QUERIES
) -> list[ViewSpec]:
    """The views of these texts, by name; each is known to those that read it."""
    specs: dict[str, ViewSpec] = {}
    known: dict[str, Relation] = {}
    for name in in_order(texts, lambda error: tell(error, on_error)) if queries else texts:
        try:
            found = _declared(name, texts, Relations(relations, known, frozenset(texts)), queries=queries)
        except ConfigError as error:
            tell(error, on_error)
        else:
            specs[name], known[name] = found.spec, found.relation
    named = [specs[name] for name in sorted(specs)]
    _check_patterns(named)
    return named


def tell(error: ConfigError, on_error: OnError | None) -> None:
    """What is wrong with a view, to whoever asked for it; else it ends everything."""
    if on_error is None:
        raise error
    on_error(error)


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


def _check_patterns(specs: Sequence[ViewSpec]) -> None:
    """Two views must not write the same cache keys."""
    seen: dict[str, str] = {}
    for spec in specs:
        for sink in spec.sinks:
            pattern = sink.options.get("key") if sink.name == "cache" else None
            if pattern is None or "{view}" in pattern:
                continue
            if pattern in seen:
                message = f"{spec.file}: the views {seen[pattern]} and {spec.name} have the same cache.key"
                raise ConfigError(message, "put {view} into the pattern", code="VIEW_HEADER")
            seen[pattern] = spec.name
