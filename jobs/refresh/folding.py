"""Plain groups of one relation brought up to date in this process, where a Spark job takes a third of a second.

In: a Tally whose groups and values are columns as they are, the changed rows in pairs, the stored rows of their groups.
Out: what `folded_sql` answers, or TooMany where types leave that to Spark, and where a result is none that its type can
hold: Spark says so. Keeps true: numbers of any size are added exactly.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from jobs.plan.nodes import Attribute, Plan, Project, Scan
from jobs.plan.tally import Fold, Tally, fold_of
from jobs.refresh.images import rows_there
from jobs.refresh.lookup import TooMany, comparable
from jobs.upkeep.shown import shown_by
from jobs.upkeep.tables import NEW, OLD
from jobs.upkeep.tallying import UNSURE

_PLAIN: Final = re.compile(r"(?:count|sum|min|max)\((?:1|\*|c\d+)\)")
_EXACT: Final = decimal.Context(prec=100, Emin=-200, Emax=200)
Key = tuple[Hashable, ...]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PlainTally:
    """`groups` are the relation's columns; so is what each result is over, None for the rows themselves."""

    tally: Tally
    groups: tuple[str, ...]
    values: tuple[str | None, ...]
    read: tuple[str, ...]
    """All that the query reads: a row that is alike in these has not changed."""


def plain_tally(tally: Tally) -> PlainTally | None:
    """The tally as one of plain columns, if it is."""
    scan = _scan(tally.aggregate.input)
    if scan is None or not all(_PLAIN.fullmatch(expr.sql) for _, expr in tally.aggregate.calls):
        return None
    over = [next(iter(expr.reads), None) for _, expr in tally.aggregate.calls]
    wanted = {*tally.aggregate.groups, *(column for column in over if column is not None)}
    sources = shown_by(tally.aggregate.input, wanted, scan.relation) if wanted else {}
    if sources is None:
        return None
    groups = tuple(sources[column] for column in tally.aggregate.groups)
    return PlainTally(tally, groups, tuple(sources[each] if each is not None else None for each in over), scan.sources)


def _scan(node: Plan) -> Scan | None:
    while isinstance(node, Project):
        node = node.input
    return node if isinstance(node, Scan) else None


@dataclass(slots=True)
class _Extremes:
    """Of one result of one group: what is stored, and the best of what went and of what came."""

    was: Any = None
    gone: Any = None
    come: Any = None


@dataclass(slots=True)
class _Group:
    """One group's results so far."""

    results: list[Any]
    is_unknown: bool = False
    extremes: dict[int, _Extremes] = field(default_factory=dict)


def folded(plain: PlainTally, pairs: pa.Table, stored: pa.Table) -> pa.Table:
    """The touched groups' results; `stored` has the columns of the aggregate, by their numbers."""
    aggregate = plain.tally.aggregate
    sides = [rows_there(pairs.column(side)) for side in (OLD, NEW)]
    for rows in (stored, *(side.select(_own(plain)) for side in sides)):
        _require_plain(rows.schema)
    folds = [fold_of(expr) for _, expr in aggregate.calls]
    groups: dict[Key, _Group] = {}
    for key, row in _keyed(stored, [each.sql for each in aggregate.groups], [each.sql for each, _ in aggregate.calls]):
        groups[key] = _begun(plain.tally, folds, row)
    with decimal.localcontext(_EXACT):
        for sign, rows in zip((-1, 1), sides, strict=True):
            for key, row in _keyed(rows, plain.groups, plain.values):
                _add(groups.setdefault(key, _Group([None] * len(folds))), folds, row, sign)
        try:
            return _answer(plain.tally, folds, groups, stored.schema)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise TooMany from error


def touched(plain: PlainTally, pairs: pa.Table) -> pa.Table:
    """The pairs that differ in what the query reads."""
    own = [name for name in plain.read if name in plain.groups or name in plain.values]
    sides = [_rows(pairs.column(side), own) for side in (OLD, NEW)]
    differ = [old != new for old, new in zip(*sides, strict=True)]
    return pairs.filter(pa.array(differ, pa.bool_()))


def _rows(structs: Any, names: Sequence[str]) -> list[Row | None]:
    """What each struct has in these columns; None where it is null."""
    import pyarrow.compute as pc

    columns = [comparable(pc.struct_field(structs, [structs.type.get_field_index(name)])) for name in names]
    there = structs.is_valid().to_pylist()
    rows: Iterable[Row] = zip(*columns, strict=True) if columns else ((),) * len(there)
    return [row if is_there else None for row, is_there in zip(rows, there, strict=True)]


def _own(plain: PlainTally) -> list[str]:
    return list(dict.fromkeys((*plain.groups, *(name for name in plain.values if name is not None))))


def _require_plain(schema: pa.Schema) -> None:
    """Of these types equal values print alike, and order is Spark's."""
    tests = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string)
    others = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean)
    if not all(any(test(kind) for test in (*tests, *others)) for kind in schema.types):
        raise TooMany


def _keyed(rows: pa.Table, keys: Sequence[str], values: Sequence[str | None]) -> Iterator[tuple[Key, Row]]:
    known: dict[str, list[Any]] = {name: comparable(rows.column(name)) for name in {*keys, *values} if name is not None}
    # What counts rows counts them all.
    ones = [1] * rows.num_rows
    left: Iterable[Key] = zip(*(known[name] for name in keys), strict=True) if keys else ((),) * rows.num_rows
    right = zip(*(ones if name is None else known[name] for name in values), strict=True)
    return zip(left, right, strict=True)


def _begun(tally: Tally, folds: Sequence[Fold | None], row: Row) -> _Group:
    found = _Group(list(row))
    for at, (column, _) in enumerate(tally.aggregate.calls):
        is_count = column in (tally.rows, *tally.filled.values()) or (
            folds[at] is Fold.COUNT and column in tally.hidden
        )
        # A row without its counts was put right by another hand.
        found.is_unknown = found.is_unknown or (is_count and row[at] is None)
        if folds[at] in (Fold.LEAST, Fold.GREATEST):
            found.extremes[at] = _Extremes(was=row[at])
    return found


def _add(group: _Group, folds: Sequence[Fold | None], row: Row, sign: int) -> None:
    for at, value in enumerate(row):
        if value is None:
            continue
        match folds[at]:
            case Fold.COUNT:
                group.results[at] = (group.results[at] or 0) + sign
            case Fold.SUM:
                group.results[at] = (group.results[at] or 0) + sign * value
            case fold:
                known = group.extremes.setdefault(at, _Extremes())
                if sign < 0:
                    known.gone = _best(fold, known.gone, value)
                else:
                    known.come = _best(fold, known.come, value)


def _best(fold: Fold | None, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if fold is Fold.LEAST else max(one, other)


def _answer(tally: Tally, folds: Sequence[Fold | None], groups: Mapping[Key, _Group], schema: pa.Schema) -> pa.Table:
    calls = [column for column, _ in tally.aggregate.calls]
    place = {column: at for at, column in enumerate(calls)}
    results, unsure = [], []
    for group in groups.values():
        row, is_sure = _results(tally, folds, group, place)
        results.append(row)
        unsure.append(not is_sure)
    columns: dict[str, Any] = {}
    for at, group_column in enumerate(tally.aggregate.groups):
        columns[group_column.sql] = _array([key[at] for key in groups], schema.field(group_column.sql).type)
    for at, call in enumerate(calls):
        columns[call.sql] = _array([row[at] for row in results], schema.field(call.sql).type)
    return pa.table({**columns, UNSURE: pa.array(unsure, pa.bool_())})


def _results(
    tally: Tally, folds: Sequence[Fold | None], group: _Group, place: Mapping[Attribute, int]
) -> tuple[Row, bool]:
    """One group's results, and whether they are sure."""
    found = list(group.results)
    counts = [at for at, fold in enumerate(folds) if fold is Fold.COUNT]
    for at in counts:
        found[at] = found[at] or 0
    rows = found[place[tally.rows]]
    is_sure = not group.is_unknown and rows >= 0
    is_sure = is_sure and all(0 <= found[place[count]] <= rows for count in tally.filled.values())
    for total, count in tally.filled.items():
        at, adds = place[total], found[place[count]]
        is_sure = is_sure and (found[at] is not None if adds > 0 else not found[at])
        found[at] = found[at] if adds > 0 else None
    for at, known in group.extremes.items():
        found[at], is_told = _extreme(folds[at], known)
        is_sure = is_sure and (is_told or rows == 0)
        found[at] = found[at] if rows > 0 else None
    return tuple(found), is_sure


def _extreme(fold: Fold | None, known: _Extremes) -> tuple[Any, bool]:
    """The best that is there now, and whether that can be told."""
    is_come = known.come is not None and (known.was is None or _best(fold, known.come, known.was) == known.come)
    if is_come:
        return known.come, True
    stays = known.gone is None or (
        known.was is not None and known.was != known.gone and _best(fold, known.was, known.gone) == known.was
    )
    return known.was, stays


def _array(values: list[Any], kind: pa.DataType) -> Any:
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    return pa.array(values, kind)
