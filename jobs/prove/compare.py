"""Two sets of rows compared per key, exactly, in 16 bytes a row: a digest of the key and one of the whole row.

In: rows as texts. Out: the digests of keys that are missing, extra, different or not unique, and those keys by name.
Digests are salted anew for each proof, so no content can be made to collide.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from jobs.prove.result import EXAMPLES_MAX, Difference

_HALF: Final = 8  # bytes of each of the two digests
PAIR_BYTES: Final = 2 * _HALF
_PAIR: Final = np.dtype([("key", "<u8"), ("row", "<u8")])

_PART_ROWS: Final = 200_000
_PARTS_MAX: Final = 256

TextRow = tuple[str | None, ...]
Keys = NDArray[np.uint64]


class Digester:
    """Digests of one view's rows; `key_at` are the positions of its key columns."""

    def __init__(self, key_at: Sequence[int], salt: bytes | None = None) -> None:
        self.key_at = tuple(key_at)
        self._salt = salt or secrets.token_bytes(16)

    def key(self, row: TextRow) -> bytes:
        """The digest of a row's key."""
        return self.of_key([row[at] for at in self.key_at])

    def of_key(self, key: Iterable[str | None]) -> bytes:
        """The digest of a key alone."""
        return self._digest(key)

    def all(self, rows: Iterable[TextRow]) -> bytearray:
        """Key and row digests of all rows, side by side."""
        pairs = bytearray()
        for row in rows:
            pairs += self.key(row)
            pairs += self._digest(row)
        return pairs

    def _digest(self, values: Iterable[str | None]) -> bytes:
        # Postgres' texts have no NUL, so the encoding is unambiguous; a sink's text with NUL equals none of them.
        text = "\0".join(["n" if value is None else "v" + value for value in values])
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HALF, key=self._salt).digest()


@dataclass(frozen=True, slots=True)
class Compared:
    """The digests of differing keys; a key stands under one difference only."""

    keys: Mapping[Difference, Keys]

    def count(self, difference: Difference) -> int:
        """How many keys differ so."""
        return len(self.keys[difference])

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not any(len(keys) for keys in self.keys.values())

    def by_key(self) -> dict[bytes, Difference]:
        """Every differing key's digest."""
        return {key.tobytes(): kind for kind in Difference for key in self.keys[kind].astype("<u8")}

    def without(self, difference: Difference) -> Compared:
        """All but those that differ so."""
        return Compared({**self.keys, difference: self.keys[difference][:0]})

    def with_repeated(self, keys: Iterable[bytes]) -> Compared:
        """With these keys as not unique, whatever they were before."""
        repeated = np.union1d(self.keys[Difference.DUPLICATE], np.frombuffer(b"".join(keys), "<u8"))
        others = {kind: keys[~np.isin(keys, repeated)] for kind, keys in self.keys.items()}
        return Compared({**others, Difference.DUPLICATE: repeated})

    def sample(self, keys_max: int = EXAMPLES_MAX) -> dict[bytes, Difference]:
        """A few keys, to be named: of each difference as many as of any other, while there are so many."""
        found: dict[bytes, Difference] = {}
        kinds = sorted(Difference, key=self.count)
        for others, kind in zip(reversed(range(1, len(kinds) + 1)), kinds, strict=True):
            share = (keys_max - len(found)) // others
            found |= dict.fromkeys((key.tobytes() for key in self.keys[kind][:share].astype("<u8")), kind)
        return found


def compare(source: bytearray, sink: bytearray) -> Compared:
    """What has to change for the sink to equal the source; by parts, since sorting needs room for its part again."""
    theirs, ours = (np.frombuffer(pairs, dtype=_PAIR) for pairs in (source, sink))
    parts = min(_PARTS_MAX, 1 + max(len(theirs), len(ours)) // _PART_ROWS)
    of_theirs, of_ours = ((rows["key"] % np.uint64(parts)).astype(np.uint8) for rows in (theirs, ours))
    found = [_compare_part(theirs[of_theirs == part], ours[of_ours == part]) for part in range(parts)]
    return Compared({kind: np.concatenate([part[kind] for part in found]) for kind in Difference})


def _compare_part(theirs: NDArray[Any], ours: NDArray[Any]) -> dict[Difference, Keys]:
    theirs, ours = (rows[np.argsort(rows["key"])] for rows in (theirs, ours))
    duplicate = np.union1d(_repeated(theirs["key"]), _repeated(ours["key"]))
    theirs, ours = _without(theirs, duplicate), _without(ours, duplicate)
    _, at, here = np.intersect1d(theirs["key"], ours["key"], assume_unique=True, return_indices=True)
    return {
        Difference.DUPLICATE: duplicate,
        Difference.DIFFERENT: theirs["key"][at][theirs["row"][at] != ours["row"][here]],
        Difference.MISSING: np.setdiff1d(theirs["key"], ours["key"], assume_unique=True),
        Difference.EXTRA: np.setdiff1d(ours["key"], theirs["key"], assume_unique=True),
    }


def keys_of(pairs: bytearray) -> Keys:
    """The digests of the keys alone, in no particular order."""
    return np.frombuffer(pairs, dtype=_PAIR)["key"].copy()


def named(digester: Digester, rows: Iterable[TextRow], wanted: Iterable[bytes]) -> Iterator[tuple[bytes, TextRow]]:
    """The rows behind wanted digests of keys, one each, as far as there are any; stops when all are found."""
    left = set(wanted)
    for row in rows:
        if not left:
            return
        digest = digester.key(row)
        if digest in left:
            left.remove(digest)
            yield digest, row


def _repeated(keys: Keys) -> Keys:
    """Of sorted keys, those that occur more than once."""
    return np.unique(keys[1:][keys[1:] == keys[:-1]])


def _without(rows: NDArray[Any], keys: Keys) -> NDArray[Any]:
    return rows[~np.isin(rows["key"], keys)] if len(keys) else rows
