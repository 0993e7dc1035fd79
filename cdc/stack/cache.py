"""The one folder that holds fetched artifacts and unpacked servers, shared by all clones on a machine.

In: environment. Out: folders. Invariant: a file under artifacts/ has been verified before it got its name.
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$AFTERIMAGE_CACHE_DIR, else $XDG_CACHE_HOME/afterimage, else ~/.cache/afterimage."""
    if chosen := os.environ.get("AFTERIMAGE_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "afterimage"
    return Path.home() / ".cache" / "afterimage"
