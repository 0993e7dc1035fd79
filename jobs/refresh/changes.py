"""What a batch changed in a query's rows: by the affected keys where that is told and pays, else computed in full.

In: a query's table, its relations now, and those that it was computed from. Out: the rows that differ. Keeps true: the
result is the same whichever way is taken; the ways differ in what they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from jobs.parts import gathered
from jobs.plan.nodes import Attribute, Join
from jobs.plan.tally import Tally
from jobs.plan.walk import walk
from jobs.refresh.alike import among_rows
from jobs.refresh.data_files import ROWS_MAX
from jobs.refresh.difference import few_changes, not_unique, require_unique, require_unique_few
from jobs.refresh.evaluation import Evaluation
from jobs.refresh.first import FirstNow
from jobs.refresh.found import Finding, Found
from jobs.refresh.lookup import TooMany
from jobs.refresh.outcome import How
from jobs.refresh.relations import ReadRelations, Untold
from jobs.refresh.stored import Stored
from jobs.refresh.tallied import Few, Many, Tallied, Unsure
from jobs.refresh.ways import is_unchanged
from jobs.refresh.worth import are_many, are_many_to_tally
from jobs.upkeep.choice import replaced_by
from jobs.upkeep.first_rows import FirstRows, first_rows
from jobs.upkeep.refresh import Refresh
from sinks.arrow_frames import frame_of
from sinks.delta.held import Held

KEYS_MAX: Final = ROWS_MAX
"""More affected keys than this stay in Spark."""
SHARE_MAX: Final = 0.2
"""From this share of its rows on, a view is computed in full; `max_affected` in its file says otherwise."""


class QueryChanges:
    """One refresh of one query; where nobody `follows` its table, nobody needs to know what differs."""

    def __init__(
        self,
        spark: SparkSession,
        stored: Stored,
        relations: ReadRelations,
        now: Mapping[str, Held],
        lsn: int,
        *,
        follows: bool,
    ) -> None:
        self._spark = spark
        self._stored = stored
        self._spec = stored.spec
        self._relations = relations
        self._now = now
        self._lsn = lsn
        self._follows = follows
        self._proved = stored.spec.plan.key_proof is not None
        self._finding = Finding(spark, stored.spec, relations, lsn)

    def since(self, known: Mapping[str, Held | None]) -> Found:
        """What differs from rows that were computed from these states."""
        if is_unchanged(known, self._now):
            return Found(None, 0, How.UNCHANGED)
        evaluation = Evaluation(self._spark, self._spec, self._relations, self._now)
        if self._spec.refresh == "full":
            return self._in_full(evaluation, "its file says so")
        try:
            return self._by_changes(evaluation, known)
        except Untold:
            return self._in_full(evaluation, "a former state of a table that it reads is not there")

    def _by_changes(self, evaluation: Evaluation, known: Mapping[str, Held | None]) -> Found:
        told = {name: held for name, held in known.items() if held is not None}
        if told.keys() != known.keys():
            raise Untold
        if self._spec.max_affected is None and any(map(self._are_many, told)):
            return self._anew(evaluation, "many rows changed")
        found = {name: self._relations.images(name, held) for name, held in told.items()}
        changed = {name: images for name, images in found.items() if images is not None}
        if not changed:
            return Found(None, 0, How.INCREMENTAL, keys=0)
        tally = self._spec.plan.tally
        # A row that a repair brought back may never have been missed here: it would count twice.
        is_told = tally is not None and all(self._relations.is_of_batch(name, held) for name, held in told.items())
        tallied = self._tallied(evaluation, tally, changed, told) if tally is not None and is_told else None
        first = first_rows(self._spec.plan)
        if first is not None:
            return self._of_first(evaluation, first, told[first.scan.relation])
        return tallied or self._by_keys(evaluation, changed, told)

    def _are_many(self, relation: str) -> bool:
        """Whether so much of it changed that all rows of the view cost no more."""
        count, share = self._relations.changed(relation)
        if self._spec.plan.tally is None:
            return are_many(count, share, self._stored.count())
        return are_many_to_tally(count, share, len(self._now))

    def _by_keys(self, evaluation: Evaluation, changed: Mapping[str, DataFrame], told: Mapping[str, Held]) -> Found:
        by = sorted(replaced_by(self._spec.plan), key=lambda column: column.id)
        shown = evaluation.shown(self._spec.plan.root, by, {name: told[name] for name in changed})
        if shown is not None and shown[0].num_rows <= min(KEYS_MAX, self._keys_max()):
            return self._of_keys(evaluation, by, *shown)
        refresh = evaluation.planned(changed, told)
        affected = evaluation.affected(refresh)
        if refresh.narrowed is None:
            if affected.isEmpty():
                return Found(None, 0, How.INCREMENTAL, keys=0)
            return self._in_full(evaluation, "no equality leads from a changed row to rows of the view")
        few = affected.limit(KEYS_MAX + 1).toArrow()
        if few.num_rows == 0:
            return Found(None, 0, How.INCREMENTAL, keys=0)
        if few.num_rows > KEYS_MAX:
            return self._of_many(evaluation, refresh, self._relations.kept(affected))
        if few.num_rows > self._keys_max():
            return self._in_full(evaluation, f"{few.num_rows} keys are affected")
        return self._of_keys(evaluation, by, few, affected.schema)

    def _of_keys(self, evaluation: Evaluation, by: Sequence[Attribute], few: pa.Table, schema: StructType) -> Found:
        """The rows that have these values, compared with those that had them."""
        keys = frame_of(self._spark, few, schema)
        rows = evaluation.rows_of_few(by, keys, few)
        try:
            return self._of_few(evaluation, by, few, rows)
        except TooMany:
            return self._finding.compared(self._stored_of(evaluation, by, keys), rows, How.INCREMENTAL, few.num_rows)

    def _tallied(
        self, evaluation: Evaluation, tally: Tally, changed: Mapping[str, DataFrame], told: Mapping[str, Held]
    ) -> Found | None:
        """By the changed rows alone; None where that does not do."""
        by = sorted(replaced_by(self._spec.plan), key=lambda column: column.id)
        try:
            found = Tallied(evaluation, self._stored, tally, by, self._relations.kept).rows(changed, told)
            match found:
                case None:
                    return Found(None, 0, How.TALLIED, keys=0)
                case Few():
                    changes = few_changes(self._spec, found.stored, found.rows, self._lsn)
                    return self._finding.few(changes, found.schema, How.TALLIED, found.groups)
                case Many():
                    return self._finding.compared(found.stored, found.rows, How.TALLIED, found.groups)
        except (PySparkException, TooMany, Unsure, Untold):
            # What fails over signed rows, an overflow half-way for instance, need not fail over all rows.
            return None

    def _of_first(self, evaluation: Evaluation, first: FirstRows, known: Held) -> Found:
        """By the rows that are stored and those that changed; one that falls behind makes room for any other."""
        relation = first.scan.relation
        try:
            found = FirstNow(evaluation, self._relations, self._stored, first, self._now[relation]).since(known)
        except (PySparkException, TooMany):
            found = None
        if found is None:
            return self._in_full(evaluation, "a row fell behind, or many changed")
        changes = few_changes(self._spec, found.stored, found.rows, self._lsn)
        return self._finding.few(changes, found.schema, How.INCREMENTAL, found.changed)

    def _keys_max(self) -> float:
        share = self._spec.max_affected if self._spec.max_affected is not None else SHARE_MAX
        # Of a view with a handful of rows, one is a large share, and yet little.
        return max(1.0, share * self._stored.count())

    def _of_few(self, evaluation: Evaluation, by: Sequence[Attribute], few: pa.Table, rows: DataFrame) -> Found:
        new = self._few(rows)
        stored = self._stored.with_keys(few.rename_columns([evaluation.column_of(each) for each in by]))
        if not self._proved:
            self._require_nobody_elses(new, stored)
        return self._finding.few(
            few_changes(self._spec, stored, new, self._lsn), rows.schema, How.INCREMENTAL, few.num_rows
        )

    def _require_nobody_elses(self, new: pa.Table, stored: pa.Table) -> None:
        """A row outside the affected ones may have the declared key as well."""
        key = list(self._spec.key)
        there = self._stored.with_keys(new.select(key)) if new.num_rows else stored
        if among_rows(there, stored.select(key), is_in=False).num_rows:
            raise not_unique(self._spec)

    def _of_many(self, evaluation: Evaluation, refresh: Refresh, affected: DataFrame) -> Found:
        count = affected.count()
        if count > self._keys_max():
            return self._anew(evaluation, f"{count} keys are affected")
        rows = evaluation.rows_of(refresh, affected)
        return self._finding.compared(self._stored_of(evaluation, refresh.by, affected), rows, How.INCREMENTAL, count)

    def _stored_of(self, evaluation: Evaluation, by: Iterable[Attribute], keys: DataFrame) -> DataFrame:
        return self._stored.meeting(keys, {evaluation.column_of(each): each.sql for each in by})

    def _anew(self, evaluation: Evaluation, why: str) -> Found:
        """In full where most files of the table change anyway: to compare would cost more than to write all of it."""
        if self._follows or self._stored.is_small():
            return self._in_full(evaluation, why)
        rows = self._all_rows(evaluation)
        if self._stored.count() <= self._stored.rows_max():
            try:
                return Found(None, 0, How.FULL, why, whole=self._held(rows))
            except TooMany:
                pass
        if not self._proved:
            rows = self._relations.kept(rows)
            require_unique(self._spec, rows)
        return Found(None, 0, How.FULL, why, whole=gathered(self._spark, rows, self._stored.count()))

    def _all_rows(self, evaluation: Evaluation) -> DataFrame:
        """Groups of one relation are those that were there, and one at most for each changed row."""
        tally = self._spec.plan.tally
        if tally is None or any(isinstance(node, Join) for node in walk(tally.aggregate)):
            return evaluation.all_rows()
        [relation] = self._now
        if self._relations.moved(relation) is None:
            return evaluation.all_rows()
        return evaluation.all_rows(groups=self._stored.count() + self._relations.changed(relation)[0])

    def _held(self, rows: DataFrame) -> DataFrame:
        """The rows, which are few, in this process."""
        few = self._few(rows)
        if not self._proved:
            require_unique_few(self._spec, few)
        return frame_of(self._spark, few, rows.schema)

    def _in_full(self, evaluation: Evaluation, why: str) -> Found:
        rows = self._all_rows(evaluation)
        if self._stored.is_small():
            try:
                changes = few_changes(self._spec, self._stored.all_few(), self._few(rows), self._lsn)
                return self._finding.few(changes, rows.schema, How.FULL, None, why)
            except TooMany:
                pass
        return self._finding.compared(self._stored.rows(), rows, How.FULL, None, why)

    def _few(self, rows: DataFrame) -> pa.Table:
        most = self._stored.rows_max()
        found = rows.limit(most + 1).toArrow()
        if found.num_rows > most:
            raise TooMany
        return found
