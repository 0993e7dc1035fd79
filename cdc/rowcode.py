"""Code generated for the rows of one table: a row's texts to a JSON object, without a loop or a look-up per column.

In: a relation, which of its columns, and their treatments. Out: a function. Keeps true: no name from the catalogue
becomes source text, names and encoders are constants beside it; a value that is not a text of its type raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from cdc.changes import Column, Relation, StreamedRow
from cdc.privacy import Treatment, Treatments
from cdc.values import PASSED_THROUGH, Encode, encoder

RowToJson = Callable[[StreamedRow], str]

NO_TREATMENTS: Final[Treatments] = {}

UNFIT: Final = (TypeError, ValueError, AttributeError)
"""What the functions raise for UNCHANGED, for NULL in a key, and for texts that the type does not print."""


def compile_row(relation: Relation, treatments: Treatments = NO_TREATMENTS) -> RowToJson:
    """All columns that are published; NULL is null."""
    return _compile(relation, relation.columns, treatments, nullable=True)


def compile_key(relation: Relation, treatments: Treatments = NO_TREATMENTS) -> RowToJson:
    """The primary key's columns; NULL raises."""
    return _compile(relation, relation.key, treatments, nullable=False)


def column_encoder(column: Column, treatment: Treatment | None) -> Encode | None:
    """What makes a column's texts JSON; None for a column that is not published."""
    if treatment is None:
        return encoder(column.base_oid)
    if treatment.published is None:
        return None
    encode, conceal = encoder(treatment.published.base_oid), treatment.conceal
    if treatment.constant is not None:
        fragment = encode(treatment.constant)
        return lambda _: fragment
    return lambda text: encode(conceal(text))


def faulty_column(
    relation: Relation, row: StreamedRow, treatments: Treatments = NO_TREATMENTS
) -> tuple[str, str] | None:
    """The first column whose value is not one of its type, and why."""
    for column, value in zip(relation.columns, row, strict=True):
        treatment = treatments.get(column.name)
        if value is None or (treatment is not None and not treatment.needs_value):
            continue
        if not isinstance(value, str):
            return column.name, "its value is not in the log"
        encode = column_encoder(column, treatment)
        assert encode is not None
        try:
            encode(value)
        except UNFIT as error:
            return column.name, str(error)
    return None


def _compile(relation: Relation, columns: Sequence[Column], treatments: Treatments, *, nullable: bool) -> RowToJson:
    constants: dict[str, Any] = {"join": "".join}
    parts: list[str] = []
    treated = {column.name: column_encoder(column, treatments.get(column.name)) for column in columns}
    wanted = {name for name, encode in treated.items() if encode is not None}
    opening = "{"
    for number, column in enumerate(relation.columns):
        if column.name not in wanted:
            continue
        constants[f"name{number}"] = f"{opening}{encode_basestring(column.name)}:"
        encode = None if column.base_oid in PASSED_THROUGH and column.name not in treatments else treated[column.name]
        if encode is not None:
            constants[f"encode{number}"] = encode
        parts += [f"name{number}", _value_source(number, is_encoded=encode is not None, nullable=nullable)]
        opening = ","
    return _define(len(relation.columns), parts, constants)


def _value_source(number: int, *, is_encoded: bool, nullable: bool) -> str:
    value = f"value{number}"
    encoded = f"encode{number}({value})" if is_encoded else value
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
