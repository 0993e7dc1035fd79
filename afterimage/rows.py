"""What a cut was asked for, in the form that the caller works with.

In: a resolved query and its tables at their versions. Out: Arrow, pandas or polars. Keeps true: values arrive exactly,
in Arrow's types (also in pandas: NULL stays NULL and a bigint stays one); `batches` never holds all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from deltalake import DeltaTable

    from jobs.query.resolved import Resolved


class Rows:
    """An answer that is read when it is asked for, each time anew; other libraries take it as an Arrow stream."""

    def __init__(self, query: Resolved, tables: Mapping[str, DeltaTable]) -> None:
        self._query = query
        self._tables = tables

    def batches(self) -> Iterator[pa.RecordBatch]:
        """A few thousand rows at a time."""
        from jobs.query.run import failed

        reader = self._reader()
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except Exception as error:
                raise failed(error) from error
            yield batch

    def arrow(self) -> pa.Table:
        """All rows."""
        from jobs.query.run import read_all

        return read_all(self._reader())

    def pandas(self) -> pd.DataFrame:
        """All rows, in columns of pandas' Arrow types."""
        import pandas as pd

        frame: pd.DataFrame = self.arrow().to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def polars(self) -> pl.DataFrame:
        """All rows."""
        import polars as pl

        frame = pl.from_arrow(self.arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader: Any = self._reader()
        return reader.__arrow_c_stream__(requested_schema)

    def _reader(self) -> pa.RecordBatchReader:
        import pyarrow as pa

        from jobs.query.run import executed

        reader = executed(self._query, self._tables)
        return reader.cast(pa.schema([field.with_type(_plain(field.type)) for field in reader.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The engine's views of texts are new in Arrow: many a reader does not know them."""
    import pyarrow as pa

    plain: dict[Any, pa.DataType] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return plain.get(kind, kind)
