"""The changes of a DataFrame, one after the other, on the driver: one Kafka transaction has one producer.

In: a DataFrame of changes. Out: changes with their JSON, made on the executors when they are many. Keeps true: the
driver holds one partition at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sinks.entries import RowShape
from sinks.executor import is_small
from sinks.kafka.records import Change, ChangeShape

_SPARK_SCHEMA: Final = "key string, after string, lsn bigint, at string"
_TYPES: Final[dict[str, pa.DataType]] = {"key": pa.string(), "after": pa.string(), "lsn": pa.int64(), "at": pa.string()}
_ARROW_SCHEMA: Final = pa.schema(_TYPES)


def changes_of(frame: Any, columns: tuple[str, ...], key: tuple[str, ...]) -> Iterator[Change]:
    """All changes of the frame."""
    rows, shape = RowShape(key, columns, as_json=True), ChangeShape(columns, key)
    if is_small(frame):
        yield from shape.changes(rows.entries(frame.toArrow().to_batches()))
        return
    names = list(frame.columns)

    def encoded(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            found = list(shape.changes(rows.entries([batch.rename_columns(names)])))
            arrays = [[getattr(change, field.name) for change in found] for field in _ARROW_SCHEMA]
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, field.type) for values, field in zip(arrays, _ARROW_SCHEMA, strict=True)],
                schema=_ARROW_SCHEMA,
            )

    # mapInArrow looks columns up by name, and takes a column called * for all of them: give it plain names.
    plain = frame.toDF(*(f"c{place}" for place in range(len(names))))
    for row in plain.mapInArrow(encoded, _SPARK_SCHEMA).toLocalIterator(prefetchPartitions=True):
        yield Change(*row)
