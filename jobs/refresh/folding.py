"""Plain groups of one relation brought up to date in this process, where a Spark job takes a third of a second.

In: a Tally whose groups and values are columns as they are, the changed rows in pairs, the stored rows of their groups.
Out: what `folded_sql` answers, or TooMany where types leave that to Spark, and where a result is none that its type can
hold: Spark says so. Keeps true: numbers of any size are added exactly.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from jobs.plan.nodes import Plan, Project, Scan
from jobs.plan.tally import Fold, Tally, fold_of
from jobs.refresh.alike import comparable, sides_differ
from jobs.refresh.images import rows_there
from jobs.refresh.lookup import TooMany
from jobs.refresh.totals import EXACT, Key, Row, totals
from jobs.upkeep.shown import shown_by
from jobs.upkeep.tables import NEW, OLD
from jobs.upkeep.tallying import UNSURE

_PLAIN: Final = re.compile(r"(?:count|sum|min|max)\((?:1|\*|c\d+)\)")


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


@dataclass(frozen=True, slots=True)
class _Places:
    """Where among a group's results those of each kind stand: looked up once, and not for each row."""

    folds: tuple[Fold | None, ...]
    """Of each result, how it is kept."""
    counts: tuple[int, ...]
    sums: tuple[int, ...]
    extremes: tuple[tuple[int, Fold], ...]
    rows: int
    filled: tuple[tuple[int, int], ...]
    """Of each sum, where it is and where the values that it adds are counted."""
    kept: tuple[int, ...]
    """Counts that a row without them, put right by another hand, lacks."""

    @classmethod
    def of(cls, tally: Tally) -> _Places:
        """Those of a tally, all of whose results can be folded."""
        columns = [column for column, _ in tally.aggregate.calls]
        folds = tuple(fold_of(expr) for _, expr in tally.aggregate.calls)
        counts = tuple(at for at, fold in enumerate(folds) if fold is Fold.COUNT)
        needed = {tally.rows, *tally.filled.values()}
        return cls(
            folds,
            counts,
            tuple(at for at, fold in enumerate(folds) if fold is Fold.SUM),
            tuple((at, fold) for at, fold in enumerate(folds) if fold in (Fold.LEAST, Fold.GREATEST)),
            columns.index(tally.rows),
            tuple((columns.index(total), columns.index(count)) for total, count in tally.filled.items()),
            tuple(
                at for at, column in enumerate(columns) if column in needed or (at in counts and column in tally.hidden)
            ),
        )


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
    places = _Places.of(plain.tally)
    groups: dict[Key, _Group] = {}
    for key, row in _keyed(stored, [each.sql for each in aggregate.groups], [each.sql for each, _ in aggregate.calls]):
        groups[key] = _begun(places, row)
    with decimal.localcontext(EXACT):
        for sign, rows in zip((-1, 1), sides, strict=True):
            for key, row in totals(rows, plain.groups, plain.values, places.folds):
                group = groups.get(key)
                if group is None:
                    group = groups[key] = _Group([None] * len(row))
                _add(group, places, row, sign)
        try:
            return _answer(plain.tally, places, groups, stored.schema)
        except (pa.ArrowInvalid, OverflowError) as error:
            raise TooMany from error


def touched(plain: PlainTally, pairs: pa.Table) -> pa.Table:
    """The pairs that differ in what the query reads."""
    own = [name for name in plain.read if name in plain.groups or name in plain.values]
    return pairs.filter(sides_differ(pairs.column(OLD), pairs.column(NEW), own))


def _own(plain: PlainTally) -> list[str]:
    return list(dict.fromkeys((*plain.groups, *(name for name in plain.values if name is not None))))


def _require_plain(schema: pa.Schema) -> None:
    """Of these types equal values print alike, and order is Spark's."""
    tests = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string)
    others = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean)
    if not all(any(test(kind) for test in (*tests, *others)) for kind in schema.types):
        raise TooMany


def _keyed(rows: pa.Table, keys: Sequence[str], values: Sequence[str]) -> Iterator[tuple[Key, Row]]:
    known = {name: comparable(rows.column(name)) for name in {*keys, *values}}
    left: Iterable[Key] = zip(*(known[name] for name in keys), strict=True) if keys else ((),) * rows.num_rows
    return zip(left, zip(*(known[name] for name in values), strict=True), strict=True)


def _begun(places: _Places, row: Row) -> _Group:
    extremes = {at: _Extremes(was=row[at]) for at, _ in places.extremes}
    return _Group(list(row), None in [row[at] for at in places.kept], extremes)


def _add(group: _Group, places: _Places, row: Row, sign: int) -> None:
    """What some of its rows make: `row` has the results over these alone."""
    results = group.results
    for at in (*places.counts, *places.sums):
        if (value := row[at]) is not None:
            results[at] = (results[at] or 0) + (value if sign > 0 else -value)
    for at, fold in places.extremes:
        if (value := row[at]) is not None:
            known = group.extremes.setdefault(at, _Extremes())
            if sign < 0:
                known.gone = _best(fold, known.gone, value)
            else:
                known.come = _best(fold, known.come, value)


def _best(fold: Fold | None, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other) if fold is Fold.LEAST else max(one, other)


def _answer(tally: Tally, places: _Places, groups: Mapping[Key, _Group], schema: pa.Schema) -> pa.Table:
    calls = [column for column, _ in tally.aggregate.calls]
    results, unsure = [], []
    for group in groups.values():
        row, is_sure = _results(places, group)
        results.append(row)
        unsure.append(not is_sure)
    columns: dict[str, Any] = {}
    for at, group_column in enumerate(tally.aggregate.groups):
        columns[group_column.sql] = _array([key[at] for key in groups], schema.field(group_column.sql).type)
    for at, call in enumerate(calls):
        columns[call.sql] = _array([row[at] for row in results], schema.field(call.sql).type)
    return pa.table({**columns, UNSURE: pa.array(unsure, pa.bool_())})


def _results(places: _Places, group: _Group) -> tuple[Row, bool]:
    """One group's results, and whether they are sure."""
    found = list(group.results)
    for at in places.counts:
        found[at] = found[at] or 0
    rows = found[places.rows]
    is_sure = not group.is_unknown and rows >= 0
    for total, count in places.filled:
        adds = found[count]
        is_sure = is_sure and 0 <= adds <= rows and (found[total] is not None if adds > 0 else not found[total])
        found[total] = found[total] if adds > 0 else None
    for at, fold in places.extremes:
        if (known := group.extremes.get(at)) is not None:
            found[at], is_told = _extreme(fold, known)
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
