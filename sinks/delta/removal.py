"""A Delta table, removed: of a view that nothing declares any more, or of a load's leftovers.

In: the table's folder. Out: whether there was one. Keeps true: the log goes first, so that no reader finds a table
whose files are half gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from cdc.errors import TransientError
from cdc.settings import Settings
from sinks.delta.entries import LOG


def remove(settings: Settings, view: str) -> bool:
    """Delete a view's table."""
    return remove_table(settings.delta_root, view, settings.delta.storage_options)


def remove_table(root: str, folder: str, storage_options: Mapping[str, str]) -> bool:
    """Delete the folder under `root`, wherever that lies."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler

    options = dict(storage_options) or None
    try:
        is_table = DeltaTable.is_deltatable(f"{root.rstrip('/')}/{folder}", options)
        if "://" not in root:
            for path in (Path(root, folder, LOG), Path(root, folder)):
                if path.exists():
                    shutil.rmtree(path)
            return is_table
        files = DeltaStorageHandler(root, options)
        for part in (f"{folder}/{LOG}", folder):
            files.delete_dir(part)
    except (DeltaError, OSError) as error:
        raise TransientError(
            f"the Delta table {folder} cannot be removed: {type(error).__name__}",
            "may its folder be written? then try again",
            code="DELTA_UNAVAILABLE",
        ) from error
    return is_table
