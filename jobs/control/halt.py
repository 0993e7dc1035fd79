"""Which requests are in force, and what they mean for apply's next step.

In: control records as they are read, two clocks, apply's position. Out: run, stand still, or run to one LSN, with the
answers due. Keeps true: a held position is not left before its holders let go or fall silent for their ttl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from jobs.control.kept import Kept
from jobs.control.records import Answer, ControlRecord, Kind, Request, State, Withdrawn

_HALTING: Final = (Kind.PAUSE, Kind.HOLD)


@dataclass(frozen=True, slots=True)
class Run:
    """Nobody asks for anything: carry on."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Start no batch."""


@dataclass(frozen=True, slots=True)
class RunTo:
    """Run one batch that ends exactly here, and start no other."""

    lsn: int


Step = Run | Stand | RunTo


class InForce:
    """The requests that are neither expired, withdrawn, released nor finished."""

    def __init__(self, wall_s: Callable[[], float], monotonic_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._requests: dict[str, tuple[Request, float]] = {}
        self._finished: set[str] = set()

    def see(self, record: ControlRecord, *, live: bool) -> Request | None:
        """Take in a record; the request if it asks for something new (a renewal or a release does not).

        A live record's ttl counts from now, so that two hosts' clocks need not agree; an older one's from when it
        was sent.
        """
        if isinstance(record, Kept):
            return None
        if isinstance(record, Withdrawn):
            self.drop(record.id)
            return None
        if isinstance(record, Answer):
            if record.state.is_final:
                self.drop(record.id)
                self._finished.add(record.id)
            return None
        return self._request(record, live)

    def _request(self, request: Request, live: bool) -> Request | None:
        if request.kind is Kind.RELEASE:
            self.drop(request.id)
            return None
        age_s = 0.0 if live else max(0.0, self._wall_s() - request.sent_ts_ms / 1000)
        if request.id in self._finished or age_s >= request.ttl_s:
            return None
        before = self._requests.get(request.id)
        self._requests[request.id] = (request, self._monotonic_s() + request.ttl_s - age_s)
        return None if before is not None and _is_renewal(before[0], request) else request

    def drop(self, request_id: str) -> None:
        """Let go of a request; an unknown id is fine."""
        self._requests.pop(request_id, None)

    def requests(self) -> tuple[Request, ...]:
        """Those in force now; what has expired is forgotten."""
        now = self._monotonic_s()
        self._requests = {name: kept for name, kept in self._requests.items() if kept[1] > now}
        return tuple(request for request, _ in self._requests.values())


def _is_renewal(before: Request, after: Request) -> bool:
    return replace(before, sent_ts_ms=0, ttl_s=0) == replace(after, sent_ts_ms=0, ttl_s=0)


def next_step(requests: Iterable[Request], position: int) -> Step:
    """What apply may do at `position`; of several holds the nearest comes first, and is kept until it is let go."""
    halting = [request for request in requests if request.kind in _HALTING]
    holds = [request.lsn for request in halting if request.kind is Kind.HOLD and request.lsn is not None]
    ahead = [lsn for lsn in holds if lsn > position]
    if ahead and position not in holds:
        return RunTo(min(ahead))
    return Stand() if halting else Run()


def answers_due(requests: Iterable[Request], position: int) -> Iterator[tuple[str, State]]:
    """What each halting request may be told at `position`, apply being between two batches."""
    for request in requests:
        if request.kind is Kind.PAUSE:
            yield request.id, State.PAUSED
        elif request.kind is Kind.HOLD and request.lsn == position:
            yield request.id, State.HOLDING
        elif request.kind is Kind.HOLD and (request.lsn is None or request.lsn < position):
            yield request.id, State.REFUSED
