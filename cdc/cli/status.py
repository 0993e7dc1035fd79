"""`afterimage status`: one screen for people, `--watch` to keep it, `--json` for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from cdc.backfill import Backfill
from cdc.cli.histories import history_dict, history_line
from cdc.cli.report import Report, SourceStanding, ViewStanding
from cdc.cli.screen import out
from cdc.cli.services import Service
from cdc.cli.standing import Observer
from cdc.evolution import heals
from cdc.lsn import format_lsn
from cdc.progress import Kind, Progress
from cdc.retention import SAFE, Level
from cdc.settings import Settings
from cdc.sizes import duration_text, size_text
from jobs.control import Proved
from sinks.delta import Figures

_EVERY_S: Final = 1.0
_COLOURS: Final = {Level.SAFE: "", Level.WARNING: "yellow", Level.ALARM: "bold red", Level.LOST: "bold red"}


def run_status(settings: Settings, background: list[Service], *, as_json: bool, watch: bool) -> int:
    """Show it; 1 when something is away, has ended by itself, or waits for a person."""
    observer = Observer(settings, measure_rate=True)
    try:
        if watch and not as_json:
            with Live(console=out, auto_refresh=False) as live:
                while True:
                    live.update(screen(settings, observer.look(), background), refresh=True)
                    time.sleep(_EVERY_S)
        report = observer.look()
    finally:
        observer.close()
    if as_json:
        out.print_json(json.dumps(as_dict(settings, report, background)))
    else:
        out.print(screen(settings, report, background))
    stuck = [view for view in report.views if view.stopped is not None and not heals(view.stopped)]
    wrong = [*report.problems, *_danger_text(report), *filter(_ended, background), *stuck]
    return int(bool(wrong))


def screen(settings: Settings, report: Report, background: list[Service]) -> RenderableType:
    """The report as a person reads it."""
    return Group(_summary(settings, report, background), _views(report), *_histories(report), *_problems(report))


def as_dict(settings: Settings, report: Report, background: list[Service]) -> dict[str, Any]:
    """The report as JSON."""
    source, progress = report.source, report.progress
    return {
        "pipeline": settings.pipeline,
        "source": None
        if source is None
        else {
            "lsn": format_lsn(source.lsn),
            "slot": settings.slot,
            "slot_active": source.retention.active,
            "slot_kept_bytes": source.retention.kept_bytes,
            "slot_safe_bytes": source.retention.safe_bytes,
            "slot_seconds_left": source.seconds_left,
            "slot_danger": source.danger.level.name.lower(),
            "wal_status": source.retention.wal_status,
            "wal_bytes_per_s": source.bytes_per_s,
        },
        "capture": {
            "lsn": format_lsn(progress.lsn) if progress else None,
            "kind": progress.kind.value if progress else None,
            "lag_bytes": report.capture_lag_bytes,
            "lag_seconds": report.capture_lag_s,
            "snapshot_rows": dict(progress.snapshot) if progress and progress.snapshot else None,
            "reading": [_backfill_dict(backfill) for backfill in progress.backfills] if progress else [],
        },
        "apply": {"owner": report.apply_owner},
        "services": {service.name: _state(service) for service in background},
        "lsn": format_lsn(report.common_lsn) if report.common_lsn is not None else None,
        "views": [_view_dict(view, report.proofs.get((view.view, view.sink))) for view in report.views],
        "undeclared": list(report.undeclared),
        "left": {view: list(sinks) for view, sinks in report.left.items()},
        "changed": list(report.changed),
        "rebuilding": [asdict(each) for each in report.rebuilding],
        "problems": [*report.problems, *_danger_text(report)],
    }


def _view_dict(view: ViewStanding, proved: Proved | None) -> dict[str, Any]:
    return {
        "view": view.view,
        "sink": view.sink,
        "lsn": format_lsn(view.lsn) if view.lsn is not None else None,
        "lag_bytes": view.lag_bytes,
        "lag_seconds": view.lag_s,
        "error": view.error,
        "stopped": asdict(view.stopped) if view.stopped is not None else None,
        "refreshed": view.refreshed.fields() if view.refreshed is not None else None,
        "history": history_dict(view.history),
        "dead_letters": [{"at": row.at, "columns": list(row.columns)} for row in view.unfit],
        "proved": None if proved is None else _proved_dict(proved),
        "table": asdict(view.table) if view.table is not None else None,
    }


def _proved_dict(proved: Proved) -> dict[str, Any]:
    kept = {name: getattr(proved, name) for name in ("ts_ms", "holds", "rows", "differences", "seconds", "problem")}
    return {"lsn": format_lsn(proved.lsn), **kept}


def _backfill_dict(backfill: Backfill) -> dict[str, Any]:
    return {
        "id": backfill.id,
        "table": backfill.qualified,
        "initial": backfill.initial,
        "rows": backfill.rows,
        "estimated_rows": backfill.estimated_rows,
        "share": backfill.share,
        "seconds_left": backfill.eta_s(time.time_ns() // 1000),
    }


def _reading(backfill: Backfill) -> str:
    share = f"{backfill.share:.0%}, " if backfill.share is not None else ""
    left = backfill.eta_s(time.time_ns() // 1000)
    eta = f", about {_seconds(left)} left" if left is not None else ""
    return f"{escape(backfill.qualified)}: {share}{backfill.rows:,} rows{eta}"


def _summary(settings: Settings, report: Report, background: list[Service]) -> Table:
    table = Table.grid(padding=(0, 2))
    source, progress = report.source, report.progress
    table.add_row("[bold]pipeline[/]", settings.pipeline)
    if source is not None:
        table.add_row("[bold]source[/]", f"{format_lsn(source.lsn)}   slot {settings.slot}: {_slot(source, progress)}")
    if progress is None:
        table.add_row("[bold]capture[/]", "has not begun")
    elif progress.kind is Kind.RECOVER:
        table.add_row("[bold]capture[/]", "[yellow]a recovery is under way, or was interrupted: repeat it[/]")
    elif not progress.is_boundary:
        rows = sum((progress.snapshot or {}).values()) + sum(backfill.rows for backfill in progress.backfills)
        table.add_row("[bold]capture[/]", f"snapshot under way, {rows:,} rows so far")
    else:
        table.add_row("[bold]capture[/]", f"{format_lsn(progress.lsn)}   {_behind(report)}")
    for backfill in progress.backfills if progress is not None else ():
        table.add_row("[bold]reading[/]", _reading(backfill))
    table.add_row("[bold]apply[/]", f"run by {report.apply_owner}" if report.apply_owner else "nobody runs it")
    for each in report.rebuilding:
        left = f", about {_seconds(each.left_s)} left" if each.left_s is not None else ""
        table.add_row("[bold]rebuilding[/]", f"{escape(each.view)}: {each.doing}, {each.progress:.0%}{left}")
    for service in background:
        if _ended(service):
            table.add_row(f"[bold red]{service.name}[/]", f"has stopped by itself: see {service.log}")
    return table


def _views(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    columns = {"view": "left", "sink": "left", "LSN": "right", "behind": "right", "": "right", "proved": "right"}
    columns |= {"table": "left"}
    if any(view.refreshed is not None for view in report.views):
        columns["last refresh"] = "left"
    for name, justify in columns.items():
        # On a narrow screen what is long goes on in the next line: no name and no position is ever cut off.
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name in ("sink", "LSN"))  # type: ignore[arg-type]
    for view in report.views:
        loading = "[yellow]loading[/]" if view.stopped is None else ""
        lsn = format_lsn(view.lsn) if view.lsn is not None else loading
        behind = size_text(view.lag_bytes) if view.lag_bytes is not None else escape(view.error or "")
        behind = "[yellow]stopped[/]" if view.stopped is not None and not heals(view.stopped) else behind
        proved = _proved(report.proofs.get((view.view, view.sink)))
        kept = _table(view.table) if view.table is not None else ""
        refreshed = escape(str(view.refreshed)) if view.refreshed is not None else ""
        row = escape(view.view), view.sink, lsn, behind, _seconds(view.lag_s), proved, kept, refreshed
        table.add_row(*row[: len(columns)])
    return table


def _table(table: Figures) -> str:
    tidied = "" if table.tidied_s is None else f", tidied {duration_text(table.tidied_s)} ago"
    return f"{table.rows:,} rows, {size_text(table.bytes)} in {table.files:,} files{tidied}"


def _proved(proved: Proved | None) -> str:
    """How long ago, or what was wrong then."""
    if proved is None:
        return ""
    ago = f"{duration_text(max(0.0, time.time() - proved.ts_ms / 1000))} ago"
    if proved.holds:
        return ago
    return f"[bold red]{f'{proved.differences:,} keys differed' if proved.problem is None else 'not proved'}[/] {ago}"


def _histories(report: Report) -> list[RenderableType]:
    lines = [history_line(view.view, view.history) for view in report.views if view.history is not None]
    return [Text(line, style="dim") for line in lines]


def _slot(source: SourceStanding, progress: Progress | None) -> str:
    kept = source.retention
    if kept.active is None:
        return "not made yet" if progress is None else "[bold red]is not there[/]"
    parts = ["active" if kept.active else "nobody reads it"]
    if kept.kept_bytes is not None:
        parts.append(f"keeps {size_text(kept.kept_bytes)} of WAL")
    if kept.safe_bytes is not None:
        parts.append(f"{size_text(max(0, kept.safe_bytes))} left")
    if source.seconds_left is not None:
        parts.append(f"lasts {duration_text(source.seconds_left)} if it stays")
    colour = _COLOURS[source.danger.level]
    return f"[{colour}]{', '.join(parts)}[/]" if colour else ", ".join(parts)


def _problems(report: Report) -> list[RenderableType]:
    danger = report.source.danger if report.source else SAFE
    lines = [Text(f"! {problem}", style="yellow") for problem in report.problems]
    for trouble in dict.fromkeys(view.stopped for view in report.views if view.stopped is not None):
        text = f"! {trouble.message} ({trouble.code})\n  {trouble.remedy}"
        lines.append(Text(text, style="yellow" if heals(trouble) else "red"))
    lines += [Text(_lacking(view), style="yellow") for view in report.views if view.unfit]
    gone = "is not declared any more: its rows stay as they were, in every sink, until"
    former = "follows its former declaration until what its changed file says has been loaded beside"
    lines += [Text(f"! {name} {former}", style="yellow") for name in report.changed]
    lines += [Text(f"! {name} {gone} `afterimage drop {name}`", style="yellow") for name in report.undeclared]
    lines += [Text(_left(view, sinks), style="yellow") for view, sinks in report.left.items()]
    if danger.level is not Level.SAFE:
        text = f"! {danger.message} ({danger.code})\n  {danger.remedy}"
        lines.append(Text(text, style=_COLOURS[danger.level]))
    return [*lines]


def _lacking(view: ViewStanding) -> str:
    columns = ", ".join(sorted({column for row in view.unfit for column in row.columns}))
    rows, first = len(view.unfit), view.unfit[0].at
    return (
        f"! {view.view} in {view.sink} lacks {rows:,} rows: no Delta type holds a value of {columns} (dead letters, "
        f"the oldest at {first})\n  correct these rows at the source"
    )


def _left(view: str, sinks: Sequence[str]) -> str:
    return (
        f"! {view} is not kept in {', '.join(sinks)} any more: its rows stay there as they were, until "
        f"`afterimage drop {view}`, which leaves its other sinks alone"
    )


def _danger_text(report: Report) -> list[str]:
    danger = report.source.danger if report.source else SAFE
    return [f"{danger.message} ({danger.code})"] if danger.level >= Level.ALARM else []


def _behind(report: Report) -> str:
    if report.capture_lag_bytes is None:
        return "how far behind is not known"
    return f"{size_text(report.capture_lag_bytes)} behind, {_seconds(report.capture_lag_s)}"


def _ended(service: Service) -> bool:
    process = service.process()
    return process is not None and not process.alive


def _state(service: Service) -> str:
    if service.running() is not None:
        return "running"
    return "ended" if _ended(service) else "stopped"


def _seconds(count: float | None) -> str:
    return "" if count is None else f"{count:,.1f} s"
