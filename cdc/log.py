"""Structured logs: one JSON object a line when not on a terminal, readable lines otherwise.

In: event words and fields. Out: standard error. Row values, keys and secrets never go in here.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, cast

import stamina.instrumentation
import structlog


def get(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of one module."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(name))


def configure(*, verbose: bool = False, as_json: bool | None = None, **fields: Any) -> None:
    """Send logs to standard error; `fields` (pipeline, process) stand on every line."""
    json_lines = not sys.stderr.isatty() if as_json is None else as_json
    level = logging.DEBUG if verbose else logging.INFO
    renderer: Any = structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer()
    stamina.instrumentation.set_on_retry_hooks([])  # its own would log arguments, and so values
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(**fields)
