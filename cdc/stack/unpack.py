"""An archive from the cache as a folder that servers can run from.

In: a verified archive. Out: a folder that appears whole, in one rename, readable by every account.
"""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from cdc.stack.account import Account, shared_folder
from cdc.stack.cache import cache_folder


def unpacked(name: str, account: Account | None, fill: Callable[[Path], None]) -> Path:
    """The folder `name` among the unpacked servers, made by `fill` if it is not there yet."""
    base = shared_folder(cache_folder() / "unpacked", account)
    base.mkdir(parents=True, exist_ok=True)
    final = base / name
    if final.is_dir():
        return final
    with FileLock(base / ".lock"):
        if not final.is_dir():
            for left in base.glob(f".{name}-*"):  # by a process that was killed while it held this lock
                shutil.rmtree(left, ignore_errors=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=base))
            try:
                fill(partial)
                partial.chmod(0o755)
                partial.replace(final)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    return final


def tar_in_jar(jar: Path, target: Path) -> None:
    """Unpack the one .txz that a jar carries."""
    with zipfile.ZipFile(jar) as archive:
        inner = next(name for name in archive.namelist() if name.endswith(".txz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(inner)), mode="r:xz") as tar:
            tar.extractall(target, filter="data")
