"""A query's groups brought up to date by the changed rows alone: added to the stored results, and taken from them.

In: an Evaluation, the stored rows, the changed relations. Out: the touched groups' rows, as they are stored and as they
are now. Keeps true: a group that is UNSURE is computed from all its rows, as affected keys are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from jobs.plan.nodes import Attribute
from jobs.plan.tally import Tally
from jobs.refresh.alike import among_rows
from jobs.refresh.evaluation import Evaluation
from jobs.refresh.folding import PlainTally, folded, plain_tally, touched
from jobs.refresh.images import distinct_rows, struct_type
from jobs.refresh.lookup import TooMany
from jobs.refresh.stored import Stored
from jobs.upkeep.tallying import UNSURE
from sinks.arrow_frames import frame_of
from sinks.delta.held import Held
from sinks.delta.literals import quoted

GROUPS_MAX: Final = 100_000
"""More touched groups than this stay in Spark: they are folded one by one."""


class Unsure(Exception):  # noqa: N818  not an error: the rows are computed by their keys
    """Too many groups, or such that no keys name, have to be computed from their rows."""


@dataclass(frozen=True, slots=True)
class Few:
    """Rows with this schema."""

    groups: int
    stored: pa.Table
    rows: pa.Table
    schema: StructType


@dataclass(frozen=True, slots=True)
class Many:
    """The same in Spark."""

    groups: int
    stored: DataFrame
    rows: DataFrame


class Tallied:
    """One refresh of one query; its rows can be computed `by` these columns; `keep` holds a frame meanwhile."""

    def __init__(
        self,
        evaluation: Evaluation,
        stored: Stored,
        tally: Tally,
        by: Sequence[Attribute],
        keep: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._evaluation = evaluation
        self._stored = stored
        self._tally = tally
        self._by = by
        self._keep = keep
        self._groups = tally.aggregate.groups

    def rows(self, changed: Mapping[str, DataFrame], told: Mapping[str, Held]) -> Few | Many | None:
        """None where no group is touched."""
        try:
            plain = self._plain(told) if len(changed) == 1 else None
            if plain is not None:
                return self._in_process(*plain)
        except TooMany:
            pass
        signed, is_exact = self._evaluation.signed(changed, told)
        groups = self._shown_groups(changed, told)
        if groups is not None and groups.num_rows <= GROUPS_MAX:
            # Groups are all that is asked of these rows before they are folded; of them more may be read than needed.
            try:
                return self._few(signed, groups, is_exact=is_exact)
            except TooMany:
                pass
        few = signed.limit(2 * GROUPS_MAX + 1).toArrow()
        if few.num_rows == 0:
            return None
        if few.num_rows <= 2 * GROUPS_MAX:
            try:
                return self._few(frame_of(self._stored.spark, few, signed.schema), few, is_exact=is_exact)
            except TooMany:
                pass
        return self._many(signed, is_exact=is_exact)

    def _plain(self, told: Mapping[str, Held]) -> tuple[PlainTally, pa.Table] | None:
        """How plain columns are folded, and the rows that changed, if these are at hand."""
        plain = plain_tally(self._tally)
        pairs = self._evaluation.pairs(self._tally.aggregate, told) if plain is not None else None
        return (plain, touched(plain, pairs)) if plain is not None and pairs is not None else None

    def _in_process(self, plain: PlainTally, pairs: pa.Table) -> Few | None:
        if not pairs.num_rows:
            return None
        own = zip(self._groups, plain.groups, strict=True)
        groups = distinct_rows(pairs, {column.sql: source for column, source in own}) if self._groups else pa.table({})
        if groups.num_rows > GROUPS_MAX:
            raise TooMany
        stored = self._stored_of(groups)
        results = folded(plain, pairs, self._by_number(stored))
        types = self._stored.sink.types()
        kinds = {UNSURE: "boolean", **{column.sql: types[name] for column, name in self._aggregated()}}
        return self._settled(results, struct_type({name: kinds[name] for name in results.column_names}), stored)

    def _aggregated(self) -> list[tuple[Attribute, str]]:
        """What the aggregate's columns are called in the view's table."""
        own = frozenset(self._tally.aggregate.columns)
        pairs = zip(self._evaluation.stored_columns, self._stored.spec.stored, strict=True)
        return [(column, name) for column, name in pairs if column in own]

    def _by_number(self, stored: pa.Table) -> pa.Table:
        pairs = self._aggregated()
        return stored.select([name for _, name in pairs]).rename_columns([column.sql for column, _ in pairs])

    def _stored_of(self, few: pa.Table) -> pa.Table:
        """The stored rows of these groups."""
        stored = self._stored.with_keys(self._named(few, self._groups)) if self._groups else self._stored.all_few()
        if not self._groups and stored.num_rows != 1:
            raise Unsure
        return stored

    def _settled(self, results: pa.Table, schema: StructType, stored: pa.Table) -> Few:
        """What the results are for the view's rows; unsure groups are computed from theirs."""
        rows, shown = self._shown(results, schema)
        unsure = results.filter(results.column(UNSURE))
        if unsure.num_rows:
            stored, rows = self._computed(unsure, stored, rows, schema)
        return Few(results.num_rows, stored, rows, shown)

    def _shown_groups(self, changed: Mapping[str, DataFrame], told: Mapping[str, Held]) -> pa.Table | None:
        """At least those that are touched, if the changed rows show them."""
        if not self._groups:
            return pa.table({})
        shown = self._evaluation.shown(self._tally.aggregate, self._groups, {name: told[name] for name in changed})
        return shown[0] if shown is not None else None

    def _few(self, signed: DataFrame, few: pa.Table, *, is_exact: bool) -> Few:
        stored = self._stored_of(few)
        frame = self._evaluation.folded(signed, self._stored.frame(stored), is_exact=is_exact, few=True)
        return self._settled(frame.toArrow(), frame.schema, stored)

    def _shown(self, results: pa.Table, schema: StructType) -> tuple[pa.Table, StructType]:
        """The view's rows of the groups that are there, and sure."""
        plain = self._evaluation.plain_results()
        if plain is None:
            found = self._evaluation.rows_of_results(frame_of(self._stored.spark, results, schema))
            return found.toArrow(), found.schema
        is_kept = pc.invert(results.column(UNSURE))
        if self._groups:
            is_kept = pc.and_(is_kept, pc.greater(results.column(self._tally.rows.sql), pa.scalar(0)))
        names = self._stored.spec.stored
        rows = results.filter(is_kept).select(plain).rename_columns(list(names))
        fields = (schema[column] for column in plain)
        return rows, StructType([StructField(name, each.dataType) for name, each in zip(names, fields, strict=True)])

    def _computed(
        self, unsure: pa.Table, stored: pa.Table, rows: pa.Table, schema: StructType
    ) -> tuple[pa.Table, pa.Table]:
        """All rows of the keys that have an unsure group, in the place of what is there of them."""
        if not self._by or not set(self._by) <= set(self._groups):
            raise Unsure
        names = [column.sql for column in self._by]
        keys = _distinct(unsure.select(names))
        frame = frame_of(self._stored.spark, keys, StructType([schema[name] for name in names]))
        anew = self._evaluation.rows_of_few(self._by, frame, keys).toArrow()
        own = self._named(keys, self._by)
        kept = (among_rows(each, own, is_in=False) for each in (stored, rows))
        present = self._stored.with_keys(own)
        was, now = ((one, other.cast(one.schema)) for one, other in zip(kept, (present, anew), strict=True))
        return pa.concat_tables(was), pa.concat_tables(now)

    def _named(self, rows: pa.Table, columns: Sequence[Attribute]) -> pa.Table:
        """Distinct values of these columns, called as in the view's table."""
        found = _distinct(rows.select([column.sql for column in columns]))
        return found.rename_columns([self._evaluation.column_of(column) for column in columns])

    def _many(self, signed: DataFrame, *, is_exact: bool) -> Many:
        kept = self._keep(signed)
        if self._groups:
            stored = self._stored.meeting(kept, {self._evaluation.column_of(each): each.sql for each in self._groups})
        else:
            stored = self._stored.rows()
            if stored.count() != 1:
                raise Unsure
        stored = self._keep(stored.select(*map(quoted, self._stored.spec.stored)))
        folded = self._keep(self._evaluation.folded(kept, stored, is_exact=is_exact, few=False))
        if not folded.where(F.col(UNSURE)).isEmpty():
            raise Unsure
        return Many(folded.count(), stored, self._evaluation.rows_of_results(folded))


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.group_by(rows.column_names).aggregate([])
