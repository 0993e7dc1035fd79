"""Changes to good inputs, from a seed: what a torn, doubled, misread or hostile message looks like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

_ODD = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xed\xa0\x80",
)
LENGTH_MAX = 1 << 16


def inputs(seeds: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Without end; the same for the same seed."""
    random = Random(seed)
    while True:
        data = bytearray(random.choice(seeds))
        for _ in range(random.choice((1, 1, 1, 2, 4, 8))):
            _change(random, data, seeds)
        yield bytes(data[:LENGTH_MAX])


def _change(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    # The head of a message, where kinds and lengths are, is changed as often as all the rest.
    end = len(data) if random.random() < 0.5 else min(len(data), 48)
    at = random.randint(0, max(end - 1, 0))
    match random.randint(0, 7):
        case 0:
            data[at : at + 1] = bytes([data[at] ^ 1 << random.randint(0, 7)]) if data else b"\x00"
        case 1:
            data[at : at + 1] = random.randbytes(1)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + random.randint(1, 8)]
        case 4:
            data[at:at] = random.choice(_ODD)
        case 5:
            odd = random.choice(_ODD)
            data[at : at + len(odd)] = odd
        case 6:
            data[at:at] = data[at : at + random.randint(1, 64)]
        case _:
            other = random.choice(seeds)
            start = random.randint(0, max(len(other) - 1, 0))
            data[at:] = other[start : start + random.randint(1, 256)]
