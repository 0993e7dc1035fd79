"""An answer as a table for people, JSON or CSV for programs.

In: an Arrow table. Out: text or a Rich table. Keeps true: values print as Postgres prints them; in JSON numbers are
numbers, decimals and times strings, binary base64; in CSV NULL is nothing and the empty text is "", as in COPY.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import ConfigError
from jobs.float_text import float4_text, float8_text

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, JustifyMethod
    from rich.table import Table

Cell = str | None
SHOWN_MAX: Final = 1000
_NARROW: Final = 8
"""No column of a terminal is made narrower for the others; where they do not fit, the terminal breaks the lines."""
_REAL_BITS: Final = 32
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_table(answer: pa.Table, console: Console, rows_max: int = SHOWN_MAX) -> None:
    """As wide as its values are; a terminal breaks them into lines, and none is ever cut."""
    from rich.measure import Measurement

    shown = as_table(answer, rows_max)
    widest = Measurement.get(console, console.options.update(max_width=sys.maxsize), shown).maximum
    least = sum(_NARROW + sum(shown.padding[1::2]) + 1 for _ in shown.columns)
    width = max(console.width, least) if console.is_terminal else widest
    shown.width = min(width, widest)
    console.print(shown, crop=False)


def as_table(answer: pa.Table, rows_max: int = SHOWN_MAX) -> Table:
    """For a terminal: numbers to the right, NULL dimmed, at most so many rows."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(show_edge=False, header_style="bold")
    for field in answer.schema:
        side: JustifyMethod = "right" if _is_number(field.type) else "left"
        shown.add_column(Text(field.name), justify=side, overflow="fold")
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
    lines = (_dumped(dict(zip(names, row, strict=True))) for row in rows)
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
        return [None if value is None else _float_text(kind)(value) for value in column.to_pylist()]
    if types.is_timestamp(kind):
        return [_timestamp(cell, "+00" if kind.tz else "") for cell in _cast(column)]
    if types.is_date(kind) or types.is_integer(kind):
        return _cast(column)
    if types.is_nested(kind):
        return [None if value is None else _dumped(value) for value in _values(column)]
    return [None if value is None else _text(value) for value in column.to_pylist()]


def _cast(column: pa.ChunkedArray[Any]) -> list[Cell]:
    # Arrow prints times beyond the year 9999, which Python cannot hold.
    import pyarrow as pa

    found: list[Cell] = column.cast(pa.string()).to_pylist()
    return found


def _float_text(kind: Any) -> Callable[[float], str]:
    return float8_text if kind.bit_width > _REAL_BITS else float4_text


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
    return format(value, "f") if _is_decimal(value) else str(value)


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """A column's values for JSON."""
    import pyarrow.types as types

    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.to_pylist()
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return [cell and cell.removesuffix("+00").replace(" ", "T") + zone for cell in _texts(column)]
    if types.is_date(kind):
        return _texts(column)
    return [_json_value(kind, value) for value in column.to_pylist()]


def _json_value(kind: Any, value: Any) -> Any:
    import pyarrow.types as types

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        # JSON has no other numbers than those that end.
        text = _float_text(kind)(value)
        return float(text) if math.isfinite(value) else text
    if types.is_map(kind) and value is not None:
        return [[_json_value(kind.key_type, key), _json_value(kind.item_type, each)] for key, each in value]
    if isinstance(value, list):
        return [_json_value(kind.value_type, each) for each in value]
    if isinstance(value, dict):
        return {field.name: _json_value(field.type, value[field.name]) for field in kind}
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return _text(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_decimal(value: Any) -> bool:
    from decimal import Decimal

    return isinstance(value, Decimal)


def _is_number(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
