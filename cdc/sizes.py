"""Sizes and durations as people read them. In: bytes and seconds. Out: short texts; `?` for what is not known."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float | None) -> str:
    """`1.5 GiB`."""
    if count is None:
        return "?"
    size = float(count)
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit fits everything")


def duration_text(seconds: float | None) -> str:
    """`3 h 20 min`, two units at most."""
    if seconds is None:
        return "?"
    left = int(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2])
