"""The twin of a view: the same view under another name, loaded beside the live one and shown in its place at the end.

In: a pipeline's targets. Out: those of views' twins, each with the live one. Keeps true: no view and no mirror has a
twin's name; a twin reads what the live one reads, but twins of tables that are loaded with it: if its view's is, its
other sinks follow that one.
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


def is_twin_name(view: str) -> bool:
    """Whether no reader sees the view."""
    return view.startswith(_PREFIX)


def is_twin(target: Target) -> bool:
    """Whether no reader sees it."""
    return is_twin_name(target.view)


def twins_of(targets: Iterable[Target], *views: str) -> dict[Target, Target]:
    """The views' targets that have a twin, with it; a table comes before what follows or reads it."""
    live = sorted((each for each in targets if each.view in views and each.sink in SINKS), key=_order)
    tables = {each.view for each in live if each.sink == TABLE}
    return {each: _twin(each, tables) for each in live}


def without_twin(targets: Collection[Target], *views: str) -> list[Target]:
    """The views' other targets."""
    return [target for target in targets if target.view in views and target.sink not in SINKS]


def _twin(target: Target, tables: Collection[str]) -> Target:
    reads = tuple(twin_name(name) if name in tables else name for name in target.reads)
    return replace(target, view=twin_name(target.view), reads=reads)


def _order(target: Target) -> tuple[int, bool, str, str]:
    return target.level, target.sink != TABLE, target.view, target.sink
