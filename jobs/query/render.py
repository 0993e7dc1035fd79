"""An answer as a table for people, JSON or CSV for programs.

In: an Arrow table. Out: text or a Rich table. Keeps true: values print as Postgres prints them; in JSON numbers are
numbers, decimals and times strings, binary base64; in CSV NULL is nothing and the empty text is "", as in COPY.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

Cell = str | None
SHOWN_MAX: Final = 1000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FLOATS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def as_table(answer: pa.Table, rows_max: int = SHOWN_MAX) -> Table:
    """For a terminal: numbers to the right, NULL dimmed, at most so many rows."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(show_edge=False, header_style="bold")
    for field in answer.schema:
        shown.add_column(Text(field.name), justify="right" if _is_number(field.type) else "left")
    for row in _rows([_texts(column) for column in answer.slice(0, rows_max).columns]):
        shown.add_row(
            *(Text("NULL", style="dim") if cell is None else Text(_CONTROL.sub(_visible, cell)) for cell in row)
        )
    rows = "1 row" if answer.num_rows == 1 else f"{answer.num_rows} rows"
    more = f", the first {rows_max} shown: --format csv prints them all" if answer.num_rows > rows_max else ""
    shown.caption = f"{rows}{more}"
    return shown


def as_json(answer: pa.Table) -> str:
    """An array of objects, one a line."""
    names = answer.schema.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"the answer has two columns {twice}", "name one of them: .. AS name", code="QUERY_SQL")
    rows = _rows([_values(column) for column in answer.columns])
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
    return "[" + ",\n ".join(lines) + "]\n"


def as_csv(answer: pa.Table) -> str:
    """A header line, then the rows."""
    lines = [",".join(_quoted(name) for name in answer.schema.names)]
    lines += [",".join(_quoted(cell) for cell in row) for row in _rows([_texts(column) for column in answer.columns])]
    return "\n".join(lines) + "\n"


def _visible(match: re.Match[str]) -> str:
    # A value must not steer the terminal.
    return f"\\x{ord(match[0]):02x}"


def _rows(columns: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    return zip(*columns, strict=True)


def _quoted(cell: Cell) -> str:
    if cell is None:
        return ""
    if cell == "" or cell == "\\." or any(char in cell for char in ',"\n\r'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _texts(column: pa.ChunkedArray[Any]) -> list[Cell]:
    """A column's values as Postgres prints them."""
    import pyarrow.types as types

    kind = column.type
    if types.is_floating(kind):
        return [_float(cell) for cell in _cast(column)]
    if types.is_timestamp(kind):
        return [_timestamp(cell, "+00" if kind.tz else "") for cell in _cast(column)]
    if types.is_date(kind) or types.is_integer(kind):
        return _cast(column)
    return [None if value is None else _text(value) for value in column.to_pylist()]


def _cast(column: pa.ChunkedArray[Any]) -> list[Cell]:
    # Arrow prints times beyond the year 9999 and 32-bit floats, which Python cannot hold.
    import pyarrow as pa

    found: list[Cell] = column.cast(pa.string()).to_pylist()
    return found


def _float(cell: Cell) -> Cell:
    return cell if cell is None else _FLOATS.get(cell, cell).removesuffix(".0")


def _timestamp(cell: Cell, zone: str) -> Cell:
    if cell is None:
        return None
    text = cell.removesuffix("Z")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + zone


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return format(value, "f") if _is_decimal(value) else str(value)


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """A column's values for JSON."""
    import pyarrow.types as types

    kind = column.type
    how: Callable[[Any], Any] = _json_value
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.to_pylist()
    if types.is_floating(kind):
        return [_json_float(cell) for cell in _texts(column)]
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return [cell and cell.removesuffix("+00").replace(" ", "T") + zone for cell in _texts(column)]
    if types.is_date(kind):
        return _texts(column)
    return [how(value) for value in column.to_pylist()]


def _json_float(cell: Cell) -> float | str | None:
    return cell if cell is None or cell in _FLOATS.values() else float(cell)


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_json_value(each) for each in value]
    if isinstance(value, dict):
        return {name: _json_value(each) for name, each in value.items()}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return _text(value)


def _is_decimal(value: Any) -> bool:
    from decimal import Decimal

    return isinstance(value, Decimal)


def _is_number(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
