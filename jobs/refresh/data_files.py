"""The files of one version of a Delta table, as Arrow reads them, and which of them may hold a value.

In: an open table. Out: a dataset of the files that can have rows with the values that are wanted. Keeps true: a file is
left out by bounds that its writer wrote exactly, and by no others: Spark and delta-rs do not write the same ones, and
what deltalake tells Arrow of a file without bounds is that it has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

Bounds = Mapping[str, tuple[int, int]]
"""The least and the greatest value of columns of whole numbers and days."""


@dataclass(frozen=True, slots=True)
class DataFiles:
    """`files` are read by themselves: nothing is known of them but their bounds."""

    whole: Any
    files: tuple[tuple[Any, Bounds], ...]

    def among(self, wanted: Mapping[str, Any]) -> ds.FileSystemDataset:
        """Those that may have a row that has one of the wanted values in each of these columns."""
        import pyarrow.dataset as ds

        ends = {name: found for name, values in wanted.items() if (found := _ends(values)) is not None}
        kept = [file for file, bounds in self.files if _may_hold(bounds, ends)]
        return ds.FileSystemDataset(kept, self.whole.schema, self.whole.format, self.whole.filesystem)


def data_files(table: DeltaTable) -> DataFiles:
    """The files of an open table's version."""
    import pyarrow as pa

    whole: Any = table.to_pyarrow_dataset()
    actions = pa.table(table.get_add_actions(flatten=True))
    names = [name for name in whole.schema.names if _is_bounded(whole.schema.field(name).type)]
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
    bare = (whole.format.make_fragment(each.path, whole.filesystem) for each in whole.get_fragments())
    return DataFiles(whole, tuple((file, bounds.get(file.path, {})) for file in bare))


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
