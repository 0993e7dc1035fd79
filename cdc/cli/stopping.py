"""SIGTERM and Ctrl-C as an event: the loops look at it between two steps and end in good order."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def stop_event(stop: threading.Event | None = None) -> threading.Event:
    """Set by the first signal; a second one ends the process at once. Give the event again to take signals back."""
    stop = stop or threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop
