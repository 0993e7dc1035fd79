"""Models of the three kinds of store, and the oracle that looks at each of them whenever a position moves.

Delta: a log of versions, each with its rows, position and turn. Search and cache: generations of rows with
versions, a standing beside them that is moved by compare-and-set. Ledger: which versions show one LSN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.batch import Target
from jobs.twins import is_twin
from sinks.protocol import Position
from tests.simulation.declaring import DECLARED, Print
from tests.simulation.published import Published
from tests.simulation.source import Source
from tests.simulation.tables import Values
from tests.simulation.views import Rows, expected_rows
from tests.simulation.world import World, require


@dataclass(frozen=True, slots=True, eq=False)
class DeltaVersion:
    """One commit: the table as it is then; `turn` is the number of our newest commit.

    Without a position it is a commit of somebody else, and the table has to be replaced.
    """

    number: int
    rows: Rows
    generation: int
    position: Position | None
    turn: int
    declared: Print = (0,)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """See jobs.ledger.LedgerRow."""

    version: int
    position: Position


@dataclass(slots=True)
class Generation:
    """Rows of search or cache with the version of each; a row of None is a tombstone."""

    state: str = "loading"
    rows: dict[str, tuple[int, Values | None]] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, Values]:
        """What a reader finds."""
        return {key: row for key, (_, row) in self.rows.items() if row is not None}


@dataclass(slots=True)
class VersionedStore:
    """One view in the index or in the cache."""

    live: int | None = None
    standing: Position | None = None
    declared: Print = (0,)
    form: int = 0
    generations: dict[int, Generation] = field(default_factory=dict)


class Stores:
    """All stores of the pipeline."""

    def __init__(self, world: World, source: Source, published: Published) -> None:
        self._world = world
        self._source = source
        self._published = published
        self.delta: dict[Target, list[DeltaVersion]] = {}
        self.ledger: list[Mapping[Target, LedgerRow]] = []
        self.versioned: dict[Target, VersionedStore] = {}
        self.known: set[str] = set()
        """Views that were there at the first batch, or of which anything has been shown since."""
        self.generations = 0
        self._expected: dict[tuple[str, Print, int], Rows | None] = {}

    def next_generation(self) -> int:
        """Numbered by the clock: never one that a store's former life had."""
        self.generations += 1
        return self.generations

    def commit_delta(self, target: Target, version: DeltaVersion) -> None:
        """One atomic commit of rows and position."""
        assert version.position is not None
        if not is_twin(target):
            self.check(target, version.declared, version.rows, version.position)
            self.known.add(target.view)
        self.delta.setdefault(target, []).append(version)

    def commit_ledger(self, rows: Mapping[Target, LedgerRow]) -> None:
        """One atomic overwrite."""
        shown: dict[str, DeltaVersion] = {}
        for target, row in rows.items():
            versions = self.delta.get(target, [])
            require(0 <= row.version < len(versions), "the ledger names a version that is not there", target)
            shown[target.view] = versions[row.version]
        furthest = max((row.position.lsn for row in rows.values()), default=0)
        gaps = self._published.gaps
        flowing = {
            row.position.lsn
            for target, row in rows.items()
            if not any(gaps.hold(topic, furthest) for topic in target.topics)
            and not self.fails(target, shown[target.view].declared, furthest)
        }
        require(len(flowing) <= 1, "a ledger of several positions")
        for target, row in rows.items():
            version = shown[target.view]
            self.check(target, version.declared, version.rows, row.position)
            read = [
                each for name in target.reads if name in DECLARED and name in shown for each in shown[name].declared
            ]
            mixed = read and list(version.declared[1:]) != read
            require(not mixed, "a query's rows are of another declaration than what it reads", target, shown)
        self.ledger.append(rows)

    def put(self, target: Target, generation: int, key: str, lsn: int, row: Values | None) -> bool:
        """Compare and set one row by version; False when the generation is not to be written to."""
        held = self.versioned[target].generations.get(generation)
        if held is None or held.state == "retired":
            return False
        if key not in held.rows or lsn >= held.rows[key][0]:
            held.rows[key] = (lsn, row)
        return True

    def move(self, target: Target, generation: int, read: Position, position: Position, *, alone: bool) -> bool:
        """Move the live generation's position, if it is still what the writer read.

        Unless the writer is `alone` another one may have written rows already, and is about to move the position too.
        """
        store = self.versioned[target]
        if store.live != generation or store.standing != read:
            return False
        if position.lsn >= read.lsn:
            shown = store.generations[generation].shown
            if alone:
                self.check(target, store.declared, shown, position)
            else:
                self._check_reader(target, store.declared, shown, position.lsn)
            store.standing = position
        return True

    def switch(self, target: Target, generation: int, position: Position, declared: Print, form: int = 0) -> bool:
        """Show a loaded generation, pointer and position in one step."""
        store = self.versioned[target]
        loaded = store.generations.get(generation)
        if loaded is None or loaded.state != "loading":
            return False
        self.check(target, declared, loaded.shown, position)
        store.declared, store.form = declared, form
        self.known.add(target.view)
        if store.live is not None:
            store.generations[store.live].state = "retired"
        loaded.state, store.live, store.standing = "live", generation, position
        return True

    def lose(self, target: Target) -> None:
        """FLUSHALL, or an index deleted by hand; a Delta table overwritten by somebody else."""
        if target.sink == "delta":
            versions = self.delta.setdefault(target, [])
            turn = versions[-1].turn if versions else 0
            versions.append(DeltaVersion(len(versions), {}, 0, None, turn))
        else:
            self.versioned[target] = VersionedStore()

    def check(self, target: Target, declared: Print, rows: Rows, position: Position) -> None:
        """The oracle of the sinks: rows that claim a position are the source's rows at that position."""
        self._world.note("stands", target.view, target.sink, position.lsn)
        boundaries = self._published.boundaries
        require(boundaries and position.lsn <= boundaries[-1].lsn, "a view went past the topics", target)
        may_stand = all(self._published.gaps.let_stand(topic, position.lsn) for topic in target.topics)
        require(may_stand, "a view stands where its table is not whole", target, position)
        due = self._due(target, declared, self._source.first_from(position.lsn))
        require(rows == due, "a view is not the source at its position", target, position, rows, due)

    def check_readers(self) -> None:
        """What somebody sees who reads the live generation now: no row is older than the position that it claims."""
        for target, store in self.versioned.items():
            if store.live is not None and store.standing is not None:
                shown = store.generations[store.live].shown
                self._check_reader(target, store.declared, shown, store.standing.lsn)

    def _check_reader(self, target: Target, declared: Print, rows: Rows, claimed: int) -> None:
        newest = self._source.first_from(self._published.boundaries[-1].lsn)
        numbers = range(self._source.first_from(claimed), newest + 1)
        states = [state for number in numbers if (state := self._due(target, declared, number)) is not None]
        for key in sorted({key for state in states for key in state} | set(rows)):
            known = [state.get(key) for state in states]
            require(rows.get(key) in known, "a reader saw a row that was at no boundary", target, key)

    def fails(self, target: Target, declared: Print, lsn: int | None = None) -> bool:
        """Whether it is of a query that fails there, or where the log ends."""
        number = self._source.first_from(lsn if lsn is not None else self._source.wal_end)
        return self._due(target, declared, number) is None

    def _due(self, target: Target, declared: Print, number: int) -> Rows | None:
        """What the view must show of the first so many transactions."""
        at = target.view, declared, number
        if at not in self._expected:
            self._expected[at] = expected_rows(target, declared, self._source.states[number])
        return self._expected[at]
