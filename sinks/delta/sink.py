"""One view as a Delta table.

In: changes with OP, LSN and AT. Out: one commit per batch, which carries the rows and the position. Keeps true: a
commit is made only on the table as this process located or left it; another writer's commit in between is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cdc.settings import Delta
from sinks.arrow_frames import rows_in, with_columns
from sinks.delta.commit import PROPERTIES, Commit, Mark, add_columns, enable_types, merge, overwrite, replace_keys
from sinks.delta.held import Held
from sinks.delta.literals import quoted
from sinks.delta.log import TableSize, TableState, rows_of, rows_written, table_rows, table_size, table_state
from sinks.delta.log import translated as readable
from sinks.delta.size import Way, measured, way_of
from sinks.delta.small import write_small
from sinks.delta.staged import adopt_files, remove_beside
from sinks.delta.stamp import Stamp, app_id
from sinks.delta.upkeep import Figures, Upkeep, figures
from sinks.delta.whole import overwrite_directly
from sinks.protocol import OP, UPSERT, Position, Sink, Written
from sinks.spec import ViewSpec
from sinks.standing import Located, lost, new_generation, overtaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sinks.delta.beside import BesideDelta


class DeltaSink:
    """A view's table under `<delta.path>/<pipeline>/<folder>`; readers see a commit whole or not at all."""

    name = "delta"

    table_properties: Mapping[str, str] = PROPERTIES
    """Of a table that is made anew: plain, until rows of it are marked."""

    may_mark: bool = True
    """Whether rows of the table may be marked as deleted, where the settings want that."""

    def __init__(self, settings: Delta, pipeline: str, spec: ViewSpec) -> None:
        self.folder = spec.name
        self._settings = settings
        self._path = f"{settings.path.rstrip('/')}/{pipeline}/{spec.name}"
        self._options = settings.storage_options
        self._pipeline = pipeline
        self._spec = spec
        self._app = app_id(pipeline, spec.name)
        self._located: Located[tuple[int, int]] = Located("Delta", spec.name)
        self._upkeep = Upkeep(self._path, self._options, spec.key)
        self._version: int | None = None
        self._marks = settings.deletion_vectors and self.may_mark

    @property
    def path(self) -> str:
        """Where readers find the table."""
        return self._path

    @property
    def marks(self) -> bool:
        """Whether rows of batches are marked as deleted, where the table is of a fit size."""
        return self._marks

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What they need to reach it."""
        return self._options

    def position(self) -> Position | None:
        """The newest stamped commit's position; None without a table, or when it is of another declaration."""
        state = self._state()
        self._located.take(_known(state))
        return state.stamp.position if state is not None and self._is_ours(state) and state.stamp else None

    def version(self) -> tuple[int, int]:
        """The table's version and generation now."""
        state = self._state()
        if state is None or state.stamp is None:
            raise lost("Delta", self._spec.name)
        return state.version, state.stamp.generation

    def held(self) -> Held:
        """The rows that it holds now, as this process located or wrote them: for the ledger, and for queries."""
        state = self._state()
        if state is None or state.stamp is None:
            raise lost("Delta", self._spec.name)
        self._located.require(_known(state))
        self._version = state.version
        return Held(state.version, state.stamp.generation, state.turn)

    def size(self, version: int) -> TableSize:
        """How many rows a version has, and bytes, by its own statistics."""
        return table_size(self._path, self._options, version)

    def keep_up(self) -> bool:
        """Tidy the table as it was held last, if that is due; whether its version is another one now."""
        return self._version is not None and self._upkeep.keep_up(self._version)

    def figures(self) -> Figures | None:
        """The table in numbers; None if there is none."""
        with readable(self._path):
            return figures(self._path, self._options)

    def write(self, changes: DataFrame, position: Position) -> Written:
        """Apply the changes and move to `position` in one commit; a batch without changes makes none."""
        state = self._required()
        assert state.stamp is not None
        if state.stamp.position.lsn >= position.lsn:
            return Written()
        from sinks.delta.failures import translated

        rows = with_columns(changes, (*self._spec.stored, OP))
        with translated(self._doing):
            commit = self._commit(rows, state, state.stamp.generation, position)
            enable_types(rows, commit, state.features)
            add_columns(rows, commit, state.types)
            # One way or another: the table is the same afterwards.
            small = write_small(rows, commit, self._spec.key, self._options, marks=self._marks)
            written = small or self._write_by_spark(rows, commit)
        if written.upserts or written.deletes:
            self._require_made(commit)
        return written

    def _write_by_spark(self, rows: DataFrame, commit: Commit) -> Written:
        batch = measured(rows, self._spec.key)
        if batch.count:
            {Way.REPLACE_KEYS: replace_keys, Way.MERGE: merge}[way_of(batch)](rows, commit, batch)
        return Written(batch.upserts, batch.count - batch.upserts)

    def replace(self, rows: DataFrame, position: Position) -> Written:
        """Overwrite the table in one commit, as a new generation."""
        from pyspark.sql import functions as F  # noqa: N812

        from sinks.delta.failures import translated

        state = self.as_left()
        known = [state.stamp.generation] if state is not None and state.stamp is not None else []
        with translated(self._doing):
            kept = rows.where(F.col(OP) == UPSERT).select(*map(quoted, self._spec.stored))
            commit = self._commit(kept, state, new_generation(known), position)
            if state is not None:
                enable_types(kept, commit, state.features)
            overwrite(kept, commit, self._spec.key, self.table_properties)
        self._require_made(commit)
        return Written(upserts=rows_written(self._path, self._options))

    def rewrite(self, rows: DataFrame, position: Position) -> Written:
        """Overwrite the table in one commit of the same generation, unsorted: upkeep sorts it when that pays."""
        from sinks.delta.failures import translated

        state = self._required()
        assert state.stamp is not None
        with translated(self._doing):
            commit = self._commit(rows, state, state.stamp.generation, position)
            kept = with_columns(rows, self._spec.stored)
            if (known := rows_in(kept)) is None or not overwrite_directly(known, commit, self._options):
                overwrite(kept, commit, (), self.table_properties)
        self._require_made(commit)
        return Written(upserts=rows_written(self._path, self._options) if known is None else known.num_rows)

    def beside(self) -> BesideDelta:
        """A table in another folder, always a new one."""
        from sinks.delta.beside import BesideDelta

        self.clear()
        return BesideDelta(self._settings, self._pipeline, self._spec)

    def adopt(self, loaded: Sink, position: Position) -> None:
        """Let its files be this table's, in one commit of the same generation: what queries have seen stays known."""
        state = self._required()
        assert state.stamp is not None
        self._adopt(loaded, position, state.stamp.generation, state.turn + 1)

    def supersede(self, former: Sink | None, loaded: Sink, position: Position) -> None:
        """The same in a new generation, whose columns may be others; the former sink is what located the table."""
        known = former if isinstance(former, DeltaSink) else self
        state = known.as_left()
        begun = [state.stamp.generation] if state is not None and state.stamp is not None else []
        self._adopt(loaded, position, new_generation(begun), state.turn + 1 if state is not None else 1)

    def as_left(self) -> TableState | None:
        """The table, of whatever declaration, if it still is what this process located or wrote."""
        state = self._state()
        self._located.require(_known(state))
        return state

    def _adopt(self, loaded: Sink, position: Position, generation: int, turn: int) -> None:
        assert isinstance(loaded, DeltaSink)
        loaded.held()
        mark = Mark(self._path, Stamp(self._spec.name, generation, self._spec.fingerprint, position), self._app, turn)
        # A table that is there has its properties; of a new one the first batch says whether its rows are marked.
        adopt_files(self._settings, self._pipeline, loaded.folder, mark, PROPERTIES)
        self._require_made(mark)

    def clear(self) -> None:
        """The table in the other folder."""
        remove_beside(self._settings, self._pipeline, self._spec.name)

    def advance(self, position: Position) -> None:
        """Nothing: the ledger vouches for the version that is there (docs/FORMATS.md), a commit would say no more."""

    def mend(self, changes: DataFrame, position: Position) -> Written:
        """Replace whatever rows the keys have, in one commit that says the same position; nothing hidden is known."""
        from pyspark.sql import functions as F  # noqa: N812

        from sinks.delta.failures import translated

        state = self._required()
        hidden = [F.lit(None).cast(state.types[name]).alias(name) for name in self._spec.hidden]
        rows = changes.select(*map(quoted, self._spec.columns), *hidden, OP)
        with translated(self._doing):
            assert state.stamp is not None
            commit = self._commit(rows, state, state.stamp.generation, position)
            add_columns(rows, commit, state.types)
            written = self._write_by_spark(rows, commit)
        self._require_made(commit)
        return written

    def types(self) -> Mapping[str, str]:
        """As the table's schema has them."""
        state = self._state()
        if state is None:
            raise lost("Delta", self._spec.name)
        return {name: state.types[name] for name in self._spec.stored if name in state.types}

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every row in the view's columns, without Spark."""
        return table_rows(self._path, self._options, self._spec.columns)

    def rows_of(self, keys: Any) -> Iterator[tuple[Any, ...]]:
        """By the first key column, whose bounds let files be skipped."""
        return rows_of(self._path, self._options, self._spec.columns, keys)

    @property
    def _doing(self) -> str:
        return f"view {self._spec.name} into delta"

    def _commit(self, frame: DataFrame, state: TableState | None, generation: int, position: Position) -> Commit:
        stamp = Stamp(self._spec.name, generation, self._spec.fingerprint, position)
        turn = state.turn + 1 if state is not None else 1
        return Commit(self._path, stamp, self._app, turn, frame.sparkSession)

    def _require_made(self, commit: Mark) -> None:
        """Spark passes over a turn that somebody else has taken, without a word; delta-rs commits no batch in vain."""
        state = self._state()
        if state is not None and state.turn < commit.turn:
            self._located.require(_known(state))
            return
        if state is None or (state.turn, state.stamp) != (commit.turn, commit.stamp):
            raise overtaken("Delta", self._spec.name)
        self._located.take(_known(state))

    def _required(self) -> TableState:
        """The table as this process located or left it."""
        state = self._state()
        if state is None or state.stamp is None or not self._is_ours(state):
            raise lost("Delta", self._spec.name)
        self._located.require(_known(state))
        return state

    def _state(self) -> TableState | None:
        return table_state(self._path, self._options, self._app)

    def _is_ours(self, state: TableState) -> bool:
        return state.stamp is not None and state.stamp.fingerprint == self._spec.fingerprint


def _known(state: TableState | None) -> tuple[int, int] | None:
    """What tells one state of our rows from another: the generation, and the number of our newest commit."""
    return (state.stamp.generation, state.turn) if state is not None and state.stamp is not None else None
