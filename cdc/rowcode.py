"""Code generated for the rows of one table: a row's texts to a JSON object, without a loop or a look-up per column.

In: a relation and which of its columns. Out: a function. Keeps true: no name from the catalogue becomes source text,
names and encoders are constants beside it; a value that is not a text of its type raises, it is never printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from cdc.changes import Column, Relation, StreamedRow
from cdc.values import PASSED_THROUGH, encoder

RowToJson = Callable[[StreamedRow], str]

UNFIT: Final = (TypeError, ValueError, AttributeError)
"""What the functions raise for UNCHANGED, for NULL in a key, and for texts that the type does not print."""


def compile_row(relation: Relation) -> RowToJson:
    """All columns; NULL is null."""
    return _compile(relation, relation.columns, nullable=True)


def compile_key(relation: Relation) -> RowToJson:
    """The primary key's columns; NULL raises."""
    return _compile(relation, relation.key, nullable=False)


def faulty_column(relation: Relation, row: StreamedRow) -> tuple[str, str] | None:
    """The first column whose value is not one of its type, and why."""
    for column, value in zip(relation.columns, row, strict=True):
        if value is None:
            continue
        if not isinstance(value, str):
            return column.name, "its value is not in the log"
        try:
            encoder(column.base_oid)(value)
        except UNFIT as error:
            return column.name, str(error)
    return None


def _compile(relation: Relation, columns: Sequence[Column], *, nullable: bool) -> RowToJson:
    constants: dict[str, Any] = {"join": "".join}
    parts: list[str] = []
    wanted = {column.name for column in columns}
    opening = "{"
    for number, column in enumerate(relation.columns):
        if column.name not in wanted:
            continue
        constants[f"name{number}"] = f"{opening}{encode_basestring(column.name)}:"
        parts += [f"name{number}", _value_source(number, column, constants, nullable=nullable)]
        opening = ","
    return _define(len(relation.columns), parts, constants)


def _value_source(number: int, column: Column, constants: dict[str, Any], *, nullable: bool) -> str:
    value = f"value{number}"
    encoded = value
    if column.base_oid not in PASSED_THROUGH:
        constants[f"encode{number}"] = encoder(column.base_oid)
        encoded = f"encode{number}({value})"
    return f"'null' if {value} is None else {encoded}" if nullable else encoded


def _define(width: int, parts: Sequence[str], constants: dict[str, Any]) -> RowToJson:
    # join() refuses what is not a string, where an f-string would print it.
    source = "\n".join(
        [
            "def row_to_json(row):",
            f"    [{', '.join(f'value{number}' for number in range(width))}] = row",
            f"    return join(({', '.join(parts)}, '}}'))",
        ]
    )
    exec(compile(source, "<row code>", "exec"), constants)  # noqa: S102 - numbered names only, see above
    row_to_json: RowToJson = constants["row_to_json"]
    return row_to_json
