"""Reads the derived tables from Python, all at one LSN, as Arrow, pandas or polars: docs/READING.md."""

from afterimage.cut import Cut, Pipeline, open, open_folder
from afterimage.rows import Rows
from cdc.errors import CdcError as Error

__all__ = ["Cut", "Error", "Pipeline", "Rows", "open", "open_folder"]
