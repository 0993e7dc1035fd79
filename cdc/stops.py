"""Tables that have stopped alone: which changes are left out of the topics, and which stand whole again.

In: what the progress record says, and what befalls tables since. Out: what the next progress record says. Keeps true: a
table that has stopped stays so, from its first missing change on, until it was read whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.progress import Stop


class Stops:
    """`topics` are the topics, by oid, of the tables that `stopped` names."""

    def __init__(self, stopped: Mapping[str, Stop], topics: Mapping[int, str]) -> None:
        self._stopped = dict(stopped)
        self._topics = dict(topics)

    @property
    def stopped(self) -> dict[str, Stop]:
        """By topic, as progress records have it."""
        return dict(self._stopped)

    def leaves_out(self, oid: int, lsn: int) -> bool:
        """Whether the table's topic gets nothing of what commits there."""
        topic = self._topics.get(oid)
        return topic is not None and self._stopped[topic].leaves_out(lsn)

    def may_leave_out(self, oid: int, after_lsn: int) -> bool:
        """Whether something that commits behind a position may have to be left out."""
        topic = self._topics.get(oid)
        return topic is not None and self._stopped[topic].leaves_out_after(after_lsn)

    def stop(self, oid: int, topic: str, lsn: int) -> None:
        """The table's topic gets nothing that commits at `lsn` or later."""
        before = self._stopped.get(topic)
        self._topics[oid] = topic
        self._stopped[topic] = before.again(lsn) if before is not None else Stop(lsn)

    def is_open(self, topic: str) -> bool:
        """Whether the topic is not whole."""
        return topic in self._stopped and self._stopped[topic].is_open

    def whole(self, topic: str, lsn: int) -> None:
        """What was missing has been read: all rows are in the topic at `lsn`."""
        self._stopped[topic] = replace(self._stopped[topic], until=lsn)

    def unread(self, topic: str) -> None:
        """Reading it was given up: from its first missing change on everything is missing."""
        self._stopped[topic] = replace(self._stopped[topic], since=None)
