"""Whether the folders that capture and apply write to can be written, and have room.

In: settings. Out: findings. A folder that is not there yet counts as the nearest one above it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cdc.check.finding import Finding, critical, ok, warning
from cdc.settings import Settings

_FULL_BYTES: Final = 256 << 20
_LITTLE_BYTES: Final = 2 << 30
_MB: Final = 1 << 20


def look_at_folders(settings: Settings) -> list[Finding]:
    """The data folder, and the Delta folder where it is a local one."""
    folders = {"data": settings.data}
    if "://" not in settings.delta.path:
        folders["delta.path"] = Path(settings.delta.path)
    wrong = [finding for key, folder in folders.items() for finding in _folder(key, folder)]
    return wrong or [ok("FOLDERS", f"{' and '.join(folders)} can be written")]


def _folder(key: str, folder: Path) -> Iterator[Finding]:
    there = _nearest(folder.expanduser().absolute())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield critical("FOLDER", f"{key}: {folder} cannot be written", f"chown it to this user, or change {key}")
        return
    free = shutil.disk_usage(there).free
    if free < _LITTLE_BYTES:
        make = critical if free < _FULL_BYTES else warning
        yield make("DISK", f"{key}: {free // _MB} MB are left at {folder}", f"free some space, or move {key}")


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
