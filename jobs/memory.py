"""Memory that a large batch took and freed, given back to the machine; and little of it kept by each thread.

Allocators keep what was freed for the next time, each for itself, and the next large batch comes on top of it. Nothing
here changes what is computed, and where the C library cannot be asked nothing happens.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

import pyarrow as pa

LARGE_RECORDS: Final = 25_000
"""Of fewer, nothing is kept that is worth the milliseconds."""
ARENAS: Final = 2
"""By default threads have up to eight a core, and each keeps what it has had."""
_M_ARENA_MAX: Final = -8


def share_arenas() -> None:
    """For this process from now on, and for those that it starts: the JVM."""
    wanted = os.environ.setdefault("MALLOC_ARENA_MAX", str(ARENAS))
    if wanted.isdigit():
        _c("mallopt", _M_ARENA_MAX, int(wanted))


def give_back() -> None:
    """What Arrow keeps, and what the C library does."""
    pa.default_memory_pool().release_unused()
    _c("malloc_trim", 0)


def _c(name: str, *arguments: int) -> None:
    """A function of the GNU C library; others have none of these."""
    if (function := getattr(ctypes.CDLL(None), name, None)) is not None:
        function(*arguments)
