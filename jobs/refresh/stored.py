"""A query's own Delta table at one version: the rows that a refresh compares with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.arrow_frames import frame_of
from jobs.refresh.images import struct_type
from jobs.refresh.lookup import BYTES_MAX, ROWS_MAX, rows_with
from jobs.refresh.relations import rows_at
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.spec import ViewSpec

UNPACKED: Final = 4
"""Bytes in memory for one in a file, roughly."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The table of `spec` as it is `held`."""

    spark: SparkSession
    spec: ViewSpec
    sink: DeltaSink
    held: Held

    def rows(self) -> DataFrame:
        """All of them."""
        return rows_at(self.spark, self.sink.path, self.held)

    def with_keys(self, keys: pa.Table) -> pa.Table:
        """Those that have the values of a row of `keys`, if they are few."""
        return rows_with(self.sink.path, self.sink.storage_options, self.held.version, self.spec.stored, keys)

    def all_few(self) -> pa.Table:
        """All of them, if they are few."""
        return rows_with(self.sink.path, self.sink.storage_options, self.held.version, self.spec.stored, None)

    def frame(self, rows: pa.Table) -> DataFrame:
        """Some of them, for Spark."""
        types = self.sink.types()
        return frame_of(self.spark, rows, struct_type({name: types[name] for name in rows.column_names}))

    def count(self) -> int:
        """How many there are, by the table's own statistics."""
        return self.sink.size(self.held.version).rows

    def rows_max(self) -> int:
        """How many rows of this view may pass through this process, as far as those that are there tell."""
        size = self.sink.size(self.held.version)
        if not size.rows:
            return ROWS_MAX
        return max(1, min(ROWS_MAX, BYTES_MAX * size.rows // max(1, size.bytes * UNPACKED)))
