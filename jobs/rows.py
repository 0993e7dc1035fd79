"""Kafka records of one table to typed rows, in Spark expressions.

In: `key`, `value`, `position` (a tombstone's header), `partition`, `offset`. Out: the table's columns in Delta's names
and types, OP, LSN, AT and what ordering needs. Keeps true: a value arrives exactly, or `jobs.failures` names the record
and the column, or the row's UNFIT_COLUMNS do: never a silent null, and never the value.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cdc.names import delta_columns
from cdc.oids import ELEMENT_OF
from cdc.values import decoder
from jobs.tables import ColumnInfo, TableInfo
from jobs.typemap import delta_type
from jobs.unfit import STRICT, Watch
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT

TRUNCATE: Final = "t"
TRUNCATE_KEY: Final = "{}"
ORDINAL: Final = "__ordinal"
PARTITION: Final = "__partition"
UNFIT_COLUMNS: Final = "__unfit_columns"
DIGEST: Final = "__digest"
INTERNAL: Final = (ORDINAL, PARTITION, UNFIT_COLUMNS, DIGEST)

# Both mark a message of Spark's raise_error as ours; jobs.failures reads it back.
MALFORMED: Final = "malformed"
UNFIT: Final = "unfit"

_BOUNDS = re.compile(r"\[-?\d+:-?\d+\]")


def positioned(records: DataFrame, table: TableInfo, *, timed: bool = False) -> DataFrame:
    """The records with their envelope read: `lsn`, `ordinal`, `op`, `after` (texts, by position), `at`.

    `timed`: with `tombstone`, `ms` (the commit's time, as far as the record has it) and `produced` (Kafka's).
    """
    numbers = ("commit_lsn", "ordinal", "ts_ms") if timed else ("commit_lsn", "ordinal")
    source = StructType([StructField(name, LongType()) for name in numbers])
    after = _texts([column.name for column in _carried(table)])
    envelope = StructType([StructField("op", StringType()), StructField("after", after), StructField("source", source)])
    read = records.select(
        "key",
        "partition",
        "offset",
        F.col("value").isNull().alias("tombstone"),
        F.split("position", ":").alias("header"),
        F.concat(F.lit(f"{table.topic}@"), "partition", F.lit(":"), "offset").alias("at"),
        F.from_json("value", envelope).alias("envelope"),
        "produced",
    )
    times: list[Column | str] = [F.coalesce("envelope.source.ts_ms", "produced").alias("ms"), "tombstone", "produced"]
    header_lsn, header_ordinal = (F.get("header", F.lit(at)).try_cast("bigint") for at in (0, 1))
    op = F.when(F.col("tombstone"), F.lit(DELETE)).otherwise(F.col("envelope.op"))
    names = _positional(len(after.fields))
    return read.select(
        "key",
        "partition",
        "offset",
        "at",
        _required(F.coalesce("envelope.source.commit_lsn", header_lsn), table).alias("lsn"),
        _required(F.coalesce("envelope.source.ordinal", header_ordinal), table).alias("ordinal"),
        _required(op, table).alias("op"),
        # By position, since two columns may differ in case alone.
        F.col("envelope.after").cast(names).alias("after"),
        *(times if timed else ()),
    )


def typed(rows: DataFrame, table: TableInfo, watch: Watch = STRICT, *kept: Column) -> DataFrame:
    """One row per change, its texts made values of Delta's types; a delete has its key alone. `kept` stay as they are.

    UNFIT_COLUMNS names the columns whose value is null only because none fits, where the watch lets such rows pass.
    DIGEST is the key's, of upserts among these and of the keys that are known.
    """
    key_columns = [column for column in table.columns if column.key]
    carried = _carried(table)
    keys = F.from_json("key", _texts([column.name for column in key_columns])).cast(_positional(len(key_columns)))
    upsert = F.col("op").isin("c", "r", "u")
    complete = F.when(upsert & F.col("after").isNull(), _raise(MALFORMED, table)).otherwise(F.col("after"))
    frame = rows.select("*", keys.alias("keys"), complete.alias("complete"))
    from_key = {column.name: F.col(f"keys.c{at}") for at, column in enumerate(key_columns)}
    from_after = {column.name: F.col(f"complete.c{at}") for at, column in enumerate(carried)}
    texts = from_after | from_key
    names = delta_columns(column.name for column in table.columns)
    operation = F.when(upsert, UPSERT).when(F.col("op").isin(DELETE, TRUNCATE), F.col("op"))
    value = _value if watch.unfit_max is None else _value_or_null
    misfits = [] if watch.unfit_max is None else [_misfit(texts[column.name], column) for column in table.columns]
    unfit = F.array_compact(F.array(*misfits)).cast("array<string>")
    digest = F.sha2("key", 256)
    return frame.select(
        *(
            value(texts[column.name], column, table).alias(name)
            for name, column in zip(names, table.columns, strict=True)
        ),
        unfit.alias(UNFIT_COLUMNS),
        F.when((upsert & (F.size(unfit) > 0)) | digest.isin(*watch.known), digest).alias(DIGEST),
        _required(operation, table).alias(OP),
        F.col("lsn").alias(LSN),
        F.col("at").alias(AT),
        F.col("ordinal").alias(ORDINAL),
        F.col("partition").alias(PARTITION),
        *kept,
    )


def _carried(table: TableInfo) -> list[ColumnInfo]:
    """The columns that are read from `after`: those that the key does not give, and one in any case."""
    return [column for column in table.columns if not column.key] or list(table.columns[:1])


def _texts(names: list[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def _positional(count: int) -> StructType:
    return _texts([f"c{at}" for at in range(count)])


def _value(text: Column, column: ColumnInfo, table: TableInfo) -> Column:
    kind = delta_type(column)
    if kind == "string":
        return array_text(column.base_oid)(text) if column.base_oid in ELEMENT_OF else text
    value = parsed(text, kind)
    unfit = _raise(UNFIT, table, column=column.name, type=column.type).cast(kind)
    return F.when(text.isNotNull() & value.isNull(), unfit).otherwise(value)


def _value_or_null(text: Column, column: ColumnInfo, table: TableInfo) -> Column:
    kind = delta_type(column)
    return _value(text, column, table) if kind == "string" else parsed(text, kind)


def _misfit(text: Column, column: ColumnInfo) -> Column:
    """The column's name where its text has no value of its type, else null."""
    kind = delta_type(column)
    if kind == "string":
        return F.lit(None).cast("string")
    return F.when(text.isNotNull() & parsed(text, kind).isNull(), F.lit(column.name))


def parsed(text: Column, kind: str) -> Column:
    """Null where the text is no value of the type."""
    if kind == "binary":
        return F.try_to_binary(text, F.lit("base64"))
    if kind in ("date", "timestamp", "timestamp_ntz"):
        # Spark would read '0044-03-15 BC' as the year 44 of our era.
        return F.when(~text.endswith("BC"), text.try_cast(kind))
    return text.try_cast(kind)


def array_text(oid: int) -> Callable[[Column], Column]:
    """A JSON array as Postgres prints it; it has no built-in expression."""
    decode = decoder(oid)

    def printed(value: str | None) -> str | None:
        # A literal that names its bounds is a JSON string, not an array, and so arrives as it is.
        if value is None or _BOUNDS.match(value):
            return value
        return decode(json.loads(value))

    return F.udf(printed, StringType(), useArrow=True)


def _required(value: Column, table: TableInfo) -> Column:
    return F.coalesce(value, _raise(MALFORMED, table).cast("string"))


def _raise(reason: str, table: TableInfo, **details: str) -> Column:
    body = {"reason": reason, "table": table.qualified, **details}
    text = base64.urlsafe_b64encode(json.dumps(body).encode()).decode()
    return F.raise_error(F.concat(F.lit(f"[afterimage:{text}:"), F.col("at"), F.lit("]")))


def before_truncate(truncates: dict[int, tuple[int, int]]) -> Column:
    """Whether a row is voided by its partition's truncate."""
    position = F.struct(F.col(LSN), F.col(ORDINAL))
    voided = [
        (F.col(PARTITION) == partition)
        & (position < F.struct(F.lit(lsn).cast("bigint"), F.lit(ordinal).cast("bigint")))
        for partition, (lsn, ordinal) in truncates.items()
    ]
    return reduce(Column.__or__, voided, F.lit(False))
