"""What would put a sink right: the source's rows of the keys that differ, and the keys that the source does not have.

In: digests of differing keys, and the rows of both sides at one LSN. Out: a Mend, as Postgres prints the values; what
it cannot cover is counted. It holds rows: it goes to whoever owns the sinks in this process, never to a log or a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from jobs.prove.compare import Compared, Digester, TextRow
from jobs.prove.result import Difference, Mended

KEYS_MAX: Final = 20_000
"""Where more keys than this differ in one sink, a rebuild is the remedy."""


@dataclass(frozen=True, slots=True)
class Mend:
    """`rows` are whole rows to be written, `gone` the keys to be removed; `left` keys differ and are in neither."""

    view: str
    sink: str
    lsn: int
    rows: tuple[TextRow, ...] = field(repr=False)
    gone: tuple[TextRow, ...] = field(repr=False)
    left: int = 0


Mender = Callable[[Mend], Mended]


def mend_of(
    view: str,
    sink: str,
    lsn: int,
    digester: Digester,
    found: Compared,
    sides: tuple[Iterable[TextRow], Iterable[TextRow]],
) -> Mend:
    """The mend of what was found; `sides` are the source's and the sink's rows, read once more."""
    wanted = found.by_key()
    if len(wanted) > KEYS_MAX:
        return Mend(view, sink, lsn, (), (), left=len(wanted))
    source, stored = sides
    times: Counter[bytes] = Counter()
    rows: dict[bytes, TextRow] = {}
    for digest, row in _of(digester, source, wanted):
        times[digest] += 1
        rows[digest] = row
    # A key that the source itself has twice is no key: nothing can be put right there.
    unique = {digest: row for digest, row in rows.items() if times[digest] == 1}
    surplus = {digest for digest, kind in wanted.items() if kind in _SURPLUS and digest not in rows}
    gone = {digest: tuple(row[at] for at in digester.key_at) for digest, row in _of(digester, stored, surplus)}
    left = len(wanted) - len(unique) - len(gone)
    return Mend(view, sink, lsn, tuple(unique.values()), tuple(gone.values()), left)


_SURPLUS: Final = (Difference.EXTRA, Difference.DUPLICATE)


def _of(digester: Digester, rows: Iterable[TextRow], wanted: Iterable[bytes]) -> Iterable[tuple[bytes, TextRow]]:
    """The rows whose key is wanted, each time that it occurs."""
    some = frozenset(wanted)
    if some:
        for row in rows:
            digest = digester.key(row)
            if digest in some:
                yield digest, row
