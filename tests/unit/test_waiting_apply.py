"""An apply process that waits for another one to end can be asked to stop."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from cdc.cli import applying


class Taken:
    """The control topic, of which somebody else is the owner."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> Taken:
        return self

    def __exit__(self, *_: object) -> None: ...

    def acquire(self, _: float, on_wait: Any) -> None:
        on_wait("host:1", 1.0)
        self._stop.set()
        on_wait("host:1", 2.0)
        raise AssertionError("it waits on")


def test_it_ends_in_good_order(monkeypatch: pytest.MonkeyPatch):
    stop = threading.Event()
    monkeypatch.setattr(applying, "ControlServer", lambda _: Taken(stop))

    assert applying._apply_while_owner(cast(Any, None), cast(Any, None), stop, once=False)
