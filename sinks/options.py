"""What a sink's options in a view's header say, checked when the sink is made, before anything connects.

In: the header's texts. Out: one sink's options as they are, their fingerprint, and ConfigErrors with the nearest name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from sinks.spec import SinkOptions, ViewSpec


def check_known(option: SinkOptions, known: Iterable[str], spec: ViewSpec) -> None:
    """Refuse options that the sink doesn't have."""
    names = tuple(known)
    for name in option.options:
        if name not in names:
            message = f"view {spec.name}: the sink {option.name} has no option {name}"
            raise ConfigError(message, suggestion(name, names, what="options"))


def refuse_columns(spec: ViewSpec, sink: str, reserved: Iterable[str]) -> None:
    """Refuse columns whose names the store keeps for itself."""
    for name in sorted(set(reserved) & set(spec.columns)):
        message = f"view {spec.name}: the sink {sink} cannot hold a column called {name}"
        raise ConfigError(message, f'rename it in the view: SELECT {name} AS "{name.lstrip("_")}"')


def declaration(option: SinkOptions, spec: ViewSpec, *more: str) -> str:
    """A fingerprint of the view and of how this sink keeps it: another one needs another load."""
    parts = [spec.fingerprint, spec.columns, spec.key, option.name, dict(option.options), *more]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
