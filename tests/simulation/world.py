"""What every model of one simulated run shares: one random source, one clock, the faults and their count, a trace.

In: a seed. Out: decisions, all of them drawn from that seed. Keeps true: the same seed gives the same run, and no fault
happens once the world is healed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from random import Random
from typing import Any, Final, NoReturn

EPOCH_US: Final = 1_800_000_000_000_000
TRACE_LENGTH: Final = 400

# How likely each fault is whenever it could happen. A seed multiplies each by 0, 1 or 4: runs in which a fault never
# comes, and runs full of it, meet what an even mixture does not.
FAULTS: Final = {
    "capture killed": 0.015,
    "capture frozen while another takes over": 0.004,
    "stream starts early": 0.3,
    "replication connection cut": 0.01,
    "status update lost": 0.03,
    "status update repeated": 0.05,
    "postgres restarted": 0.01,
    "wall clock set back": 0.02,
    "produce refused": 0.01,
    "acknowledgements time out": 0.01,
    "commit request lost": 0.03,
    "commit request late": 0.03,
    "commit reply lost": 0.05,
    "commit markers late": 0.15,
    "transaction timed out": 0.01,
    "records compacted": 0.02,
    "the night passes": 0.01,
    "apply killed": 0.01,
    "apply frozen while another takes over": 0.004,
    "store request late": 0.02,
    "store request repeated": 0.03,
    "delta reply lost": 0.05,
    "delta conflict": 0.02,
    "store lost": 0.01,
    "rebuild asked": 0.02,
    "hold asked": 0.03,
    "pause asked": 0.01,
}

# What befalls tables; drawn apart, and in half of the seeds alone, so that the others are what they were without.
TABLE_EVENTS: Final = {
    "table rewritten": 0.12,
    "table stuck": 0.02,
    "table freed": 0.3,
    "table cannot be read": 0.05,
    "table copied": 0.3,
    "copying takes long": 0.3,
    "tables looked at": 0.1,
}


# What befalls queries; drawn apart as well.
QUERY_EVENTS: Final = {"old version is gone": 0.1}


# Drawn apart as well.
FILE_EVENTS: Final = {"declaration edited": 0.15}


# Drawn apart as well.
NEW_FILE_EVENTS: Final = {"view added": 0.1, "options edited": 0.1}


Steps = Generator[str, None, Any]
"""A process, one step at a time; each is named."""


class Violation(AssertionError):  # noqa: N818  what is violated is the point
    """Something that must always hold did not."""


def require(condition: object, message: str, *details: object) -> None:
    """Raise Violation unless the condition holds."""
    if not condition:
        violated(message, *details)


def violated(message: str, *details: object) -> NoReturn:
    """Say what does not hold."""
    raise Violation(": ".join([message, *map(str, details)]))


class World:
    """One run's chance and time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.counts: Counter[str] = Counter()
        self.healed = False
        self.now_s = 0.0
        self.rates = {kind: rate * self.rng.choice((0, 1, 1, 4)) for kind, rate in FAULTS.items()}
        self.side = Random(seed + 1_000_000)
        self.tables_change = self.side.random() < 0.5
        factors = (0, 1, 1, 4) if self.tables_change else (0,)
        self.rates |= {kind: rate * self.side.choice(factors) for kind, rate in TABLE_EVENTS.items()}
        self.apart = Random(seed + 2_000_000)
        self.has_queries = self.apart.random() < 0.4
        self.rates |= {kind: rate * self.apart.choice((0, 1, 4)) for kind, rate in QUERY_EVENTS.items()}
        self.files = Random(seed + 3_000_000)
        self.rates |= {kind: rate * self.files.choice((0, 1, 4)) for kind, rate in FILE_EVENTS.items()}
        self.news = Random(seed + 4_000_000)
        self.rates |= {kind: rate * self.news.choice((0, 1, 4)) for kind, rate in NEW_FILE_EVENTS.items()}
        self.trace: deque[tuple[object, ...]] = deque(maxlen=TRACE_LENGTH)
        self.late: list[Callable[[], object]] = []

    @property
    def wall_us(self) -> int:
        """The wall clock of source and brokers."""
        return EPOCH_US + int(self.now_s * 1e6)

    def happens(self, kind: str) -> bool:
        """Whether this fault comes now; one that comes is counted."""
        rng = self._drawn_by(kind)
        if self.healed or rng.random() >= self.rates[kind]:
            return False
        self.counts[kind] += 1
        self.note("FAULT", kind)
        return True

    def _drawn_by(self, kind: str) -> Random:
        if kind in TABLE_EVENTS:
            return self.side
        if kind in FILE_EVENTS:
            return self.files
        if kind in NEW_FILE_EVENTS:
            return self.news
        return self.apart if kind in QUERY_EVENTS else self.rng

    def saw(self, *what: str) -> None:
        """Count something that a run should meet now and then, and that is no fault."""
        self.counts[" ".join(what)] += 1

    def chance(self, probability: float) -> bool:
        """Whether something ordinary happens now."""
        return self.rng.random() < probability

    def note(self, *what: object) -> None:
        """Remember for the trace."""
        self.trace.append(what)

    def deliver_late(self) -> None:
        """Let one request that was held up in the network arrive, any one of them."""
        if self.late:
            self.late.pop(self.rng.randrange(len(self.late)))()


class OneFault(World):
    """A world in which one fault happens once: the `number`th time that it could."""

    def __init__(self, seed: int, kind: str, number: int) -> None:
        super().__init__(seed)
        self._kind = kind
        self._number = number
        self.chances = 0

    def happens(self, kind: str) -> bool:
        """Whether this is the one."""
        if self.healed or kind != self._kind:
            return False
        self.chances += 1
        if self.chances == self._number:
            self.note("FAULT", kind)
        return self.chances == self._number
