"""The nearest right name, for errors about wrong ones.

In: what was written and what there is. Out: a short remedy; it never guesses on the user's behalf.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

LISTED_MAX: Final = 12


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like the wrong one, if any does; case does not count."""
    by_folded: dict[str, str] = {}
    for name in sorted(known):
        by_folded.setdefault(name.casefold(), name)
    found = difflib.get_close_matches(wrong.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def suggestion(wrong: str, known: Iterable[str], *, what: str = "names") -> str:
    """`did you mean status?`, or the list of what there is."""
    names = sorted(set(known))
    found = nearest(wrong, names)
    if found is not None:
        return f"did you mean {found}?"
    if not names:
        return f"there are no {what}"
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return f"known {what}: {', '.join(names[:LISTED_MAX])}{more}"
