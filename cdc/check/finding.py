"""What `check` finds: one line each, with what to do about it.

A finding's code is stable and stands in the runbook; its remedy is SQL or a command that can be pasted.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cdc.errors import CdcError


class Level(enum.Enum):
    """CRITICAL: capture or a view would fail. WARNING: it works, at a risk or a cost. OK: looked at, and right."""

    CRITICAL = "critical"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `remedy` is empty when there is nothing to do."""

    code: str
    level: Level
    message: str
    remedy: str = ""


def critical(code: str, message: str, remedy: str) -> Finding:
    """Something that must be put right first."""
    return Finding(code, Level.CRITICAL, message, remedy)


def warning(code: str, message: str, remedy: str) -> Finding:
    """Something to know and perhaps to change."""
    return Finding(code, Level.WARNING, message, remedy)


def ok(code: str, message: str) -> Finding:
    """Something that is as it should be."""
    return Finding(code, Level.OK, message)


def of_error(error: CdcError) -> Finding:
    """An error met while looking, as a finding: the other checks go on."""
    return critical(error.code, error.message, error.hint or "run: afterimage check --fix")
