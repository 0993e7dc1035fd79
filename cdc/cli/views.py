"""The views that a command names: all of them, or those that exist by the given names."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings
from jobs.pipeline import captured_tables, declared
from sinks.spec import ViewSpec


def named_views(settings: Settings, names: Sequence[str]) -> list[ViewSpec]:
    """The specs of these views, of all when none is named."""
    wrong: list[ConfigError] = []
    specs = declared(settings, captured_tables(settings), wrong.append)
    # Views that are named can be seen to while another one no longer fits its table.
    if wrong and not (names and specs.keys() >= set(names)):
        raise wrong[0]
    if not specs:
        raise ConfigError(
            "nothing is captured yet",
            "start capture: `afterimage capture`, or `afterimage up`",
            code="NOTHING_CAPTURED",
        )
    for name in names:
        if name not in specs:
            raise ConfigError(f"there is no view {name}", suggestion(name, specs, what="views"), code="UNKNOWN_VIEW")
    return [specs[name] for name in names] if names else list(specs.values())
