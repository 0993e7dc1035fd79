"""Every kind of sink, one line each.

In: a sink's option in a view's header, the view, the settings. Out: the Sink, or a ConfigError with the nearest name.
Nothing connects here; a sink's module, with its client, is imported when a view first asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from cdc.errors import CdcError, ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings
from sinks.protocol import Sink
from sinks.spec import SinkOptions, ViewSpec

Factory = Callable[[SinkOptions, ViewSpec, Settings, Any], Sink]


def make_sink(option: SinkOptions, spec: ViewSpec, settings: Settings, spark: Any = None) -> Sink:
    """The sink that the option names; only Delta needs the Spark session."""
    if option.name not in FACTORIES:
        message = f"view {spec.name}: there is no sink called {option.name}"
        raise ConfigError(message, suggestion(option.name, FACTORIES, what="sinks"))
    return FACTORIES[option.name](option, spec, settings, spark)


def _delta(option: SinkOptions, spec: ViewSpec, settings: Settings, _: Any) -> Sink:
    from sinks.delta import DeltaSink

    return DeltaSink(settings.delta, settings.pipeline, spec)


def _search(option: SinkOptions, spec: ViewSpec, settings: Settings, _: Any) -> Sink:
    from sinks.search import SearchSink

    return SearchSink(settings.search, settings.pipeline, spec, option)


def _cache(option: SinkOptions, spec: ViewSpec, settings: Settings, _: Any) -> Sink:
    from sinks.cache import CacheSink

    return CacheSink(settings.cache, settings.pipeline, spec, option)


def _kafka(option: SinkOptions, spec: ViewSpec, settings: Settings, _: Any) -> Sink:
    from sinks.kafka import KafkaSink

    return KafkaSink(settings.kafka, settings.pipeline, spec, option)


def _history(option: SinkOptions, spec: ViewSpec, settings: Settings, _: Any) -> Sink:
    from sinks.history.sink import HistorySink

    return HistorySink(settings, spec, option)


FACTORIES: Final[dict[str, Factory]] = {
    "delta": _delta,
    "search": _search,
    "cache": _cache,
    "kafka": _kafka,
    "history": _history,
}


def remove_view(
    settings: Settings, view: str, sinks: Collection[str] | None = None
) -> tuple[list[str], list[CdcError]]:
    """Remove what any store holds of a view that nothing declares: where something was, and who could not be asked.

    A view's file is gone, so nobody knows which sinks it had, unless these are told; a store that no view uses may be
    away.
    """
    from sinks.cache.removal import remove as from_cache
    from sinks.delta.removal import remove as from_delta
    from sinks.kafka.removal import remove as from_kafka
    from sinks.search.removal import remove as from_search

    removers = {"delta": from_delta, "search": from_search, "cache": from_cache, "kafka": from_kafka}
    found, errors = [], []
    for name, remove in removers.items():
        if sinks is not None and name not in sinks:
            continue
        try:
            if remove(settings, view):
                found.append(name)
        except CdcError as error:
            errors.append(error)
    return found, errors
