"""The first rows of a relation, brought up to date by those that changed instead of all.

In: an Evaluation, the stored rows, the changed rows in pairs. Out: the first rows now, or None where these do not tell.
Keeps true: a row that did not change and was not stored comes after every stored one; so what is first of the stored
and the changed rows is first of all, as long as nothing in it comes after the last stored row that did not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.refresh.alike import among_rows, row_values
from jobs.refresh.evaluation import Evaluation
from jobs.refresh.images import rows_there
from jobs.refresh.relations import ReadRelations
from jobs.refresh.stored import Stored
from jobs.upkeep.first_rows import FirstRows
from jobs.upkeep.tables import NEW, OLD
from sinks.delta.held import Held

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class First:
    """The view's rows as they are `stored` and now; so many changed rows were looked at."""

    stored: pa.Table
    rows: pa.Table
    schema: StructType
    changed: int


class FirstNow:
    """One refresh of one query; the relation is read as it is held `now`."""

    def __init__(
        self, evaluation: Evaluation, relations: ReadRelations, stored: Stored, first: FirstRows, now: Held
    ) -> None:
        self._evaluation = evaluation
        self._relations = relations
        self._stored = stored
        self._first = first
        self._now = now
        scan = first.scan
        self._relation = scan.relation
        sources = dict(zip(scan.columns, scan.sources, strict=True))
        self._columns = list(scan.sources)
        self._key = [sources[each] for each in scan.key]
        self._shown_key = [evaluation.column_of(each) for each in scan.key]

    def since(self, known: Held) -> First | None:
        """By the rows that changed since then, if they are at hand; TooMany where the stored rows are not few."""
        pairs = self._relations.pairs(self._relation, known)
        if pairs is None:
            return None
        was = self._stored.all_few()
        old, new = (rows_there(pairs.column(side)).select(self._columns) for side in (OLD, NEW))
        keys = [side.select(self._key) for side in (old, new)]
        shown = was.select(self._shown_key).rename_columns(self._key)
        left = among_rows(shown, pa.concat_tables([keys[0], keys[1].cast(keys[0].schema)]), is_in=False)
        rows = self._rows_of(left) if left.num_rows else new.slice(0, 0)
        if rows.num_rows != left.num_rows:
            return None
        candidates = pa.concat_tables([rows, new.cast(rows.schema)])
        frame = self._evaluation.of_rows(self._first.root, self._relation, candidates)
        found = frame.toArrow()
        if not self._tells_all(was.num_rows, set(row_values(left, self._key)), found, candidates):
            return None
        return First(was, found, frame.schema, pairs.num_rows)

    def _rows_of(self, keys: pa.Table) -> pa.Table:
        """The relation's rows that have these keys."""
        wanted = {name: keys.column(name) for name in self._key}
        found = self._relations.lookup(self._relation, self._now, wanted, self._columns)
        return among_rows(found, keys)

    def _tells_all(self, were: int, left: set[Any], found: pa.Table, candidates: pa.Table) -> bool:
        """Whether no other row can be among the first; `left` are the keys of stored rows that did not change."""
        count = self._first.count
        if were < count:
            return True  # there were no others
        keys = set(row_values(found, self._shown_key))
        if len(keys) < count:
            return False
        if keys == left or not left <= keys:
            return True  # of what is left, all come before any other row; and one comes after all that were found
        shorter = self._evaluation.of_rows(self._first.cut_at(count - 1), self._relation, candidates).toArrow()
        return keys - set(row_values(shorter, self._shown_key)) <= left
