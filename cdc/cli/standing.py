"""Where everything stands, gathered from the source, Kafka and every sink: what `status`, `wait` and the demo show.

In: settings. Out: a Report. Keeps true: a part that is away is reported as away and hides nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from cdc.changes import Trouble
from cdc.cli.histories import history_of
from cdc.cli.report import Report, SourceStanding, ViewStanding
from cdc.errors import CdcError, ConfigError
from cdc.postgres import connect
from cdc.progress import Progress
from cdc.progress_log import ProgressLog
from cdc.resume import SlotState, obstacle
from cdc.retention import judge, written_per_s
from cdc.settings import Settings
from cdc.slots import read_retention
from jobs.batch import TABLE, Target
from jobs.control import apply_owner
from jobs.control.kept import Declared, Kept, Rebuilding, Unshown
from jobs.control.proved import kept_records, proofs_of
from jobs.control.stopped import troubles_of
from jobs.ledger import Ledger, LedgerState
from jobs.left_behind import left_behind
from jobs.left_out import is_left_out, sinks_of, trouble_of
from jobs.pipeline import Pipeline, load_pipeline
from jobs.recording import folders, located
from jobs.refresh.outcome import Outcome
from jobs.view_files import FolderState, folder_state, undeclared
from sinks.delta import DeltaSink, Figures
from sinks.protocol import Position, Sink

T = TypeVar("T")

_RATE_WINDOW_S: Final = 1.0


class Observer:
    """Looks again and again; with `measure_rate` each look takes a second longer, and measures Delta tables too."""

    def __init__(self, settings: Settings, *, measure_rate: bool = False) -> None:
        self._settings = settings
        self._measure_rate = measure_rate
        self._ledger = Ledger(settings.delta_root, settings.delta.storage_options)
        self._log: ProgressLog | None = None
        self._pipeline: Pipeline | None = None
        self._schemas = 0
        self._files: FolderState = ()
        self._wrong: dict[str, ConfigError] = {}
        self._state: LedgerState | None = None

    def close(self) -> None:
        """Leave the broker."""
        if self._log is not None:
            self._log.close()

    def look(self) -> Report:
        """One report."""
        problems: list[str] = []
        with ThreadPoolExecutor(4) as pool:
            parts = (
                pool.submit(_asked, self._source, problems),
                pool.submit(_asked, self._progress, problems),
                pool.submit(_asked, lambda: apply_owner(self._settings), problems),
            )
            asked = pool.submit(_asked, lambda: kept_records(self._settings), problems)
        source, progress, owner = parts[0].result(), parts[1].result(), parts[2].result()
        if self._obstacle(source, progress) is not None:  # looked at at one time, so perhaps in the wrong order
            source, progress = _asked(self._source, problems), _asked(self._progress, problems)
            if (error := self._obstacle(source, progress)) is not None:
                problems.append(_problem(error))
        kept = asked.result() or []
        views = self._views(source, progress, troubles_of(kept), problems) if progress is not None else ()
        lag_bytes, lag_s = _lag(source, progress.lsn if progress else None, progress.source_ts_us if progress else None)
        views = (*self._new_views(kept), *self._left_out(kept, progress, problems), *views)
        problems += [
            f"the changed file of {each.view} is not shown: {each.message} ({each.code})\n  {each.remedy}"
            for each in kept
            if isinstance(each, Unshown) and not all(map(self._is_new, self._group(each.view)))
        ]
        told = tuple(dict.fromkeys(problems))
        # What a process that was killed has told is old, and a new one withdraws it.
        rebuilding = tuple(each for each in kept if isinstance(each, Rebuilding) and owner is not None)
        changed = tuple(view for group in self._groups for view in group if not self._is_new(view))
        shown = proofs_of(kept), self._gone(kept), rebuilding, changed
        return Report(source, progress, lag_bytes, lag_s, owner, views, told, *shown, left=self._left(kept))

    def _gone(self, kept: Sequence[Kept]) -> tuple[str, ...]:
        """Tables, and views in whichever sinks, that nothing declares any more."""
        if self._pipeline is None:
            return ()
        known = {*self._pipeline.specs, *self._pipeline.coming.specs}
        live = {each.view for each in kept if isinstance(each, Declared)}
        unread = undeclared(folders(self._pipeline.sinks.values()), self._state)
        return tuple(sorted(view for view in {*unread, *live} - known if not is_left_out(view, self._wrong)))

    def _left(self, kept: Sequence[Kept]) -> dict[str, tuple[str, ...]]:
        if self._pipeline is None:
            return {}
        return left_behind(kept, self._state, self._pipeline.specs, self._pipeline.coming.specs)

    @property
    def _groups(self) -> tuple[tuple[str, ...], ...]:
        return self._pipeline.coming.groups if self._pipeline is not None else ()

    def _group(self, view: str) -> tuple[str, ...]:
        """The views that come with it."""
        return next((group for group in self._groups if view in group), ())

    def _is_new(self, view: str) -> bool:
        """Whether it is coming, and nothing of it is live yet."""
        return self._pipeline is not None and view not in self._pipeline.specs

    def _is_one_sink_more(self, target: Target) -> bool:
        """Whether the rest of its view is live as it is to be."""
        assert self._pipeline is not None
        live, coming = self._pipeline.specs[target.view], self._pipeline.coming.specs[target.view]
        return target not in self._pipeline.sinks and live.fingerprint == coming.fingerprint

    def _new_views(self, kept: Sequence[Kept]) -> Iterator[ViewStanding]:
        """They stand nowhere, and so do new sinks of others; what could not be shown has stopped."""
        unshown = {
            each.view: Trouble(each.code, each.message, each.remedy) for each in kept if isinstance(each, Unshown)
        }
        for target in self._pipeline.coming.sinks if self._pipeline is not None else ():
            if self._is_new(target.view) or self._is_one_sink_more(target):
                found = [unshown[view] for view in self._group(target.view) if view in unshown]
                yield ViewStanding(target.view, target.sink, None, None, None, stopped=next(iter(found), None))

    def _source(self) -> SourceStanding:
        source, slot = self._settings.source, self._settings.slot
        with connect(source, source.read, application="afterimage status") as connection:
            retention, rate = read_retention(connection, slot), None
            if self._measure_rate:
                began_s = time.monotonic()
                time.sleep(_RATE_WINDOW_S)  # while the other parts are asked
                earlier, retention = retention, read_retention(connection, slot)
                rate = written_per_s(earlier, retention, time.monotonic() - began_s)
        return SourceStanding(retention, rate, judge(retention, source.wal_bounds, slot, rate))

    def _progress(self) -> Progress | None:
        if self._log is None:
            self._log = ProgressLog(self._settings.kafka, self._settings.pipeline)
        return self._log.newest()

    def _obstacle(self, source: SourceStanding | None, progress: Progress | None) -> CdcError | None:
        """Why capture would not start again, as far as that is told nowhere else."""
        if source is None or progress is None or not progress.is_boundary:
            return None
        kept = source.retention
        slot = SlotState(self._settings.slot, kept.confirmed_lsn, None, "", "", kept.reason is not None, kept.reason)
        found = obstacle(progress, slot if kept.active is not None else None) if not kept.active else None
        return found if found is not None and found.code != "SLOT_LOST" else None

    def _left_out(self, kept: Sequence[Kept], progress: Progress | None, problems: list[str]) -> Iterator[ViewStanding]:
        """Those that were live stand where they were; of what else is wrong with files, it is told alone."""
        if not self._wrong or self._pipeline is None or progress is None:
            return
        known = {each.view for each in kept if isinstance(each, Declared)}
        ledger = _asked(self._ledger.read, problems)
        rows = ledger.rows if ledger is not None else {}
        for view, error in self._wrong.items():
            if view in self._pipeline.specs or not (view in known or view in rows):
                problems.append(_problem(error))
                continue
            for sink in sinks_of(self._settings, view):
                row = rows.get(view) if sink == TABLE else None
                position = Position(row.lsn, row.source_ts_us, {}) if row is not None else None
                yield replace(
                    _view(Target(view, sink, ""), position, None, None, progress), stopped=trouble_of(view, error)
                )

    def _views(
        self, source: SourceStanding | None, progress: Progress, alone: Mapping[str, Trouble], problems: list[str]
    ) -> tuple[ViewStanding, ...]:
        if not progress.is_boundary:
            return ()
        files = folder_state(self._settings.views)
        is_same = (self._schemas, self._files) == (progress.schemas, files)
        if self._pipeline is None or not is_same or self._pipeline.coming.groups:
            self._wrong = {}
            self._pipeline = _asked(lambda: load_pipeline(self._settings, self._wrong.__setitem__), problems)
            self._schemas, self._files = progress.schemas, files
        if self._pipeline is None:
            return ()
        sinks = self._pipeline.sinks
        with ThreadPoolExecutor(8) as pool:
            asked = dict(zip(sinks, pool.map(lambda sink: _position(sink.position), sinks.values()), strict=True))
        own = {target: found for target, (found, _) in asked.items()}
        ledger = self._state = _asked(self._ledger.read, problems)
        positions = located(sinks, own, ledger)
        tables = self._tables(sinks)
        return tuple(
            replace(
                _view(target, position, asked[target][1], source, progress),
                stopped=self._pipeline.specs[target.view].stopped or alone.get(target.view),
                refreshed=_refreshed(target, ledger),
                history=_asked(partial(history_of, sinks[target]), problems),
                table=tables.get(target),
            )
            for target, position in positions.items()
        )

    def _tables(self, sinks: Mapping[Target, Sink]) -> dict[Target, Figures | None]:
        found = {target: sink for target, sink in sinks.items() if self._measure_rate and isinstance(sink, DeltaSink)}
        with ThreadPoolExecutor(8) as pool:
            return dict(zip(found, pool.map(lambda sink: _asked(sink.figures, []), found.values()), strict=True))


def _refreshed(target: Target, ledger: LedgerState | None) -> Outcome | None:
    row = ledger.rows.get(target.view) if ledger is not None and target.sink == TABLE else None
    return Outcome.from_json(row.refreshed) if row is not None else None


def _asked(ask: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return ask()
    except CdcError as error:
        problems.append(_problem(error))
        return None


def _problem(error: CdcError) -> str:
    return f"{error.message} ({error.code})" + (f"\n  {error.hint}" if error.hint else "")


def _position(ask: Callable[[], Position | None]) -> tuple[Position | None, str | None]:
    try:
        return ask(), None
    except CdcError as error:
        return None, error.message


def _view(
    target: Target, position: Position | None, error: str | None, source: SourceStanding | None, progress: Progress
) -> ViewStanding:
    if position is None:
        return ViewStanding(target.view, target.sink, None, None, None, error)
    if position.lsn >= progress.lsn:
        behind_bytes, behind_s = _lag(source, progress.lsn, progress.source_ts_us)
    else:
        behind_bytes, behind_s = _lag(source, position.lsn, position.source_ts_us)
    moment = position.lsn, behind_bytes, behind_s
    return ViewStanding(target.view, target.sink, *moment, error, unfit=position.unfit)


def _lag(source: SourceStanding | None, lsn: int | None, ts_us: int | None) -> tuple[int | None, float | None]:
    if source is None or lsn is None or ts_us is None:
        return None, None
    behind = max(0, source.lsn - lsn)
    return behind, max(0.0, time.time() - ts_us / 1e6) if behind else 0.0
