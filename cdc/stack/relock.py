"""`python -m cdc.stack.relock NAME...`: fetch what a lock file lists and write down the sha256 and size that came.

In: coordinates in config/locks/NAME.json (edited by a person). Out: the same file with fresh sums. This is the one
place that trusts what the network sends, so its diff is to be reviewed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from cdc.stack.download import download
from cdc.stack.fetch import PARALLEL, sha256_of
from cdc.stack.locks import Artifact, lock_path

UNKNOWN = {"sha256": "0" * 64, "size": 1}


def relock(name: str) -> int:
    """Refresh one lock file; the number of entries that changed."""
    path = lock_path(name)
    document: dict[str, Any] = json.loads(path.read_text())
    before = json.dumps(document["artifacts"])
    with tempfile.TemporaryDirectory() as staging, ThreadPoolExecutor(PARALLEL) as pool:
        entries = list(pool.map(lambda entry: _fresh(entry, Path(staging)), document["artifacts"]))
    document["artifacts"] = entries
    path.write_text(json.dumps(document, indent=2) + "\n")
    return sum(old != new for old, new in zip(json.loads(before), entries, strict=True))


def _fresh(entry: dict[str, Any], staging: Path) -> dict[str, Any]:
    artifact = Artifact.model_validate(UNKNOWN | entry)
    file = download(artifact, Path(tempfile.mkdtemp(dir=staging)), lambda _: None)
    return entry | {"sha256": sha256_of(file), "size": file.stat().st_size}


def main() -> None:
    """Refresh the lock files named on the command line."""
    console = Console()
    for name in sys.argv[1:]:
        console.print(f"{name}: {relock(name)} entries changed; review the diff before committing it")


if __name__ == "__main__":
    main()
