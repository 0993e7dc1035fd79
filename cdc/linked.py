"""Where functions of a C library lie that a Python package was built with, so that compiled code may call them itself.

In: the package's extension module and names. Out: addresses in the very library that the package uses, or None where
that can't be told.
"""

from __future__ import annotations

import ctypes
from importlib import import_module


def addresses(module: str, *names: str) -> tuple[int, ...] | None:
    """All of them, or None."""
    try:
        # The names are looked up in what the module was linked with.
        library = ctypes.CDLL(import_module(module).__file__)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (ImportError, OSError, AttributeError):
        return None
    return tuple(address for address in found if address) if all(found) else None
