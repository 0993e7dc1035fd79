"""A view's changes from its table's changes: the view's SELECT, row by row.

In: a frame with the table's columns, OP, LSN, AT. Out: the view's columns, OP, LSN, AT: rows that pass are upserts, and
deletes as well as rows that the filter leaves out are deletes of their key. Keeps true: one row per key goes in and one
comes out; no expression of the view is evaluated for a deleted row.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from sqlglot.tokenizer_core import Token, TokenType

from sinks.arrow_frames import with_columns
from sinks.delta.literals import quoted
from sinks.protocol import AT, DELETE, LSN, OP, UPSERT
from sinks.spec import Kind, ViewSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE: Final = "changes"

# The name `changes` belongs to the whole session; a SELECT is bound to its frame as soon as it is parsed.
_naming = threading.Lock()


def view_changes(changes: DataFrame, spec: ViewSpec) -> DataFrame:
    """What the changes do to the view."""
    if spec.kind is Kind.MIRROR:
        return with_columns(changes, (*spec.columns, OP, LSN, AT))
    spark = changes.sparkSession
    with _naming:
        changes.createOrReplaceTempView(SOURCE)
        kept, gone = (spark.sql(sql) for sql in (kept_sql(spec.spark_sql), gone_sql(spec)))
    order = (*spec.columns, OP, LSN, AT)
    return kept.unionByName(gone, allowMissingColumns=True).select(*map(quoted, order))


def kept_sql(spark_sql: str) -> str:
    """The view's SELECT over the upserts, with their control columns."""
    items, condition = split_select(spark_sql)
    upsert = f"{OP} = '{UPSERT}'"
    where = upsert if condition is None else f"CASE WHEN {upsert} THEN ({condition}) ELSE FALSE END"
    return f"SELECT {items}, {OP}, {LSN}, {AT} FROM {SOURCE} WHERE {where}"  # noqa: S608 - our own SQL


def gone_sql(spec: ViewSpec) -> str:
    """The keys of the rows that the view does not have, or no longer."""
    _, condition = split_select(spec.spark_sql)
    pairs = zip(spec.key_source, spec.key, strict=True)
    key = ", ".join(f"{quoted(source)} AS {quoted(name)}" for source, name in pairs)
    deleted = f"{OP} = '{DELETE}'"
    where = deleted if condition is None else f"CASE WHEN {deleted} THEN TRUE ELSE ({condition}) IS NOT TRUE END"
    return f"SELECT {key}, '{DELETE}' AS {OP}, {LSN}, {AT} FROM {SOURCE} WHERE {where}"  # noqa: S608 - our own SQL


def split_select(spark_sql: str) -> tuple[str, str | None]:
    """The select list and the condition of `SELECT .. FROM changes [WHERE ..]`, to the letter."""
    top = _top_level(spark_sql)
    select, start = (next(token for token in top if token.token_type is kind) for kind in (_SELECT, _FROM))
    where = next((token for token in top if token.token_type is _WHERE and token.start > start.start), None)
    items = spark_sql[select.end + 1 : start.start].strip()
    return items, None if where is None else spark_sql[where.end + 1 :].strip()


_SELECT, _FROM, _WHERE = TokenType.SELECT, TokenType.FROM, TokenType.WHERE


def _top_level(spark_sql: str) -> list[Token]:
    """The tokens outside all parentheses; `EXTRACT(.. FROM ..)` and subqueries are inside."""
    from sqlglot.dialects import Spark

    depth, found = 0, []
    for token in Spark().tokenize(spark_sql):
        if token.token_type is TokenType.L_PAREN:
            depth += 1
        elif token.token_type is TokenType.R_PAREN:
            depth -= 1
        elif depth == 0:
            found.append(token)
    return found
