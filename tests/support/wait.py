"""The one way to wait in tests: ask until it is true, up to a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

POLL_S = 0.02


def wait_until(
    predicate: Callable[[], Answer], *, timeout_s: float = 120.0, what: str = "the condition", poll_s: float = POLL_S
) -> Answer:
    """The first true answer; an AssertionError with the last one if none comes in time.

    The limit costs time in failures alone: tests run on slow and busy machines.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s; the last answer was {answer!r}")
        time.sleep(poll_s)
    return answer
