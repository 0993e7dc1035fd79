"""Positions of the log as people write them."""

from __future__ import annotations

from cdc.errors import ConfigError
from cdc.lsn import parse_lsn


def parse_position(text: str) -> int:
    """An LSN as the user wrote it."""
    try:
        return parse_lsn(text)
    except ValueError as error:
        raise ConfigError(
            str(error), "take one from SQL: SELECT pg_current_wal_insert_lsn() after your commit", code="BAD_LSN"
        ) from error
