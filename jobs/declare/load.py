"""View files and captured tables, as apply sees them.

In: a folder of SQL files and the tables that are captured. Out: ViewSpecs. Keeps true: a view is either exactly what
its SQL would answer in Postgres, or refused before anything starts; its fingerprint changes whenever its rows could.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc.errors import ConfigError
from cdc.names import delta_columns, path_name, quote_ident
from cdc.nearest import suggestion
from jobs.declare.context import UNKNOWN_TABLE, quote_column, span
from jobs.declare.header import read_header
from jobs.declare.keys import KEY, view_key
from jobs.declare.parse import Select, parse_select
from jobs.declare.source import Source
from jobs.declare.translate import Translation, translate
from jobs.identifiers import identifier
from jobs.tables import TableInfo
from sinks.spec import Concealed, Kind, SinkOptions, ViewSpec

Relations = Mapping[tuple[str, str], TableInfo]
OnError = Callable[[ConfigError], None]

NAME: Final = "VIEW_NAME"
RESERVED: Final = frozenset({"afterimage", "changes"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def load_views(folder: Path, relations: Relations, on_error: OnError | None = None) -> list[ViewSpec]:
    """Every `*.sql` file of the folder, by name. With `on_error`, a view that is wrong is told and left out."""
    if not folder.is_dir():
        hint = "make the folder (it may be empty), or set `views` in the configuration"
        raise ConfigError(f"the folder of the views does not exist: {folder}", hint, code="VIEW_FOLDER")
    specs = []
    for path in sorted(folder.glob("*.sql")):
        try:
            specs.append(load_view(path, relations))
        except ConfigError as error:
            if on_error is None:
                raise
            on_error(error)
    _check_patterns(specs)
    return specs


def load_view(path: Path, relations: Relations) -> ViewSpec:
    """One view file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", "a view file is UTF-8 text", code="VIEW_FILE") from error
    return declare_view(path.stem, Source(str(path), text), relations)


def declare_view(name: str, source: Source, relations: Relations) -> ViewSpec:
    """The view of a text."""
    _check_name(name, source, relations)
    select = parse_select(source)
    header = read_header(source, before=select.tokens[0].start)
    table = _resolve(source, select, relations)
    translation = translate(source, select, table)
    key, key_source = view_key(source, header, table, translation.outputs)
    delta = dict(zip((output.name for output in translation.outputs), translation.columns, strict=True))
    return ViewSpec(
        name=name,
        kind=Kind.ROWWISE,
        schema=table.schema,
        table=table.table,
        key=tuple(delta[column] for column in key),
        key_source=_delta_names(table, key_source),
        columns=translation.columns,
        postgres_sql=translation.postgres_sql,
        table_at=translation.table_at,
        spark_sql=translation.spark_sql,
        sinks=header.sinks,
        fingerprint=_fingerprint(translation, key, table),
        file=source.name,
        concealed=_concealed(table, {delta[output.name]: output.source for output in translation.outputs}),
        stopped=table.stopped,
        reads=frozenset(translation.used) | frozenset(table.key),
    )


def mirror_spec(table: TableInfo) -> ViewSpec:
    """The view that equals a table."""
    if not table.key:
        hint = f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (..), or leave it out of source.tables"
        raise ConfigError(f"table {table.qualified} has no primary key", hint, code=KEY)
    names = [column.name for column in table.columns]
    columns = delta_columns(names)
    key = _delta_names(table, table.key)
    qualified = f"{quote_ident(table.schema)}.{quote_ident(table.table)}"
    postgres_sql = f"SELECT {', '.join(map(quote_ident, names))} FROM {qualified}"  # noqa: S608 - quoted
    table_at = len(postgres_sql) - len(qualified)
    spark_sql = f"SELECT {', '.join(map(quote_column, columns))} FROM changes"  # noqa: S608 - quoted
    return ViewSpec(
        name=path_name(table.schema, table.table),
        kind=Kind.MIRROR,
        schema=table.schema,
        table=table.table,
        key=key,
        key_source=key,
        columns=columns,
        postgres_sql=postgres_sql,
        table_at=table_at,
        spark_sql=spark_sql,
        sinks=(SinkOptions("delta"),),
        fingerprint=_hash([postgres_sql, spark_sql, key, _types(table, names)]),
        concealed=_concealed(table, dict(zip(columns, names, strict=True))),
        stopped=table.stopped,
    )


def _check_name(name: str, source: Source, relations: Relations) -> None:
    if not _NAME.fullmatch(name):
        hint = "rename the file: lower-case letters, digits and _, a letter first, 63 at most"
        raise ConfigError(f"{source.name}: {name!r} cannot be a view's name", hint, code=NAME)
    taken = {table for _, table in relations} | RESERVED
    if name in taken:
        what = "is reserved" if name in RESERVED else "is a captured table's name"
        raise ConfigError(f"{source.name}: the name {name} {what}", "give the file another name", code=NAME)


def _resolve(source: Source, select: Select, relations: Relations) -> TableInfo:
    """The captured table that FROM names."""
    node = select.table
    start, length = span(node.this)
    if node.args.get("catalog"):
        hint = "write schema.table"
        raise source.error(start, "a view reads its own database", hint, code=UNKNOWN_TABLE, length=length)
    table, db = identifier(node.this), node.args.get("db")
    schemas = [identifier(db)] if db else sorted(schema for schema, name in relations if name == table)
    if len(schemas) > 1:
        hint = f"write one of {', '.join(f'{schema}.{table}' for schema in schemas)}"
        message = f"table {table} is captured in several schemas"
        raise source.error(start, message, hint, code=UNKNOWN_TABLE, length=length)
    found = relations.get((schemas[0], table)) if schemas else None
    if found is None:
        written = f"{schemas[0]}.{table}" if schemas else table
        known = [f"{schema}.{name}" if db else name for schema, name in relations]
        hint = suggestion(written, known, what="captured tables")
        message = f"table {written} is not captured"
        raise source.error(start, message, hint, code=UNKNOWN_TABLE, length=length)
    return found


def _delta_names(table: TableInfo, names: Sequence[str]) -> tuple[str, ...]:
    originals = [column.name for column in table.columns]
    delta = dict(zip(originals, delta_columns(originals), strict=True))
    return tuple(delta[name] for name in names)


def _fingerprint(translation: Translation, key: Sequence[str], table: TableInfo) -> str:
    # Not the sinks' options: each sink adds its own, so that changing one of them reloads that sink alone.
    used = sorted(translation.used | set(table.key))
    return _hash([translation.postgres_sql, translation.spark_sql, key, _types(table, used)])


def _concealed(table: TableInfo, sources: Mapping[str, str | None]) -> dict[str, Concealed]:
    """Of the view's columns, those that show a column under a rule."""
    under_rule = {column.name: column for column in table.columns if column.rule is not None}
    shown = {name: under_rule[source] for name, source in sources.items() if source in under_rule}
    return {name: Concealed(column.name, column.base_oid, column.type_mod) for name, column in shown.items()}


def _types(table: TableInfo, names: Sequence[str]) -> list[list[str | int]]:
    used = [column for column in table.columns if column.name in names]
    return [[column.name, column.type, column.base_oid, column.type_mod] for column in used]


def _hash(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


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
