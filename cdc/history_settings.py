"""The configuration's section on history: which tables keep every change, and how far back."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from cdc.errors import ConfigError
from cdc.sections import Section
from cdc.table_patterns import parse_all

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = r"^[1-9]\d{0,8}[smhd]$"


class History(Section):
    """Tables of which every change is kept, so that they can be read as of any past position."""

    tables: tuple[str, ...] = Field(
        default=(), description="which tables, in the patterns of `source.tables`: `public.orders`, `billing.*`"
    )
    keep: str = Field(
        default="30d",
        pattern=_DURATION,
        description="how far back one can go: a number and `s`, `m`, `h` or `d`; older changes are folded into a state",
    )

    @field_validator("tables")
    @classmethod
    def _readable(cls, tables: tuple[str, ...]) -> tuple[str, ...]:
        try:
            parse_all(tables)
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None
        return tables

    @property
    def keep_us(self) -> int:
        """The same in microseconds."""
        return duration_us(self.keep)

    def covers(self, schema: str, table: str) -> bool:
        """Whether the table has a history."""
        return any(pattern.matches(schema, table) for pattern in parse_all(self.tables))


def duration_us(text: str) -> int:
    """`30d` in microseconds."""
    assert re.fullmatch(_DURATION, text), "the settings have checked it"
    return int(text[:-1]) * _UNITS_S[text[-1]] * 1_000_000
