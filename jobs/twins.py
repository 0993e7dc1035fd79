"""The twin of a view: the same view under another name, loaded beside the live one and shown in its place at the end.

In: a pipeline's targets. Out: those of a view's twin, each with the live one. Keeps true: no view and no mirror has a
twin's name; a twin reads what the live one reads, but its sinks follow its own table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from jobs.batch import TABLE, Target

SINKS: Final = frozenset({TABLE, "search", "cache"})
"""Those that can hold rows that no reader sees; others are replaced after the swap."""
_PREFIX: Final = "_next_"


def twin_name(view: str) -> str:
    """What a view's twin is called."""
    return _PREFIX + view


def live_name(view: str) -> str:
    """The view that a twin belongs to; any other is itself."""
    return view.removeprefix(_PREFIX)


def is_twin(target: Target) -> bool:
    """Whether no reader sees it."""
    return target.view.startswith(_PREFIX)


def twins_of(targets: Iterable[Target], view: str) -> dict[Target, Target]:
    """The view's targets that have a twin, with it; its table comes first."""
    live = sorted((each for each in targets if each.view == view and each.sink in SINKS), key=_order)
    return {each: _twin(each) for each in live}


def without_twin(targets: Collection[Target], view: str) -> list[Target]:
    """The view's other targets."""
    return [target for target in targets if target.view == view and target.sink not in SINKS]


def _twin(target: Target) -> Target:
    name = twin_name(target.view)
    follows = target.is_derived and target.sink != TABLE
    return replace(target, view=name, reads=(name,) if follows else target.reads)


def _order(target: Target) -> tuple[bool, str]:
    return target.sink != TABLE, target.sink
