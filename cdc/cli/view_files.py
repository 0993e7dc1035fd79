"""What the view files ask for, without a server: which sinks they need."""

from __future__ import annotations

from cdc.settings import Settings
from jobs.declare import view_texts
from jobs.declare.header import read_header
from jobs.declare.parse import parse_statement


def sinks_needed(settings: Settings) -> set[str]:
    """The sinks that some view goes to."""
    found: set[str] = set()
    for source in view_texts(settings.views).values():
        header = read_header(source, before=parse_statement(source).tokens[0].start)
        found |= {sink.name for sink in header.sinks}
    return found
