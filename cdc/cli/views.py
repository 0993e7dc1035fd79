"""The views that a command names: all of them, or those that exist by the given names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings
from jobs.declarations import Tables, captured_tables, declared, live_views
from jobs.declare import OnError
from jobs.declare.load import tell
from jobs.query.awaited import not_loaded
from sinks.spec import ViewSpec

Declare = Callable[[Settings, Tables, OnError], Mapping[str, ViewSpec]]


def named_views(settings: Settings, names: Sequence[str], left_out: OnError | None = None) -> list[ViewSpec]:
    """The specs of these views as their files say, of all when none is named.

    With `left_out`, those of them whose files are wrong are told to it; else the first one is raised.
    """
    return _named(settings, names, declared, left_out)


def live_named_views(settings: Settings, names: Sequence[str], left_out: OnError | None = None) -> list[ViewSpec]:
    """The same as the rows in the sinks have it, whose files may have changed or be wrong: for who compares these."""
    return _named(settings, names, live_views, left_out)


def views_to_come(settings: Settings, live: Collection[str]) -> list[str]:
    """Views that are declared and not among these: nothing of them has been shown yet."""
    return sorted(declared(settings, captured_tables(settings), lambda *_: None).keys() - set(live))


def _named(settings: Settings, names: Sequence[str], declare: Declare, left_out: OnError | None) -> list[ViewSpec]:
    wrong: dict[str, ConfigError] = {}
    tables = captured_tables(settings)
    specs = declare(settings, tables, wrong.__setitem__)
    # Views that are named can be seen to while another one no longer fits its table.
    lost = {name: error for name, error in wrong.items() if name not in specs and (not names or name in names)}
    for name, error in lost.items():
        tell(name, error, left_out)
    if not specs:
        raise ConfigError(
            "nothing is captured yet",
            "start capture: `afterimage capture`, or `afterimage up`",
            code="NOTHING_CAPTURED",
        )
    for name in names:
        if name in specs or name in lost:
            continue
        if name in declared(settings, tables, lambda *_: None):
            raise not_loaded(name)
        raise ConfigError(f"there is no view {name}", suggestion(name, specs, what="views"), code="UNKNOWN_VIEW")
    return [specs[name] for name in names if name in specs] if names else list(specs.values())
