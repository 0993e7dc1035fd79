"""A position as JSON and back: one form for Delta's commit metadata, the search document and the cache key.

In: a Position and what a sink wants beside it. Out: `{..extra, "lsn":"0/2B","source_ts_us":..,"offsets":{topic:[..]}}`.
Keeps true: what was written is read back equal; anything else is no position, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdc.lsn import format_lsn, parse_lsn
from sinks.protocol import Position


def position_fields(position: Position) -> dict[str, Any]:
    """The position's own fields, ready for JSON."""
    offsets = {topic: list(ends) for topic, ends in position.offsets.items()}
    return {"lsn": format_lsn(position.lsn), "source_ts_us": position.source_ts_us, "offsets": offsets}


def position_json(position: Position, **extra: Any) -> str:
    """One line of JSON: `extra` (view, generation, ..) first, then the position's fields."""
    return json.dumps({**extra, **position_fields(position)}, separators=(",", ":"), ensure_ascii=False)


def parse_position(fields: Mapping[str, Any]) -> Position | None:
    """The position among a JSON object's fields; None when they hold none."""
    try:
        offsets = {str(topic): tuple(int(end) for end in ends) for topic, ends in fields["offsets"].items()}
        return Position(parse_lsn(fields["lsn"]), int(fields["source_ts_us"]), offsets)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def load_position(text: str | bytes | None) -> tuple[Position, dict[str, Any]] | None:
    """The position in a line of JSON with all its fields; None for no line or another document."""
    if not text:
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    position = parse_position(fields) if isinstance(fields, dict) else None
    return None if position is None else (position, fields)
