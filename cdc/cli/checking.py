"""`afterimage check`: findings as lines, worst first, or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from rich.markup import escape

from cdc.check import Finding, Level, fix
from cdc.check import check as look
from cdc.cli.screen import out
from cdc.cli.view_files import look_at_views, sinks_needed
from cdc.settings import Settings

_MARKS: Final = {Level.CRITICAL: "[bold red]✗[/]", Level.WARNING: "[yellow]![/]", Level.OK: "[green]✓[/]"}
_ORDER: Final = {Level.CRITICAL: 0, Level.WARNING: 1, Level.OK: 2}


def run_check(settings: Settings, *, fix: bool, as_json: bool) -> int:
    """Look, after mending what may be mended; 1 if something critical is left."""
    done = _fix(settings) if fix else []
    findings = sorted(look(settings, sinks_needed(settings), look_at_views), key=lambda finding: _ORDER[finding.level])
    if as_json:
        body = {"done": done, "findings": [{**asdict(f), "level": f.level.value} for f in findings]}
        out.print_json(json.dumps(body))
    else:
        for line in done:
            out.print(f"[green]made[/] {escape(line)}")
        for finding in findings:
            _show(finding)
    return int(any(finding.level is Level.CRITICAL for finding in findings))


def _fix(settings: Settings) -> list[str]:
    return list(fix(settings))


def _show(finding: Finding) -> None:
    out.print(f"{_MARKS[finding.level]} {escape(finding.message)} [dim]{finding.code}[/]", soft_wrap=True)
    if finding.remedy and finding.level is not Level.OK:
        out.print(f"    [dim]remedy[/] {escape(finding.remedy)}", soft_wrap=True)
