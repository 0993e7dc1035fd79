"""A query's SQL of one refresh, bound to the tables of its batch: all rows, affected keys, rows of these keys.

In: a view's plan, its relations' frames. Out: frames with the view's columns. Keeps true: each text is bound to its
tables as soon as it is parsed, so a name may be given anew while frames of it are still computed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from jobs.parts import session_for
from jobs.plan.nodes import Attribute, Plan, Scan
from jobs.plan.render import derived, listed
from jobs.plan.view import ViewPlan
from jobs.plan.walk import walk
from jobs.refresh.fetched import FetchedScans
from jobs.refresh.relations import ReadRelations
from jobs.upkeep.narrow import Key, Known, Narrowed, Narrowing
from jobs.upkeep.near import Near
from jobs.upkeep.refresh import Refresh, keyed_sql, plan_refresh
from jobs.upkeep.shown import shown_by
from jobs.upkeep.tables import KEYS, State, Tables
from jobs.upkeep.tallying import CHANGED, WAS, folded_sql, rows_sql, signed, stored_sql
from sinks.delta.held import Held
from sinks.delta.literals import literal
from sinks.spec import ViewSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

READERS: Final = 16
"""Tasks that read a table, as far as the share of each in the groups is concerned."""

# Names belong to the whole session.
_naming: Final = threading.Lock()


class Evaluation:
    """One query over one state of its relations."""

    def __init__(self, spark: SparkSession, spec: ViewSpec, relations: ReadRelations, now: Mapping[str, Held]) -> None:
        self._spark = spark
        self._spec = spec
        self._plan: ViewPlan = spec.plan
        self._relations = relations
        self._prefix = f"{spec.name}__"
        self._tables = Tables(now, self._prefix)
        self._now = now
        self._fetched = FetchedScans(self._lookup, self._prefix)
        self._called: set[str] = set()
        self._was: dict[str, Held] = {}

    def all_rows(self, groups: int | None = None) -> DataFrame:
        """The whole answer; what is dealt out for it are rows of what it reads, or groups where it is so many."""
        sql = plan_refresh(self._plan, self._tables, self._now).full
        count = sum(self._relations.count(name, held) for name, held in self._now.items())
        # Each task that reads hands on the groups that it met.
        spark = session_for(self._spark, count if groups is None else min(count, groups * READERS))
        if spark is self._spark:
            return self._shown(self._answer(sql))
        for name, held in self._now.items():
            rows = self._relations.rows_for(spark, name, held)
            rows.createOrReplaceTempView(self._tables.name(name, State.NOW))
        return self._shown(spark.sql(sql))

    def of_rows(self, root: Plan, relation: str, rows: pa.Table) -> DataFrame:
        """What a plan with the view's columns makes of some rows of the only relation that it reads."""
        name = f"{self._prefix}some"
        self._relations.frame(relation, rows).coalesce(1).createOrReplaceTempView(name)
        shown = listed(column.sql for column in self._plan.stored)
        return self._shown(self._spark.sql(f"SELECT {shown} FROM {derived(root, lambda _: name)}"))  # noqa: S608 - our own SQL

    def planned(self, changed: Mapping[str, DataFrame], known: Mapping[str, Held]) -> Refresh:
        """What is run, given the images of the relations that changed, and the former states."""
        near = Near(
            lambda relation, column: self._relations.image_values(relation, known[relation], column),
            Narrowing(self._fetched.scan),
        )
        found = plan_refresh(self._plan, self._tables, changed, near)
        for name, images in changed.items():
            self._call(name, State.CHANGED, images)
        for name in found.before:
            self._call(name, State.BEFORE, self._relations.former_rows(name, known[name]))
        return found

    def shown(
        self, node: Plan, columns: Iterable[Attribute], known: Mapping[str, Held]
    ) -> tuple[pa.Table, StructType] | None:
        """Values of the node's columns, of at least the rows that are touched, where the changed rows show them."""
        if len(known) != 1:
            return None
        [(relation, since)] = known.items()
        sources = shown_by(node, columns, relation)
        own = {column.sql: source for column, source in sources.items()} if sources is not None else None
        return self._relations.distinct(relation, since, own) if own is not None else None

    def pairs(self, node: Plan, known: Mapping[str, Held]) -> pa.Table | None:
        """The changed rows of the one relation that the node reads, if they are at hand."""
        scans = [each for each in walk(node) if isinstance(each, Scan)]
        return self._relations.pairs(scans[0].relation, known[scans[0].relation]) if len(scans) == 1 else None

    def affected(self, refresh: Refresh) -> DataFrame:
        """The affected values of `refresh.by`, by number."""
        return self._answer(refresh.affected)

    def rows_of(self, refresh: Refresh, keys: DataFrame) -> DataFrame:
        """The rows that have these keys now."""
        assert refresh.narrowed is not None
        return self._keyed(keys, refresh.narrowed)

    def rows_of_few(self, by: Iterable[Attribute], keys: DataFrame, few: pa.Table) -> DataFrame:
        """The same of few keys: scans read what these ask for at once, else are bounded by the least and greatest."""
        known = {column: _key(column.sql, few.column(column.sql), keys) for column in by}
        plan, _ = Narrowing(self._fetched.scan).narrow(self._plan.root, known)
        sql = keyed_sql(self._plan, tuple(known), plan, lambda name: self._tables.name(name, State.NOW))
        return self._keyed(keys, sql)

    def signed(self, changed: Mapping[str, DataFrame], known: Mapping[str, Held]) -> tuple[DataFrame, bool]:
        """Of each touched group, the results over what went and over what came; whether it is exactly that."""
        assert self._plan.tally is not None
        # These are read as they were; what changed nothing is what it was.
        self._was = {name: self._relations.former(name, known[name]) for name in changed}

        def values(relation: str, column: str) -> Any:
            name = relation.removeprefix(CHANGED)
            return self._relations.image_values(name, known[name], column) if name != relation else None

        found = signed(self._plan.tally, self._tables, changed, Near(values, Narrowing(self._beside_images)))
        for name, images in changed.items():
            # In one part, they are grouped without being handed around.
            few = self._relations.are_few(name, known[name])
            self._call(name, State.CHANGED, images.coalesce(1) if few else images)
        for name in found.before:
            if self._tables.name(name, State.BEFORE) in found.sql:
                self._call(name, State.BEFORE, self._relations.rows(name, self._was[name]))
        return self._answer(found.sql), found.is_exact

    def _beside_images(self, node: Scan, known: Known) -> Narrowed:
        return (node, known) if node.relation.startswith(CHANGED) else self._fetched.scan(node, known)

    def folded(self, signed_: DataFrame, stored: DataFrame, *, is_exact: bool, few: bool) -> DataFrame:
        """The groups' new results, of what `signed` gave and the view's rows of these groups."""
        assert self._plan.tally is not None
        signed_.createOrReplaceTempView(f"{self._prefix}signed")
        stored.createOrReplaceTempView(f"{self._prefix}stored")
        rows = stored_sql(self._plan, self._spec.stored, f"{self._prefix}stored")
        both = self._spark.sql(f"SELECT * FROM {self._prefix}signed UNION ALL {rows}")  # noqa: S608 - our own SQL
        (both.coalesce(1) if few else both).createOrReplaceTempView(f"{self._prefix}both")
        return self._spark.sql(folded_sql(self._plan.tally, f"{self._prefix}both", is_exact=is_exact))

    def rows_of_results(self, folded: DataFrame) -> DataFrame:
        """The view's rows of groups that are there, and sure."""
        folded.createOrReplaceTempView(f"{self._prefix}folded")
        return self._shown(self._spark.sql(rows_sql(self._plan, f"{self._prefix}folded")))

    def plain_results(self) -> list[str] | None:
        """What the stored columns are called among the results; None where some are expressions over these."""
        assert self._plan.tally is not None
        is_plain = set(self._plan.stored) <= set(self._plan.tally.aggregate.columns)
        return [column.sql for column in self._plan.stored] if is_plain else None

    def _keyed(self, keys: DataFrame, sql: str) -> DataFrame:
        with _naming:
            keys.createOrReplaceTempView(KEYS)
            return self._shown(self._answer(sql))

    def _answer(self, sql: str) -> DataFrame:
        """What the SQL says, once all that it names is there."""
        for name, held in self._now.items():
            self._call_if_named(sql, self._tables.name(name, State.NOW), partial(self._relations.rows, name, held))
        for name, (relation, rows) in self._fetched.tables.items():
            self._call_if_named(sql, name, partial(self._relations.frame, relation.removeprefix(WAS), rows))
        return self._spark.sql(sql)

    def _call_if_named(self, sql: str, name: str, rows: Callable[[], DataFrame]) -> None:
        if name in sql and name not in self._called:
            self._called.add(name)
            rows().createOrReplaceTempView(name)

    def _lookup(self, relation: str, wanted: Mapping[str, Any], columns: tuple[str, ...]) -> pa.Table:
        name = relation.removeprefix(WAS)
        held = self._now[name] if name == relation else self._was[name]
        return self._relations.lookup(name, held, wanted, columns)

    @property
    def stored_columns(self) -> tuple[Attribute, ...]:
        """Those of the view's table."""
        return self._plan.stored

    def column_of(self, attribute: Attribute) -> str:
        """What the view calls it."""
        return self._spec.columns[self._plan.outputs.index(attribute)]

    def _call(self, relation: str, state: State, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(self._tables.name(relation, state))

    def _shown(self, rows: DataFrame) -> DataFrame:
        return rows.toDF(*self._spec.stored)


def _key(name: str, values: Any, keys: DataFrame) -> Key:
    """Delta leaves out files by literals alone."""
    kind = keys.schema[name].dataType.simpleString()
    ends = _ends(values)
    low, high = (literal(value, kind) for value in ends) if ends is not None else (None, None)
    return Key(name, low, high, values)


def _ends(values: Any) -> tuple[Any, Any] | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_ordered(values.type):
        return None
    ends = pc.min_max(values)
    low, high = ends["min"], ends["max"]
    if not low.is_valid:
        return None
    if pa.types.is_date(values.type):
        try:
            return low.as_py().isoformat(), high.as_py().isoformat()
        except (ValueError, OverflowError):
            return None
    return low.as_py(), high.as_py()


def _is_ordered(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string, pa.types.is_date)
    return any(test(kind) for test in tests)
