"""Single data files of a Delta table, read and written in this process.

In: the folder of a table on a local disk. Out: a file's rows without those that are marked as deleted; a new file, and
what its log entry says. Keeps true: bounds are told only of whole numbers, which are the same for every reader.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinks.delta.entries import Entry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap


def read_file(folder: str, path: str) -> pa.Table:
    """All rows of a file, marked or not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(Path(folder, path), partitioning=None, use_threads=False)
    # Of texts and bytes as delta-rs writes them, Arrow neither filters nor compares any.
    plain = [pa.field(field.name, _plain(field.type), field.nullable) for field in rows.schema]
    return rows.cast(pa.schema(plain))


def live_rows(folder: str, path: str, dead: BitMap, schema: pa.Schema) -> pa.Table:
    """With the schema's columns; one that came into the table later is NULL."""
    import pyarrow as pa

    rows = read_file(folder, path)
    rows = rows.filter(live_mask(rows.num_rows, dead)) if dead else rows
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def live_mask(count: int, dead: BitMap) -> pa.Array[Any]:
    """Which of so many rows are left."""
    import numpy as np
    import pyarrow as pa

    live = np.ones(count, dtype=bool)
    live[np.fromiter(dead, dtype=np.int64, count=len(dead))] = False
    return pa.array(live)


def written_file(folder: str, rows: pa.Table, *, data_change: bool = True) -> Entry:
    """The rows as a new file of the table; no log names it yet."""
    import pyarrow.parquet as pq

    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    path = Path(folder, name)
    pq.write_table(rows, path, store_schema=False)
    return {
        "path": name,
        "partitionValues": {},
        "size": path.stat().st_size,
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": data_change,
        "stats": json.dumps(_stats(rows)),
    }


def _plain(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _stats(rows: pa.Table) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
    ends = {name: pc.min_max(rows.column(name)) for name in whole}
    known = {name: each for name, each in ends.items() if each["min"].is_valid}
    return {
        "numRecords": rows.num_rows,
        "minValues": {name: each["min"].as_py() for name, each in known.items()},
        "maxValues": {name: each["max"].as_py() for name, each in known.items()},
        "nullCount": {name: rows.column(name).null_count for name in rows.column_names},
    }
