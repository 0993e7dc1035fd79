"""Records to Arrow columns: their envelopes read by Arrow's JSON reader, far from the interpreter's lock.

In: Records of one table. Out: one row per record: its key as it is, where it stands, what it did, its columns as JSON
has them. Keeps true: one row for each record, in their order; whatever differs from what capture writes is Unusual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cdc.oids import ELEMENT_OF
from jobs.bulk.scan import Records
from jobs.native_rows import Unusual
from jobs.small_range import TRUNCATE_KEY
from jobs.tables import ColumnInfo, TableInfo
from jobs.typemap import delta_type

KEY: Final = "key"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
LSN: Final = "lsn"
ORDINAL: Final = "ordinal"
GONE: Final = "gone"
TRUNCATES: Final = "truncates"

KEY_BEGINNING: Final = b'{"'
_UPSERTS: Final = pa.array(["c", "r", "u"])
_TRUNCATE: Final = pa.scalar("t")
_TRUNCATE_KEY: Final = pa.scalar(TRUNCATE_KEY, pa.binary())
_KNOWN: Final = pa.array(["c", "r", "u", "d", "t"])
_ENVELOPE: Final = b'{"before":'
_TOMBSTONE: Final = b'{"before":null,"source":{"commit_lsn":%d,"ordinal":%d},"op":"d"}'
_JSON_BYTES_MAX: Final = 1 << 30
_NEWLINE, _BRACE = b"\n}"
_JSON_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("smallint", "int", "bigint"), pa.int64()),
    "float": pa.float32(),
    "double": pa.float64(),
}
"""How a value stands in the envelope; all other types are strings there."""


def carried(table: TableInfo) -> list[ColumnInfo]:
    """The columns that a record's value gives; the key gives the others."""
    return [column for column in table.columns if not column.key]


def column_name(at: int) -> str:
    """What the column is called as long as it is not typed: names of tables' columns are anything."""
    return f"c{at}"


def require_plain(table: TableInfo) -> None:
    """Unusual where the table has columns that Arrow's reader has no type for: arrays nest as they like."""
    if any(column.base_oid in ELEMENT_OF for column in table.columns):
        raise Unusual("array")


def parsed(records: Records, table: TableInfo) -> pa.Table:
    """The records; strings, numbers and booleans as JSON has them."""
    columns = carried(table)
    source = pa.struct([("commit_lsn", pa.int64()), ("ordinal", pa.int64())])
    fields: list[tuple[str, pa.DataType]] = [("op", pa.string()), ("source", source)]
    if columns:
        fields.append(("after", pa.struct([(column.name, json_type(column)) for column in columns])))
    lines = [_TOMBSTONE % records.positions[at] if value is None else value for at, value in enumerate(records.values)]
    found = json_rows(lines, pa.schema(fields), _ENVELOPE)
    keys = pa.array(records.keys, pa.binary())
    op = _whole(found, "op")
    upserts, truncates = pc.is_in(op, _UPSERTS), pc.equal(op, _TRUNCATE)
    _require(pc.is_in(op, _KNOWN))
    _require(pc.equal(truncates, pc.equal(keys, _TRUNCATE_KEY)))
    if columns:
        _require(pc.equal(upserts, pc.is_valid(_whole(found, "after"))))
    lsn, ordinal = _whole(found, "source").flatten()
    _require(pc.and_(pc.is_valid(lsn), pc.is_valid(ordinal)))
    after = _whole(found, "after").flatten() if columns else []
    arrays: dict[str, Any] = {
        KEY: keys,
        PARTITION: pa.array(records.partitions, pa.int32()),
        OFFSET: pa.array(records.offsets, pa.int64()),
        LSN: lsn,
        ORDINAL: ordinal,
        GONE: pc.invert(upserts),
        TRUNCATES: truncates,
        **{column_name(at): values for at, values in enumerate(after)},
    }
    return pa.table(arrays)


def json_type(column: ColumnInfo) -> pa.DataType:
    """The type as which the column's JSON is read."""
    return _JSON_TYPES.get(delta_type(column), pa.string())


def json_rows(lines: Sequence[bytes], schema: pa.Schema, beginning: bytes) -> pa.Table:
    """Objects that begin so, one a line, as a row each; fields that the schema does not name are passed over."""
    text = b"\n".join(lines) + b"\n"
    count = len(lines)
    # The reader takes what stands on a line for granted: it ends the process at a line that says null, and a line
    # with two objects is two rows.
    if len(text) > _JSON_BYTES_MAX or not _are_lines(text, count, beginning):
        raise Unusual("record")
    try:
        found = arrow_json.read_json(
            cast("IO[bytes]", pa.BufferReader(text)),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as odd:
        raise Unusual("record") from odd
    if found.num_rows != count:
        raise Unusual("record")
    return found


def _are_lines(text: bytes, count: int, beginning: bytes) -> bool:
    """Whether there are so many, each of which begins so and ends like an object."""
    # Several times faster than to count them, and without the interpreter's lock.
    found = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(found == _NEWLINE)
    if len(ends) != count:
        return False
    starts = np.concatenate(([0], ends[:-1] + 1))
    if np.any(ends - starts <= len(beginning)) or np.any(found[ends - 1] != _BRACE):
        return False
    return all(np.all(found[starts + at] == byte) for at, byte in enumerate(beginning))


def _require(holds: Any) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise Unusual("record")


def _whole(rows: pa.Table, name: str) -> Any:
    """A column as one array; the stubs know no structs."""
    return rows.column(name).combine_chunks()
