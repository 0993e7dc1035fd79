"""The tables as their topics have them: announced shapes, what encodes their rows, and which have stopped alone.

In: relations as the log and chunks bring them. Out: encoders, and Announce where a shape is new. Keeps true: a shape is
announced before its rows, and a table that has stopped gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from cdc.backfill import Backfill
from cdc.changes import Origin, Relation
from cdc.effects import Announce, Effect, Finish, Left
from cdc.encoder import RecordEncoder
from cdc.merging import Merging
from cdc.progress import Progress, Stop
from cdc.stops import Stops

EncoderOf = Callable[[Relation], RecordEncoder]


class Shapes:
    """`topics` are those of the tables that the record names as stopped, by oid."""

    def __init__(
        self,
        encoder_of: EncoderOf,
        announced: Mapping[int, Relation],
        start: Progress,
        topics: Mapping[int, str],
        merging: Merging,
    ) -> None:
        self.schemas = start.schemas
        """How many schema records the chain has, as progress records say."""
        self._encoder_of = encoder_of
        self._announced = dict(announced)
        self._stops = Stops(start.stopped, topics)
        self._merging = merging
        self._encoders: dict[int, tuple[Relation, RecordEncoder]] = {}

    @property
    def stopped(self) -> dict[str, Stop]:
        """By topic, as progress records have it."""
        return self._stops.stopped

    def is_announced(self, relation: Relation) -> bool:
        """Whether rows of this very shape may follow."""
        return self._announced.get(relation.oid) == relation

    def compiled(self, oid: int, relation: Relation | None, after_lsn: int) -> Any:
        """The compiled encoder of a relation that the log has described, the schema topic knows and nothing stops."""
        known, encoder = self._encoders.get(oid, (None, None))
        if encoder is None or known is not relation:
            return None
        return None if self._stops.may_leave_out(oid, after_lsn) else encoder.compiled

    def encoder(self, relation: Relation, origin: Origin) -> Generator[Effect, Any, RecordEncoder | None]:
        """What encodes the relation's rows; None for a table that has stopped alone."""
        if self._stops.leaves_out(relation.oid, origin.commit_lsn):
            return None
        known = self._encoders.get(relation.oid)
        if known is not None and known[0] is relation:
            return known[1]
        if not self.is_announced(relation):
            if not (yield from self.announce(relation, origin.commit_lsn)):
                return None
            self._merging.shape_came(relation.oid, origin.xid)
        encoder = self._encoder_of(relation)
        self._encoders[relation.oid] = (relation, encoder)
        return encoder

    def announce(self, relation: Relation, lsn: int) -> Generator[Effect, Any, bool]:
        """Whether rows of this shape may follow."""
        left: Left | None = yield Announce(relation, lsn)
        if left is not None:
            self.leave(relation, left.topic, lsn)
            return False
        self.schemas += 1
        self._announced[relation.oid] = relation
        return True

    def leave(self, relation: Relation, topic: str, lsn: int) -> None:
        """Leave the table out from this transaction on; the others flow on."""
        self.schemas += 1
        self._stops.stop(relation.oid, topic, lsn)
        self._merging.drop(topic)

    def may_be_read(self, backfill: Backfill) -> bool:
        """Whether the table's topic is whole, so that more rows may be put into it."""
        return not self._stops.is_open(backfill.topic)

    def finish(self, backfill: Backfill, failure: str | None, lsn: int) -> Iterator[Effect]:
        """A reading has ended at this position; one that was to bring a table back has brought it, or has failed."""
        if backfill.joins:
            self.schemas += 1
            if failure is None:
                self._stops.whole(backfill.topic, lsn)
            else:
                self._stops.unread(backfill.topic)
        yield Finish(backfill, failure, lsn)
