"""The frame of rows that this process holds, which Spark hears of when something is first asked of it.

In: an Arrow table in the types of its schema. Out: a DataFrame like any other. Keeps true: what Spark answers is
`rows`. Most batches are small, and written without Spark; to tell it of them costs as much as to write some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class HeldFrame(ClassicFrame):
    """All that a frame does it does by `_jdf`, its other half in the JVM, which is made on first use."""

    def __init__(self, spark: SparkSession, rows: pa.Table, schema: StructType) -> None:
        self.rows = rows
        self._made: Any = None
        self._types = schema
        super().__init__(None, spark)

    @property
    def is_told(self) -> bool:
        """Whether Spark knows of it."""
        return self._made is not None

    @property
    def _jdf(self) -> Any:
        if self._made is None:
            self._made = self._session.createDataFrame(self.rows, self._types)._jdf  # noqa: SLF001 - as in a frame
        return self._made

    @_jdf.setter
    def _jdf(self, made: Any) -> None:
        self._made = made

    @property
    def schema(self) -> StructType:
        """As it was given."""
        return self._types

    def unpersist(self, blocking: bool = False) -> DataFrame:
        """What Spark was never told of is not kept there either."""
        return super().unpersist(blocking) if self.is_told else self
