"""What the view files ask for, without a server: which sinks they need."""

from __future__ import annotations

from cdc.settings import Settings
from jobs.declare.header import read_header
from jobs.declare.source import Source


def sinks_needed(settings: Settings) -> set[str]:
    """The sinks that some view goes to."""
    found: set[str] = set()
    for file in sorted(settings.views.glob("*.sql")):
        found |= {sink.name for sink in read_header(Source(str(file), file.read_text())).sinks}
    return found
