"""A position as JSON and back: one form for Delta's commit metadata, the search document and the cache key.

In: a Position and what a sink wants beside it. Out: `{..extra, "lsn":"0/2B","source_ts_us":..,"offsets":{topic:[..]}}`,
and `"unfit":[{"key","at","lsn","columns"}]` where the view lacks rows.
Keeps true: what was written is read back equal; anything else is no position, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from cdc.lsn import format_lsn, parse_lsn
from sinks.protocol import Position, Unfit


def position_fields(position: Position) -> dict[str, Any]:
    """The position's own fields, ready for JSON."""
    offsets = {topic: list(ends) for topic, ends in position.offsets.items()}
    fields = {"lsn": format_lsn(position.lsn), "source_ts_us": position.source_ts_us, "offsets": offsets}
    return {**fields, "unfit": unfit_fields(position.unfit)} if position.unfit else fields


def position_json(position: Position, **extra: Any) -> str:
    """One line of JSON: `extra` (view, generation, ..) first, then the position's fields."""
    return json.dumps({**extra, **position_fields(position)}, separators=(",", ":"), ensure_ascii=False)


def parse_position(fields: Mapping[str, Any]) -> Position | None:
    """The position among a JSON object's fields; None when they hold none."""
    try:
        offsets = {str(topic): tuple(int(end) for end in ends) for topic, ends in fields["offsets"].items()}
        unfit = parse_unfit(fields.get("unfit", ()))
        return Position(parse_lsn(fields["lsn"]), int(fields["source_ts_us"]), offsets, unfit)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def unfit_fields(unfit: Iterable[Unfit]) -> list[dict[str, Any]]:
    """The rows that a view lacks, ready for JSON."""
    return [{**asdict(row), "lsn": format_lsn(row.lsn), "columns": list(row.columns)} for row in unfit]


def parse_unfit(rows: Iterable[Mapping[str, Any]]) -> tuple[Unfit, ...]:
    """What unfit_fields wrote."""
    return tuple(
        Unfit(str(row["key"]), str(row["at"]), parse_lsn(row["lsn"]), tuple(map(str, row["columns"]))) for row in rows
    )


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
