"""Artifacts of a lock into the cache: in parallel, with progress, verified against our own sha256 and size.

In: artifacts. Out: their paths. Invariant: a file gets its final name only after it was verified, in one rename, so an
interrupted fetch leaves whole files or none, and the next one goes on from there.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import stamina
from filelock import FileLock
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cdc import log
from cdc.errors import OperatorError, TransientError
from cdc.stack.cache import cache_folder
from cdc.stack.download import download
from cdc.stack.locks import Artifact

PARALLEL = 8
ATTEMPTS = 4
STAGING = ".staging-"
Downloader = Callable[[Artifact, Path, Callable[[int], None]], Path]

_log = log.get(__name__)
_whole: set[tuple[Path, int, str]] = set()
"""Files that this program has read through already."""


def fetch(
    artifacts: Iterable[Artifact],
    *,
    what: str,
    console: Console | None = None,
    cache: Path | None = None,
    downloader: Downloader = download,
) -> list[Path]:
    """The artifacts' paths in the cache, in order, fetching those that are not there (or not whole)."""
    wanted = list(artifacts)
    root = (cache or cache_folder()) / "artifacts"
    paths = [root / artifact.path for artifact in wanted]
    missing = _missing(wanted, root)
    if not missing:
        return paths
    root.mkdir(parents=True, exist_ok=True)
    # A second process waits here and then finds everything in place.
    with FileLock(root / ".lock"):
        missing = _missing(wanted, root)
        if missing:
            _fetch_missing(missing, root, what, console, downloader)
    return paths


def sha256_of(path: Path) -> str:
    """The file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _missing(wanted: list[Artifact], root: Path) -> list[Artifact]:
    """Those that are absent, or whose bytes are no longer what the lock says."""
    unique = list({artifact.coordinates: artifact for artifact in wanted}.values())
    with ThreadPoolExecutor(PARALLEL) as pool:
        whole = list(pool.map(lambda artifact: _is_whole(root / artifact.path, artifact), unique))
    return [artifact for artifact, ok in zip(unique, whole, strict=True) if not ok]


def _is_whole(path: Path, artifact: Artifact) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    seen = (path, status.st_mtime_ns, artifact.sha256)
    if status.st_size == artifact.size and (seen in _whole or sha256_of(path) == artifact.sha256):
        _whole.add(seen)
        return True
    return False


def _fetch_missing(
    missing: list[Artifact], root: Path, what: str, console: Console | None, downloader: Downloader
) -> None:
    for left in root.glob(f"{STAGING}*"):  # by a process that was killed: we hold the lock, so nobody uses it
        shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=root))
    _log.info("fetching", what=what, files=len(missing), bytes=sum(artifact.size for artifact in missing))
    pool = ThreadPoolExecutor(PARALLEL)
    try:
        with _progress(console) as progress:
            task = progress.add_task(what, total=sum(artifact.size for artifact in missing))

            def one(artifact: Artifact) -> None:
                _fetch_one(artifact, root, staging, downloader, lambda count: progress.advance(task, count))

            # Largest first, so that the last seconds are not spent on one big file alone.
            for done in [pool.submit(one, a) for a in sorted(missing, key=lambda a: -a.size)]:
                done.result()
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(staging, ignore_errors=True)


def _fetch_one(
    artifact: Artifact, root: Path, staging: Path, downloader: Downloader, on_bytes: Callable[[int], None]
) -> None:
    for attempt in stamina.retry_context(on=TransientError, attempts=ATTEMPTS, timeout=120):
        with attempt:
            # A folder of its own for each attempt: jgo takes any file that is there already for a whole one.
            folder = Path(tempfile.mkdtemp(dir=staging))
            seen = 0

            def count(number: int) -> None:
                nonlocal seen
                seen += number
                on_bytes(number)

            try:
                verify(downloader(artifact, folder, count), artifact)
            except (TransientError, OperatorError):
                on_bytes(-seen)
                raise
            final = root / artifact.path
            final.parent.mkdir(parents=True, exist_ok=True)
            (folder / artifact.path).replace(final)


def verify(path: Path, artifact: Artifact) -> None:
    """Refuse a file that is not the one the lock names."""
    size, actual = path.stat().st_size, sha256_of(path)
    if size < artifact.size:
        raise TransientError(
            f"{artifact.coordinates} ended early: {size} of {artifact.size} bytes", "run it again", code="FETCH"
        )
    if actual != artifact.sha256:
        raise OperatorError(
            f"{artifact.coordinates} has the wrong checksum: expected sha256 {artifact.sha256} "
            f"({artifact.size} bytes), got {actual} ({size} bytes); it was not used",
            "something between you and the repository changed the file, or the lock file is out of date: "
            "try another network, and only if you trust the new file run: python -m cdc.stack.relock",
            code="CHECKSUM",
        )


def _progress(console: Console | None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console or Console(quiet=True),
        transient=False,
    )
