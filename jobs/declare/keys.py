"""A view's key: inferred from the table's primary key, or declared and proved unique.

In: the table's primary key, the view's outputs and its header. Out: key columns and the primary-key columns that they
project, one to one. Keeps true: two rows of the view never share a key, since each projects its table row's whole key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from jobs.declare.header import Header
from jobs.declare.outputs import Output
from jobs.declare.source import Source
from jobs.tables import TableInfo

KEY: Final = "VIEW_KEY"


def view_key(
    source: Source, header: Header, table: TableInfo, outputs: Sequence[Output]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key's output names, and the primary-key columns that they project."""
    if not table.key:
        hint = f"give it one: ALTER TABLE {table.qualified} ADD PRIMARY KEY (..)"
        raise source.error(0, f"table {table.qualified} has no primary key", hint, code=KEY)
    if header.key is None:
        return _inferred(source, table, outputs), table.key
    return header.key, _declared(source, header, header.key, table, outputs)


def _inferred(source: Source, table: TableInfo, outputs: Sequence[Output]) -> tuple[str, ...]:
    images: dict[str, str] = {}
    for output in outputs:
        if output.source is not None:
            images.setdefault(output.source, output.name)
    missing = [name for name in table.key if name not in images]
    if missing:
        message = f"no key: the view leaves out {', '.join(missing)} of {table.qualified}'s primary key"
        raise source.error(0, message, f"select {', '.join(missing)} as it is, under any name", code=KEY)
    return tuple(images[name] for name in table.key)


def _declared(
    source: Source, header: Header, key: Sequence[str], table: TableInfo, outputs: Sequence[Output]
) -> tuple[str, ...]:
    sources = {output.name: output.source for output in outputs}
    for name in key:
        if name not in sources:
            raise _error(source, header, f"the view has no column {name}", suggestion(name, sources, what="columns"))
        if sources[name] not in table.key:
            hint = f"make the key of {table.qualified}'s primary key ({', '.join(table.key)}), selected as it is"
            raise _error(source, header, f"the key column {name} is not a column of the primary key", hint)
    projected = tuple(name for name in (sources[name] for name in key) if name is not None)
    missing = [name for name in table.key if name not in projected]
    if missing:
        hint = f"add the columns that {', '.join(missing)} became, or leave the line out: the key is inferred"
        raise _error(source, header, "the key is not unique: two rows could share it", hint)
    if len(set(projected)) < len(projected):
        raise _error(source, header, "the key holds one primary-key column twice", "name each once")
    return projected


def _error(source: Source, header: Header, message: str, hint: str) -> ConfigError:
    entry = header.entries["key"]
    return source.error(entry.value_at, message, hint, code=KEY, length=len(entry.value))
