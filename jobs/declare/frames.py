"""The frame of a window: which rows around a row its functions see.

In: a frame's node. Out: Spark's words for it. Keeps true: only frames that both engines define alike; RANGE with an
offset, GROUPS and EXCLUDE are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from jobs.declare.rows import Rows

_FRAMES: Final = "supported: ROWS with UNBOUNDED, CURRENT ROW or plain numbers; RANGE with UNBOUNDED or CURRENT ROW"
_WHOLE: Final = ("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING")


@dataclass(frozen=True, slots=True)
class Frame:
    """`by_row`: tied rows may see different rows."""

    sql: str = ""
    by_row: bool = False


def frame_of(rows: Rows, spec: exp.Expr | None) -> Frame:
    """The frame; without one it is what both engines take for granted."""
    if spec is None:
        return Frame()
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise rows.context.refuse(spec, "this frame is not supported in views", _FRAMES)
    start = _bound(rows, spec, "start", kind)
    end = _bound(rows, spec, "end", kind) if spec.args.get("end") else "CURRENT ROW"
    return Frame(f" {kind} BETWEEN {start} AND {end}", kind == "ROWS" and (start, end) != _WHOLE)


def _bound(rows: Rows, spec: exp.Expr, part: str, kind: str) -> str:
    value, side = spec.args[part], str(spec.args.get(f"{part}_side") or "").upper()
    if isinstance(value, str):
        return f"{value.upper()} {side}".strip()
    is_number = isinstance(value, exp.Literal) and not value.args.get("is_string") and str(value.this).isdigit()
    if kind != "ROWS" or not is_number or int(value.this) >= 2**31:
        raise rows.context.refuse(spec, "this frame is not supported in views", _FRAMES)
    return f"{int(value.this)} {side}"
