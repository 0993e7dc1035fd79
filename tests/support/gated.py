"""The command itself, but loads of views are held for as long as a test wants, so that batches fall inside of them.

In: the command's words; in LOAD_GATE a folder with a file for each view whose load is to wait. Out: what the command
does. Keeps true: whoever gives up a load that is held does not wait for it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from cdc.cli.app import main
from jobs.rebuild.loading import Loaded, Loader

GATE: Final = "LOAD_GATE"
_LOOK_S: Final = 0.05


def hold_loads(gate: Path) -> None:
    """The loader's thread waits before it reads anything."""
    run = Loader.run

    def held(loader: Loader) -> Loaded:
        while any((gate / view).exists() for view in loader._wanted.views) and not loader._cancelled.is_set():
            time.sleep(_LOOK_S)
        return run(loader)

    Loader.run = held  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    hold_loads(Path(os.environ[GATE]))
    main()
