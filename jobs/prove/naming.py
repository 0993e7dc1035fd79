"""Differing keys by name: digests do not have them, so source and sink are read once more.

In: digests, and the rows of both sides as texts. Out: Examples, with the values that differ where these were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jobs.prove.compare import Digester, named
from jobs.prove.render import shown
from jobs.prove.result import Difference, Example
from jobs.prove.source import TextRow


def examples(
    columns: Sequence[str],
    digester: Digester,
    wanted: Mapping[bytes, Difference],
    sides: tuple[Iterable[TextRow], Iterable[TextRow]],
    *,
    with_values: bool,
) -> tuple[Example, ...]:
    """An example for each digest that `sides`, the source's and the sink's rows, still have; in a stable order."""
    source, sink = sides
    theirs = dict(named(digester, source, wanted))
    ours = dict(named(digester, sink, wanted if with_values else wanted.keys() - theirs.keys()))
    found = []
    for digest, difference in wanted.items():
        left, right = theirs.get(digest), ours.get(digest)
        row = left or right
        if row is None:
            continue
        key = {columns[at]: shown(row[at]) for at in digester.key_at}
        values = _values(columns, left, right) if with_values else (None, None)
        found.append(Example(difference, key, *values))
    return tuple(sorted(found, key=lambda each: (each.difference.value, [value or "" for value in each.key.values()])))


_Values = Mapping[str, str | None] | None


def _values(columns: Sequence[str], left: TextRow | None, right: TextRow | None) -> tuple[_Values, _Values]:
    """What differs between two rows; all of a row that has no counterpart."""
    if left is not None and right is not None:
        at = [place for place, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1]]
    else:
        at = list(range(len(columns)))
    one, other = (None if row is None else {columns[place]: shown(row[place]) for place in at} for row in (left, right))
    return one, other
