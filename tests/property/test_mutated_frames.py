"""The decoders on mutated recordings of five Postgres versions; `make fuzz` goes on where this stops."""

from __future__ import annotations

import tracemalloc
from itertools import islice

from tests.fuzz.mutation import inputs
from tests.fuzz.targets import DECODERS, run_one, seeds

INPUTS = 30_000


def test_what_was_recorded_is_accepted() -> None:
    accepted = {data[0] for data in seeds() if run_one(data)}
    assert accepted == set(range(len(DECODERS)))


def test_mutated_input_is_a_value_or_a_protocol_error() -> None:
    started = sorted(set(seeds()))
    accepted = sum(map(run_one, islice(inputs(started, 20261118), INPUTS)))
    # Neither all good nor all garbage: both sides of every check are reached.
    assert INPUTS // 20 < accepted < INPUTS * 19 // 20


def test_announced_lengths_take_no_memory() -> None:
    huge = b"\xff\xff\xff\xff"
    lies = [
        b"I\x00\x00\x40\x00N\xff\xff" + b"t" + huge,
        b"T" + huge + b"\x00",
        b"M\x01" + bytes(8) + b"p\x00" + huge,
        b"R\x00\x00\x40\x00s\x00t\x00d\xff\xff",
    ]
    tracemalloc.start()
    for lie in lies:
        assert not run_one(b"\x02" + lie)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
