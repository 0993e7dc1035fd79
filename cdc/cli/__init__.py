"""The command line: `afterimage`, one module per group of commands, each loading what it needs when it is called."""

from __future__ import annotations

from cdc.cli.app import main

__all__ = ["main"]
