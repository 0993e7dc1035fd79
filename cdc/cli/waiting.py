"""`afterimage wait`: read your own writes: returns when the views have reached a position of the log.

A Delta table has reached it when the ledger says so too: then queries, which read by the ledger, see it as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

from cdc.cli.positions import parse_position
from cdc.cli.report import ViewStanding
from cdc.cli.screen import err, out
from cdc.cli.standing import Observer
from cdc.cli.views import named_views
from cdc.errors import ConfigError, OperatorError, TransientError
from cdc.evolution import heals
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.ledger import Ledger

_EVERY_S: Final = 0.1


def run_wait(settings: Settings, text: str, names: Sequence[str], *, timeout_s: float, as_json: bool) -> int:
    """Wait; a TransientError (exit 1) says which views are not there in time."""
    lsn = parse_position(text)
    wrong: dict[str, ConfigError] = {}
    if names:
        named_views(settings, names, wrong.__setitem__)
    observer = Observer(settings)
    ledger = Ledger(settings.delta_root, settings.delta.storage_options)
    began_s = time.monotonic()
    try:
        with err.status(f"waiting for {format_lsn(lsn)}"):
            while behind := _behind(observer, ledger, lsn, names, wrong):
                if time.monotonic() - began_s > timeout_s:
                    raise _too_late(lsn, behind, timeout_s)
                time.sleep(_EVERY_S)
    finally:
        observer.close()
    waited_s = time.monotonic() - began_s
    if as_json:
        out.print_json(json.dumps({"lsn": format_lsn(lsn), "seconds": round(waited_s, 3)}))
    else:
        out.print(f"all views have reached {format_lsn(lsn)} ({waited_s:.1f} s)")
    return 0


def _behind(
    observer: Observer, ledger: Ledger, lsn: int, names: Sequence[str], wrong: Mapping[str, ConfigError]
) -> list[ViewStanding]:
    report = observer.look()
    views = [view for view in report.views if not names or view.view in names]
    for name in wrong.keys() - {view.view for view in views}:
        raise wrong[name]
    for view in views:
        if view.stopped is not None and not heals(view.stopped) and (view.lsn is None or view.lsn < lsn):
            raise OperatorError(
                f"{view.view} will not get there: {view.stopped.message}",
                f"{view.stopped.remedy}; to wait for other views, name them",
                code="TABLE_STOPPED",
            )
    behind = [view for view in views if view.lsn is None or view.lsn < lsn]
    return behind or _unrecorded(ledger, lsn, views) or ([] if views else _nothing())


def _unrecorded(ledger: Ledger, lsn: int, views: Sequence[ViewStanding]) -> list[ViewStanding]:
    """Tables that are there, while the batch has yet to end."""
    tables = [view for view in views if view.sink == "delta"]
    state = ledger.read() if tables else None
    rows = state.rows if state is not None else {}
    return [view for view in tables if view.view not in rows or rows[view.view].lsn < lsn]


def _nothing() -> list[ViewStanding]:
    return [ViewStanding("no view", "any sink", None, None, None)]


def _too_late(lsn: int, behind: Sequence[ViewStanding], timeout_s: float) -> TransientError:
    stands = ", ".join(
        f"{view.view} in {view.sink} at {format_lsn(view.lsn) if view.lsn is not None else 'no position'}"
        for view in behind[:5]
    )
    return TransientError(
        f"not at {format_lsn(lsn)} after {timeout_s:g} s: {stands}",
        "do capture and apply run? see `afterimage status`",
        code="WAIT_TIMEOUT",
    )
