"""A view's rows in a Delta table beside the live one, which no reader sees.

In: rows, or changes. Out: commits, as the live table's sink makes them. Keeps true: where it stands is known to this
process alone, so whoever is killed leaves a table that nobody goes on with, and that the next load removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.settings import Delta
from sinks.delta.commit import PROPERTIES, Mark
from sinks.delta.sink import DeltaSink
from sinks.delta.staged import KEPT_WHOLE, folder_beside, load_rows
from sinks.delta.stamp import Stamp
from sinks.protocol import Position, Written
from sinks.spec import ViewSpec
from sinks.standing import new_generation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class BesideDelta(DeltaSink):
    """A view's rows in a table that no reader sees; its files are moved as they are."""

    table_properties: Mapping[str, str] = {**PROPERTIES, **KEPT_WHOLE}

    may_mark = False

    def __init__(self, settings: Delta, pipeline: str, spec: ViewSpec) -> None:
        super().__init__(settings, pipeline, replace(spec, name=folder_beside(spec.name)))
        self._at: Position | None = None

    def position(self) -> Position | None:
        """As this process knows it: no ledger speaks of the table."""
        return self._at

    def write(self, changes: DataFrame, position: Position) -> Written:
        """As into any table."""
        written = super().write(changes, position)
        self._at = position
        return written

    def replace(self, rows: DataFrame, position: Position) -> Written:
        """As of any table."""
        written = super().replace(rows, position)
        self._at = position
        return written

    def load(self, shares: Iterable[pa.Table], position: Position) -> Written:
        """The same without Spark, where there is no table yet; each share of the rows has keys of its own."""
        stamp = Stamp(self._spec.name, new_generation([]), self._spec.fingerprint, position)
        mark = Mark(self._path, stamp, self._app, 1)
        columns = (rows.select(self._spec.columns) for rows in shares)
        loaded = load_rows(columns, mark, self._spec.key, self.table_properties, self._options)
        self._require_made(mark)
        self._at = position
        return Written(upserts=loaded)

    def rewrite(self, rows: DataFrame, position: Position) -> Written:
        """As of any table."""
        written = super().rewrite(rows, position)
        self._at = position
        return written

    def advance(self, position: Position) -> None:
        """Know that it stands there."""
        self._at = position
