"""A Delta table's log and rows, read without Spark.

In: a path. Out: its version, our newest stamp, its columns and its rows. Keeps true: a table that is not there is None,
a log that cannot be read is an error, and the two are never taken for each other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import TransientError
from sinks.delta.opened import answer_at, newest
from sinks.delta.stamp import Stamp
from sinks.delta.vectors import dead_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

RECENT_COMMITS: Final = 10
_SPARK_NAMES: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_MICROS: Final = 1_000_000
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as its log describes it; `stamp` and `turn` are our newest commit's, `types` are Spark's names."""

    version: int
    turn: int
    stamp: Stamp | None
    types: Mapping[str, str]
    features: frozenset[str]


def table_state(path: str, storage_options: Mapping[str, str], app_id: str) -> TableState | None:
    """The table's state now, as far as this application's commits go; None when there is no table."""
    from deltalake.exceptions import TableNotFoundError

    with translated(path):
        try:
            with newest(path, storage_options) as (table, known):
                if app_id not in known:
                    known[app_id] = _state(table, app_id)
                found: TableState = known[app_id]
                return found
        except TableNotFoundError:
            return None


def _state(table: DeltaTable, app_id: str) -> TableState:
    types = {field.name: _spark_type(field.type) for field in table.schema().fields}
    features = frozenset(table.protocol().writer_features or ())
    turn = table.transaction_version(app_id) or 0
    return TableState(table.version(), turn, _newest_stamp(table), types, features)


def rows_written(path: str, storage_options: Mapping[str, str]) -> int:
    """How many rows the newest commit wrote."""
    with translated(path):
        commit = _open(path, storage_options).history(1)[0]
        return int(commit.get("operationMetrics", {}).get("numOutputRows", 0))


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a version holds."""

    rows: int
    bytes: int
    files: int


def table_size(path: str, storage_options: Mapping[str, str], version: int) -> TableSize:
    """A version's rows and bytes, as its log says."""
    with translated(path):
        return answer_at(path, storage_options, version, size_of)


def size_of(table: DeltaTable) -> TableSize:
    """The same of an open table."""
    import pyarrow as pa

    actions = pa.table(table.get_add_actions(flatten=True))
    counts = actions.column("num_records").to_pylist() if "num_records" in actions.column_names else []
    dead = sum(map(len, dead_rows(table).values()))
    return TableSize(sum(count or 0 for count in counts) - dead, bytes_of(table), actions.num_rows)


def bytes_of(table: DeltaTable) -> int:
    """What the files of an open table take."""
    import pyarrow as pa

    return sum(size or 0 for size in pa.table(table.get_add_actions()).column("size_bytes").to_pylist())


def table_rows(path: str, storage_options: Mapping[str, str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Every row as native values, batch by batch."""
    quoted = ", ".join(map(_quoted, columns))
    return selected_rows(path, storage_options, f"SELECT {quoted} FROM rows")  # noqa: S608


def selected_rows(path: str, storage_options: Mapping[str, str], sql: str) -> Iterator[tuple[Any, ...]]:
    """What a SELECT over the table, which is called `rows` in it, gives as native values, batch by batch."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    with translated(path):
        reader = QueryBuilder().register("rows", _open(path, storage_options)).execute(sql)
        for batch in reader:
            arrays = pa.record_batch(batch).columns
            yield from zip(*(native_values(array) for array in arrays), strict=True)


def rows_of(
    path: str, storage_options: Mapping[str, str], columns: Sequence[str], keys: pa.Table, source: str = "rows"
) -> Iterator[tuple[Any, ...]]:
    """The rows whose first key column is one of `keys`, as native values; `source` may be a SELECT over `rows`."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import QueryBuilder

    name, wanted = keys.column_names[0], keys.column(0)
    if not keys.num_rows:
        return
    comparable = pa.types.is_integer(wanted.type) or pa.types.is_string(wanted.type)
    with translated(path):
        table = _open(path, storage_options)
        quoted = ", ".join(_quoted(column) for column in columns)
        between = ""
        if comparable:
            low, high = (_literal(bound.as_py()) for bound in pc.min_max(wanted).values())
            between = f" WHERE {_quoted(name)} BETWEEN {low} AND {high}"
        reader = QueryBuilder().register("rows", table).execute(f"SELECT {quoted} FROM {source}{between}")  # noqa: S608
        for batch in reader:
            arrays = [_filterable(array) for array in pa.record_batch(batch).columns]
            if comparable:
                is_wanted = pc.is_in(arrays[columns.index(name)].cast(wanted.type), wanted)
                arrays = [array.filter(is_wanted) for array in arrays]
            yield from zip(*(native_values(array) for array in arrays), strict=True)


def _filterable(array: Any) -> Any:
    """Arrow filters no views."""
    import pyarrow as pa

    if pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    return array.cast(pa.binary()) if pa.types.is_binary_view(array.type) else array


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def native_values(array: Any) -> list[Any]:
    """An Arrow column as Python values; a date or time that Python has no year for becomes Postgres's text."""
    import pyarrow as pa

    if not pa.types.is_temporal(array.type):
        values: list[Any] = array.to_pylist()
        return values
    try:
        return [_utc(value) for value in array.to_pylist()]
    except (OverflowError, ValueError):
        return [_temporal(scalar, array.type) for scalar in array]


def _utc(value: Any) -> Any:
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is not None else value


def _temporal(scalar: Any, kind: Any) -> Any:
    import pyarrow as pa

    try:
        return _utc(scalar.as_py())
    except (OverflowError, ValueError):
        pass
    if pa.types.is_date(kind):
        return _civil(scalar.value)
    seconds, micros = divmod(scalar.cast(pa.timestamp("us", kind.tz)).value, _MICROS)
    days, second = divmod(seconds, _DAY_S)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{_civil(days)} {clock}{fraction}{'+00' if kind.tz else ''}"


def _civil(days: int) -> str:
    """A day count as Postgres prints it: the calendar repeats every 400 years, which have 146,097 days."""
    eras, day = divmod(days, 146_097)
    date = dt.date(1970, 1, 1) + dt.timedelta(day)
    return f"{date.year + 400 * eras:04}-{date.month:02}-{date.day:02}"


def _newest_stamp(table: DeltaTable) -> Stamp | None:
    # Others' commits (OPTIMIZE, for instance) may lie above ours; they do not move the view.
    for limit in (RECENT_COMMITS, None):
        for commit in table.history(limit):
            stamp = Stamp.from_json(commit.get("userMetadata"))
            if stamp is not None:
                return stamp
    return None


def _spark_type(kind: Any) -> str:
    name = str(getattr(kind, "type", kind))
    return _SPARK_NAMES.get(name, name)


def _open(path: str, storage_options: Mapping[str, str]) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(path, storage_options=dict(storage_options) or None)


@contextmanager
def translated(path: str) -> Iterator[None]:
    """delta-rs's errors as ours."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise TransientError(
            f"the Delta table at {path} cannot be read: {str(error).splitlines()[0]}",
            "check that the folder is whole and may be read; if files are missing, rebuild the view",
            code="DELTA_UNAVAILABLE",
        ) from error
