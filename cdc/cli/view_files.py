"""What the view files ask for, without a server: which sinks they need."""

from __future__ import annotations

from cdc.settings import Settings
from jobs.declare.header import read_header
from jobs.declare.parse import parse_select
from jobs.declare.source import Source


def sinks_needed(settings: Settings) -> set[str]:
    """The sinks that some view goes to."""
    found: set[str] = set()
    for file in sorted(settings.views.glob("*.sql")):
        source = Source(str(file), file.read_text(encoding="utf-8-sig"))
        header = read_header(source, before=parse_select(source).tokens[0].start)
        found |= {sink.name for sink in header.sinks}
    return found
