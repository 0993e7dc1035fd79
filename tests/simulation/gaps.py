"""Where the topics lack something of a table: from where it stopped alone until it was whole again.

In: each progress record. Out: at which positions no view of the table may stand. Keeps true: a stop is written down
before any view stands behind it, and what was whole once is not taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.progress import Progress
from tests.simulation.world import require


@dataclass(slots=True)
class Gap:
    """One table's [begin, end); no end while it lasts."""

    begin: int
    end: int | None = None

    def holds(self, lsn: int) -> bool:
        """Whether something is missing there."""
        return self.begin <= lsn and (self.end is None or lsn < self.end)


class Gaps:
    """By topic, oldest first."""

    def __init__(self) -> None:
        self._gaps: dict[str, list[Gap]] = {}

    def take(self, progress: Progress, stands_at: int) -> None:
        """The record's stops; views may stand at `stands_at` already."""
        for topic, stop in progress.stopped.items():
            gaps = self._gaps.setdefault(topic, [])
            if gaps and gaps[-1].end is None and gaps[-1].begin < stop.whole <= stop.lsn:
                gaps[-1].end = stop.whole
            if gaps and stop.is_open and gaps[-1].begin == stop.lsn and (gaps[-1].end or 0) > stands_at:
                gaps[-1].end = None  # not reached yet, and stopped again
            if not gaps or (gaps[-1].end is not None and (stop.is_open or stop.until != gaps[-1].end)):
                require(stop.lsn >= stands_at, "a table stopped where views may have passed", topic, stop, stands_at)
                gaps.append(Gap(stop.lsn))
            elif gaps[-1].end is None and stop.lsn != gaps[-1].begin:
                is_earlier = stop.lsn < gaps[-1].begin and stop.lsn >= stands_at
                require(is_earlier, "where a table stopped has moved", topic, stop, gaps[-1])
                gaps[-1].begin = stop.lsn
            if gaps[-1].end is None and not stop.is_open:
                assert stop.until is not None
                require(stop.until >= stands_at, "a table was whole before views may stand", topic, stop)
                gaps[-1].end = stop.until
        lost = [topic for topic, gaps in self._gaps.items() if gaps[-1].end is None and topic not in progress.stopped]
        require(not lost, "a stop was forgotten", lost)

    def hold(self, topic: str, lsn: int) -> bool:
        """Whether the topic lacks something there."""
        return any(gap.holds(lsn) for gap in self._gaps.get(topic, ()))

    def let_stand(self, topic: str, lsn: int) -> bool:
        """Whether a view may stand there; where the table stopped, it may."""
        return not any(gap.holds(lsn) and gap.begin != lsn for gap in self._gaps.get(topic, ()))
