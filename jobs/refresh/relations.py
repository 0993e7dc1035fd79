"""The Delta tables that queries read, during one batch: as they are, as they were, and what changed in between.

In: a note of each table that the batch moved, with the changes that moved it. Out: frames for jobs.upkeep.tables. Keeps
true: every frame is of the version that was asked for; changes that cannot be told are Untold, never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs.refresh.alike import alike
from jobs.refresh.data_files import ROWS_MAX
from jobs.refresh.images import distinct_rows, paired, rows_of_side, spark_schema, struct_type, values_in
from jobs.refresh.lookup import TooMany, rows_among, rows_with
from jobs.refresh.read import ReadRelation, needed, rows_at
from jobs.refresh.ways import Way, readable, way
from jobs.upkeep.tables import NEW, OLD
from sinks.arrow_frames import frame_of, rows_in
from sinks.delta import DeltaSink
from sinks.delta.held import Held
from sinks.delta.literals import quoted
from sinks.protocol import OP, UPSERT
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

CHANGES_MAX: Final = ROWS_MAX
"""More changed keys than this are looked up by Spark."""


class Untold(Exception):  # noqa: N818  not an error: the query is computed in full
    """What changed can't be told, since the former state is not there any more."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A table that the batch moved on from `before`; `changes` have its columns and OP, one row for each key.

    Where nothing changed they are None.
    """

    before: Held
    changes: DataFrame | None
    count: int


class ReadRelations:
    """Of one pipeline; `forget` ends a batch."""

    def __init__(self, spark: SparkSession, specs: Mapping[str, ViewSpec], sinks: Mapping[str, DeltaSink]) -> None:
        self._spark = spark
        self._relations: dict[str, ReadRelation] = {}
        self.include(specs.values(), specs, sinks)
        self._moved: dict[str, Moved] = {}
        self._images: dict[tuple[str, Held], DataFrame | None] = {}
        self._pairs: dict[tuple[str, Held], pa.Table] = {}
        self._rows: dict[tuple[str, int], DataFrame] = {}
        self._ends: list[Callable[[], object]] = []

    def __contains__(self, name: object) -> bool:
        return name in self._relations

    def include(
        self, readers: Iterable[ViewSpec], specs: Mapping[str, ViewSpec], sinks: Mapping[str, DeltaSink]
    ) -> None:
        """What these queries read is known, with all columns that they need; between two batches alone.

        Twins that are not loaded yet are included when those that read them join.
        """
        for name, columns in needed(each for each in readers if each.plan is not None).items():
            if name not in sinks:
                continue
            known = self._relations.get(name)
            wanted = columns | set(specs[name].key) | set(known.columns if known is not None else ())
            found = tuple(column for column in specs[name].columns if column in wanted)
            self._relations[name] = ReadRelation(specs[name], sinks[name], found)

    def held(self, name: str) -> Held:
        """The rows that the relation's table holds now."""
        return self._relations[name].sink.held()

    def note(self, name: str, moved: Moved) -> None:
        """The batch has written this."""
        self._moved[name] = moved

    def moved(self, name: str) -> Moved | None:
        """What the batch has written."""
        return self._moved.get(name)

    def at_end(self, free: Callable[[], object]) -> None:
        """What to free when the batch is over."""
        self._ends.append(free)

    def kept(self, frame: DataFrame) -> DataFrame:
        """A frame that is read several times, until the batch ends."""
        held = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.at_end(held.unpersist)
        return held

    def forget(self) -> None:
        """The batch is over."""
        ends, self._ends = self._ends, []
        self._moved.clear()
        self._images.clear()
        self._rows.clear()
        self._pairs.clear()
        for free in ends:
            free()

    def rows(self, name: str, held: Held) -> DataFrame:
        """All of the relation's rows, as they were held."""
        found = self._rows.get((name, held.version))
        if found is None:
            found = rows_at(self._spark, self._relations[name].sink.path, held)
            self._rows[name, held.version] = found
        return found

    def rows_for(self, spark: SparkSession, name: str, held: Held) -> DataFrame:
        """The same in another session."""
        return rows_at(spark, self._relations[name].sink.path, held)

    def count(self, name: str, held: Held) -> int:
        """How many they were."""
        return self._relations[name].sink.size(held.version).rows

    def frame(self, name: str, rows: pa.Table) -> DataFrame:
        """Rows of some of the relation's columns, for Spark."""
        types = self._relations[name].types
        schema = struct_type({column: types[column] for column in rows.column_names})
        return frame_of(self._spark, rows, schema)

    def pairs(self, name: str, since: Held) -> pa.Table | None:
        """The changed rows, before and after, if they are at hand."""
        return self._pairs.get((name, since))

    def image_values(self, name: str, since: Held, column: str) -> Any:
        """What the changed rows have or had in a column, if that is at hand."""
        pairs = self._pairs.get((name, since))
        return values_in(pairs, column) if pairs is not None else None

    def distinct(self, name: str, since: Held, columns: Mapping[str, str]) -> tuple[pa.Table, StructType] | None:
        """What the changed rows have or had in the columns, under the names that map to these, if that is at hand."""
        if (pairs := self._pairs.get((name, since))) is None:
            return None
        types = self._relations[name].types
        return distinct_rows(pairs, columns), struct_type({own: types[column] for own, column in columns.items()})

    def are_few(self, name: str, since: Held) -> bool:
        """Whether its images are rows that this process made."""
        return (name, since) in self._pairs

    def lookup(self, name: str, held: Held, wanted: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
        """The rows that have one of the wanted values in each of these columns; TooMany where they are not few."""
        at_hand = self._at_hand(name, held, wanted, columns)
        if at_hand is not None:
            return at_hand
        sink = self._relations[name].sink
        return rows_among(sink.path, sink.storage_options, held.version, columns, wanted)

    def _at_hand(self, name: str, held: Held, wanted: Mapping[str, Any], columns: Sequence[str]) -> pa.Table | None:
        """The same, where the batch has changed all of these rows: of a large table this saves reading its files."""
        relation, moved = self._relations[name], self._moved.get(name)
        # All that lead to the same rows of now are alike.
        pairs = next((each for (whose, _), each in [*self._pairs.items()] if whose == name), None)
        if moved is None or pairs is None or len(relation.spec.key) != 1:
            return None
        side = NEW if held == relation.sink.held() else OLD if held == moved.before else None
        return rows_of_side(pairs, side, relation.spec.key[0], wanted, columns) if side is not None else None

    def former(self, name: str, since: Held) -> Held:
        """Where the rows can be read that the relation had; Untold where nothing can say that."""
        moved, now = self._moved.get(name), self.held(name)
        if not now.continues(since):
            raise Untold
        return readable(since, now, moved.before if moved is not None else None)

    def former_rows(self, name: str, since: Held) -> DataFrame:
        """All of the relation's rows, as they were."""
        return self.rows(name, self.former(name, since))

    def changed(self, name: str) -> tuple[int, float]:
        """How many of the relation's rows the batch is known to have changed, and what share of them that is."""
        moved = self._moved.get(name)
        if moved is None or moved.changes is None:
            return 0, 0.0
        # The newest version is open, a former one would be opened for this.
        return moved.count, moved.count / max(1, self.count(name, self.held(name)))

    def is_of_batch(self, name: str, since: Held) -> bool:
        """Whether nothing but this batch has changed its rows: no repair, no rebuild, no batch that was cut off."""
        return self._way(name, since) in (Way.STAY, Way.BATCH)

    def _way(self, name: str, since: Held) -> Way:
        moved = self._moved.get(name)
        return way(since, self.held(name), moved.before if moved is not None else None)

    def images(self, name: str, since: Held) -> DataFrame | None:
        """The rows that are not what they were, before and after; None where all are."""
        relation = self._relations[name]
        with relation.lock:
            if (name, since) not in self._images:
                self._images[name, since] = self._found(relation, since)
            return self._images[name, since]

    def _found(self, relation: ReadRelation, since: Held) -> DataFrame | None:
        name, moved = relation.spec.name, self._moved.get(relation.spec.name)
        led = self._way(name, since)
        if led is Way.STAY:
            return None
        if led is Way.ANEW:
            raise Untold
        if led is Way.BATCH and moved is not None:
            return self._of_batch(relation, since, moved, moved.changes) if moved.changes is not None else None
        try:
            return self._some(self._compared(relation, self.rows(name, since), self.rows(name, self.held(name))))
        except PySparkException as error:
            # The version, or its files, went with their time.
            raise Untold from error

    def _of_batch(self, relation: ReadRelation, since: Held, moved: Moved, changes: DataFrame) -> DataFrame | None:
        try:
            return self._looked_up(relation, since, moved, changes)
        except TooMany:
            pass
        key = relation.spec.key
        changed = changes.select(*map(quoted, relation.columns), OP)
        keys = changed.select(*map(quoted, key))
        before = self.rows(relation.spec.name, moved.before).alias("r")
        same = [F.col(f"r.{quoted(each)}").eqNullSafe(F.col(f"k.{quoted(each)}")) for each in key]
        before = before.join(keys.alias("k"), _all(same), "left_semi")
        after = changed.where(F.col(OP) == UPSERT).drop(OP)
        return self._some(self._compared(relation, before, after))

    def _looked_up(self, relation: ReadRelation, since: Held, moved: Moved, changes: DataFrame) -> DataFrame | None:
        if moved.count > CHANGES_MAX:
            raise TooMany
        spec, sink, columns = relation.spec, relation.sink, relation.columns
        own = [*columns, OP]
        known = rows_in(changes)
        changed = changes.select(*map(quoted, own)).toArrow() if known is None else known.select(own)
        keys = changed.select(list(spec.key))
        before = rows_with(sink.path, sink.storage_options, moved.before.version, columns, keys)
        schema = spark_schema(relation.types)
        pairs = self._pairs[spec.name, since] = paired(before, changed, columns, spec.key)
        return frame_of(self._spark, pairs, schema) if pairs.num_rows else None

    def _compared(self, relation: ReadRelation, before: DataFrame, after: DataFrame) -> DataFrame:
        """Both sides of every key that is not alike on both."""
        row = F.struct(*map(quoted, relation.columns))
        ours, theirs = before.select(row.alias(OLD)), after.select(row.alias(NEW))
        same = _all([F.col(OLD).getField(each).eqNullSafe(F.col(NEW).getField(each)) for each in relation.spec.key])
        return ours.join(theirs, same, "full_outer").where(~alike(OLD, NEW, relation.types))

    def _some(self, images: DataFrame) -> DataFrame | None:
        kept = self.kept(images)
        return None if kept.isEmpty() else kept


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)
