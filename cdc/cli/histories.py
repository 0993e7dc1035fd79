"""Histories as `status` shows them: from where on each can be told, what that takes, and how many gaps it has.

In: a table's history sink. Out: a standing, as a line for people and as JSON.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from cdc.lsn import format_lsn
from cdc.sizes import size_text
from sinks.history.sink import HistorySink
from sinks.protocol import Sink


@dataclass(frozen=True, slots=True)
class HistoryStanding:
    """From where on a table's past can be told, and what that takes."""

    begin_lsn: int
    begin_us: int
    size_bytes: int
    gaps: tuple[tuple[int, int], ...]


def history_of(sink: Sink) -> HistoryStanding | None:
    """None for other sinks, and before there is one."""
    found = sink.reach() if isinstance(sink, HistorySink) else None
    return HistoryStanding(found[0].begin_lsn, found[0].begin_us, found[1], found[0].gaps) if found else None


def history_dict(history: HistoryStanding | None) -> dict[str, Any] | None:
    """For programs."""
    if history is None:
        return None
    return {
        "begin_lsn": format_lsn(history.begin_lsn),
        "begin_ts": _time(history.begin_us),
        "size_bytes": history.size_bytes,
        "gaps": [[format_lsn(low), format_lsn(high)] for low, high in history.gaps],
    }


def history_line(view: str, history: HistoryStanding) -> str:
    """For people."""
    gaps = f", {len(history.gaps)} gaps" if history.gaps else ""
    since = f"{format_lsn(history.begin_lsn)} ({_time(history.begin_us)})"
    return f"history of {view}: since {since}, {size_text(history.size_bytes)}{gaps}"


def _time(us: int) -> str:
    return dt.datetime.fromtimestamp(us / 1e6, dt.UTC).isoformat(" ", "seconds")
