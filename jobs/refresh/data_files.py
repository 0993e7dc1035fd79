"""The files of one version of a Delta table, as Arrow reads them, and which of them may hold a value.

In: an open table. Out: batches of the files that can have rows with the values that are wanted. Keeps true: a file is
left out by bounds that its writer wrote exactly, and by no others: Spark and delta-rs do not write the same ones, and
what deltalake tells Arrow of a file without bounds is that it has no rows. Rows marked as deleted are not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sinks.delta.files import live_mask
from sinks.delta.having import PLACE, can_read, rows_having
from sinks.delta.vectors import dead_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyroaring import BitMap

Bounds = Mapping[str, tuple[int, int]]
"""The least and the greatest value of columns of whole numbers and days."""
BATCHES_AHEAD: Final = 4
FILES_AHEAD: Final = 2
ROWS_MAX: Final = 250_000
"""More than so many wanted rows nobody reads here: they are compared in whole columns."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """It is read by itself: nothing is known of it but its bounds, and which of its rows are `dead`."""

    path: str
    file: Any
    bounds: Bounds
    dead: BitMap | None


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Of one version; `files` are on the `disk`, in the `folder` if that is one of this machine."""

    schema: pa.Schema
    folder: str | None
    disk: Any
    files: tuple[DataFile, ...]

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Of rows with these columns."""
        import pyarrow as pa

        return pa.schema([self.schema.field(name) for name in columns])

    def likely(self, wanted: Mapping[str, Any]) -> list[DataFile]:
        """Those that may have a row that has one of the wanted values in each of these columns."""
        ends = {name: found for name, values in wanted.items() if (found := _ends(values)) is not None}
        return [each for each in self.files if _may_hold(each.bounds, ends)]

    def batches(self, columns: Sequence[str], wanted: Mapping[str, Any], condition: Any) -> Iterator[pa.RecordBatch]:
        """The rows that have a wanted value in each of these columns, which is what the condition says to Arrow."""
        likely = self.likely(wanted)
        if wanted and self.folder is not None and can_read(self.schema, (*columns, *wanted)):
            return self._having(self.folder, likely, columns, wanted)
        return self._scanned(likely, columns, wanted, condition)

    def _having(
        self, folder: str, likely: Sequence[DataFile], columns: Sequence[str], wanted: Mapping[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        dead, schema = {each.path: each.dead for each in likely}, self.schema_of(columns)
        for path, rows in rows_having(folder, list(dead), self.schema, columns, wanted, ROWS_MAX + 1):
            is_left = _left(rows.column(PLACE), dead[path])
            yield from (
                (rows if is_left is None else rows.filter(is_left)).select(list(columns)).cast(schema).to_batches()
            )

    def _scanned(
        self, likely: Sequence[DataFile], columns: Sequence[str], wanted: Mapping[str, Any], condition: Any
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        whole = [each.file for each in likely if each.dead is None]
        dataset = ds.FileSystemDataset(whole, self.schema, ds.ParquetFileFormat(), self.disk)
        yield from dataset.scanner(
            columns=list(columns), filter=condition, batch_readahead=BATCHES_AHEAD, fragment_readahead=FILES_AHEAD
        ).to_batches()
        needed = list(dict.fromkeys((*columns, *wanted)))
        for each in likely:
            if each.dead is not None:
                rows = each.file.to_table(self.schema, columns=needed)
                rows = rows.filter(live_mask(rows.num_rows, each.dead))
                yield from (rows if condition is None else rows.filter(condition)).select(list(columns)).to_batches()


def data_files(table: DeltaTable) -> DataFiles:
    """The files of an open table's version."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    schema: pa.Schema = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]  # by Arrow's C interface
    folder = _folder(table)
    disk = _disk(table, folder)
    dead, format_ = dead_rows(table), ds.ParquetFileFormat()
    actions = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in schema.names if _is_bounded(schema.field(name).type)]
    pairs = {name: (f"min.{name}", f"max.{name}") for name in names}
    paths = [str(path) for path in actions.column("path").to_pylist()]
    bounds: dict[str, dict[str, tuple[int, int]]] = {path: {} for path in paths}
    for name, columns in pairs.items():
        if not set(columns) <= set(actions.column_names):
            continue
        low, high = (_numbers(actions.column(column)) for column in columns)
        for path, least, greatest in zip(paths, low.to_pylist(), high.to_pylist(), strict=True):
            if least is not None and greatest is not None:
                bounds[path][name] = least, greatest
    files = (DataFile(path, format_.make_fragment(path, disk), bounds[path], dead.get(path)) for path in paths)
    return DataFiles(schema, folder, disk, tuple(files))


def _folder(table: DeltaTable) -> str | None:
    is_here = table.table_uri.startswith("file://")
    return url2pathname(urlsplit(table.table_uri).path) if is_here else None


def _disk(table: DeltaTable, folder: str | None) -> Any:
    import pyarrow.fs as pa_fs

    if folder is not None:
        return pa_fs.SubTreeFileSystem(folder, pa_fs.LocalFileSystem())
    whole: Any = table.to_pyarrow_dataset()
    return whole.filesystem


def _left(places: Any, dead: BitMap | None) -> pa.Array[Any] | None:
    """Which of the rows at these places are not marked; None where all are left."""
    import pyarrow as pa
    from pyroaring import BitMap

    gone = BitMap(places.to_numpy()) & dead if dead else None
    return pa.array([place not in gone for place in places.to_pylist()], pa.bool_()) if gone else None


def _may_hold(bounds: Bounds, ends: Bounds) -> bool:
    return all(
        low <= bounds[name][1] and high >= bounds[name][0] for name, (low, high) in ends.items() if name in bounds
    )


def _ends(values: Any) -> tuple[int, int] | None:
    """None where they say nothing: bounds are of values, and NULL is none."""
    import pyarrow.compute as pc

    if values.null_count or not len(values) or not _is_bounded(values.type):
        return None
    ends = pc.min_max(_numbers(values))
    return ends["min"].as_py(), ends["max"].as_py()


def _numbers(values: Any) -> Any:
    """Python's calendar ends before Postgres's does."""
    import pyarrow as pa

    return values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(values.type) else values.cast(pa.int64())


def _is_bounded(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))
