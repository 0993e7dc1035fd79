"""What the results of plain groups are over some rows alone: counted, added, and the least and greatest found.

In: rows, the columns that group them, and for each result what it is over and how it folds. Out: one tuple for each
group. Keeps true: numbers are added exactly, or TooMany says that they may not be; values are as `comparable` has them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from jobs.plan.tally import Fold
from jobs.refresh.alike import as_printed
from jobs.refresh.lookup import TooMany

if TYPE_CHECKING:
    import polars as pl

EXACT: Final = Context(prec=100, Emin=-200, Emax=200)
_ONES: Final = "ones"
_LARGEST: Final = 1 << 126
"""Sums are added in 128 bits."""

Key = tuple[Hashable, ...]
Row = tuple[Any, ...]


def totals(
    rows: pa.Table, groups: Sequence[str], values: Sequence[str | None], folds: Sequence[Fold | None]
) -> Iterator[tuple[Key, Row]]:
    """Each group with its results; what is over no column is over the rows themselves."""
    import polars as pl

    names = {name: str(at) for at, name in enumerate(dict.fromkeys((*groups, *(each for each in values if each))))}
    known = as_printed(rows.select([*names]).columns)
    # What counts rows counts them all.
    frame = pl.DataFrame([*known.get_columns(), pl.repeat(1, rows.num_rows, eager=True).alias(_ONES)])
    calls = [(names[name] if name is not None else _ONES, fold) for name, fold in zip(values, folds, strict=True)]
    for column in {each for each, fold in calls if fold is Fold.SUM}:
        _require_room(frame[column])
    results = [_result(*call).alias(f"result {at}") for at, call in enumerate(calls)]
    by = [names[name] for name in groups]
    found = frame.group_by(by).agg(results) if by else frame.select(results)
    scales = [_scale(frame[column]) if fold is Fold.SUM else None for column, fold in calls]
    for row in found.iter_rows() if rows.num_rows else ():
        yield row[: len(by)], tuple(map(_value, row[len(by) :], scales))


def _result(column: str, fold: Fold | None) -> pl.Expr:
    import polars as pl

    value = pl.col(column)
    match fold:
        case Fold.COUNT:
            return value.count().cast(pl.Int64)
        case Fold.SUM:
            return pl.when(value.count() > 0).then(_whole(value).sum())
        case Fold.LEAST:
            return value.min()
        case _:
            return value.max()


def _whole(value: Any) -> Any:
    """The digits of a number."""
    import polars as pl

    return value.to_physical().cast(pl.Int128)


def _require_room(column: pl.Series) -> None:
    most = _whole(column).abs().max()
    if most is not None and most * len(column) > _LARGEST:
        raise TooMany


def _scale(column: pl.Series) -> int | None:
    """None of a number that has no fraction."""
    import polars as pl

    return column.dtype.scale if isinstance(column.dtype, pl.Decimal) else None


def _value(value: Any, scale: int | None) -> Any:
    return Decimal(value).scaleb(-scale, EXACT) if scale is not None and value is not None else value
