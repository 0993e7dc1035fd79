"""How answers are printed; apart, so that the command line knows the words without loading the rest."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
