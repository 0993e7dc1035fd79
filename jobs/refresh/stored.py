"""A query's own Delta table at one version: the rows that a refresh compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.parts import session_for
from jobs.refresh.data_files import ROWS_MAX
from jobs.refresh.images import struct_type
from jobs.refresh.lookup import BYTES_MAX, rows_with
from jobs.refresh.read import rows_at
from sinks.arrow_frames import frame_of
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.delta.literals import quoted
from sinks.spec import ViewSpec

SMALL_ROWS_MAX: Final = 5_000
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
        return rows_at(session_for(self.spark, self.count()), self.sink.path, self.held)

    def meeting(self, rows: DataFrame, same: Mapping[str, str]) -> DataFrame:
        """Those that have the values of some of these rows, NULL being one, in the columns that are paired."""
        stored = self.rows()
        pairs = (stored[quoted(ours)].eqNullSafe(rows[theirs]) for ours, theirs in same.items())
        return stored.join(rows, reduce(lambda one, other: one & other, pairs), "left_semi")

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

    def is_small(self) -> bool:
        """Whether all of them are compared in this process in less time than Spark takes to begin."""
        return self.count() <= min(SMALL_ROWS_MAX, self.rows_max())

    def rows_max(self) -> int:
        """How many rows of this view may pass through this process, as far as those that are there tell."""
        size = self.sink.size(self.held.version)
        if not size.rows:
            return ROWS_MAX
        return max(1, min(ROWS_MAX, BYTES_MAX * size.rows // max(1, size.bytes * UNPACKED)))
