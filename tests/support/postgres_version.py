"""Which Postgres this session tests: AFTERIMAGE_TEST_POSTGRES, else the default; and what only newer ones have."""

from __future__ import annotations

import os

import pytest

from cdc.stack.postgres import DEFAULT_MAJOR

MAJOR = int(os.environ.get("AFTERIMAGE_TEST_POSTGRES", DEFAULT_MAJOR))


def since(major: int) -> pytest.MarkDecorator:
    """For a test, or one of its parameters, that there is only from this version on."""
    return pytest.mark.since(major)
