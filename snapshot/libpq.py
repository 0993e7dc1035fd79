"""Where libpq's functions for COPY lie, so that compiled code may call them: psycopg calls them once for every row.

Out: the addresses in the very library that psycopg uses, or None where that can't be told. Keeps true: nothing but
connections of psycopg's own is handed to them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import NamedTuple

from psycopg import pq

_MODULES = {"binary": "psycopg_binary.pq", "c": "psycopg_c.pq"}


class CopyFunctions(NamedTuple):
    """Addresses."""

    get_copy_data: int
    free_memory: int


@cache
def copy_functions() -> CopyFunctions | None:
    """PQgetCopyData and PQfreemem."""
    try:
        # The names are looked up in what psycopg's module was linked with.
        library = ctypes.CDLL(import_module(_MODULES[pq.__impl__]).__file__)
        functions = (library.PQgetCopyData, library.PQfreemem)
    except (KeyError, ImportError, OSError, AttributeError):
        return None
    get, free = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    return CopyFunctions(get, free) if get and free else None
