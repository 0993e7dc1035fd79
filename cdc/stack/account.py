"""Which user a server runs as, and which folders that user can reach.

Postgres and OpenSearch refuse root: as root they run as `nobody`, whose folders must lie on a path that it may walk,
which root's home is not. Everybody else runs servers as oneself.
"""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import OperatorError

NOBODY = 65534
SYSTEM_FOLDERS = (Path("/var/lib/afterimage"), Path("/var/tmp/afterimage"), Path("/tmp/afterimage"))  # noqa: S108


@dataclass(frozen=True, slots=True)
class Account:
    """A uid and gid to give up root for."""

    uid: int
    gid: int


def unprivileged() -> Account | None:
    """The account for servers that refuse root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(NOBODY, NOBODY)
    return Account(entry.pw_uid, entry.pw_gid)


def reaches(account: Account | None, folder: Path) -> bool:
    """Whether the account can walk to the folder and list it; asked of the kernel, so that ACLs count."""
    if account is None:
        return os.access(folder, os.R_OK | os.X_OK)
    test = ["/bin/sh", "-c", 'test -r "$1" && test -x "$1"', "sh", str(folder)]
    try:
        asked = subprocess.run(test, check=False, cwd="/", user=account.uid, group=account.gid, extra_groups=[], env={})
    except OSError as error:
        raise OperatorError(
            f"cannot run a server as uid {account.uid}: {error.strerror}",
            "Postgres and OpenSearch refuse root; run as an ordinary user, or where root may change its uid",
            code="ACCOUNT",
        ) from error
    return asked.returncode == 0


def give(account: Account | None, *paths: Path) -> None:
    """Make the account the owner of these paths (not of what is in them)."""
    if account is not None:
        for path in paths:
            os.chown(path, account.uid, account.gid)


def shared_folder(preferred: Path, account: Account | None) -> Path:
    """A folder for unpacked servers that the account can read: the preferred one, else a system one."""
    preferred.mkdir(parents=True, exist_ok=True)
    if reaches(account, preferred):
        return preferred
    return _system_folder(preferred, account) / "unpacked"


def own_folder(wanted: Path, account: Account | None) -> Path:
    """The folder `wanted`, owned by the account; a link to one elsewhere if the account can't get there."""
    if wanted.is_symlink() and wanted.is_dir():
        return wanted.resolve()
    wanted.unlink(missing_ok=True) if wanted.is_symlink() else None
    wanted.parent.mkdir(parents=True, exist_ok=True)
    if reaches(account, wanted.parent):
        folder = wanted
    else:
        # A new name each time: what an earlier data folder left behind is never mistaken for this one's.
        folder = _system_folder(wanted, account) / f"{wanted.name}-{secrets.token_hex(4)}"
        wanted.symlink_to(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    give(account, folder)
    return folder


def _system_folder(wanted: Path, account: Account | None) -> Path:
    """A folder of ours outside every home; never one that somebody else made first."""
    for folder in SYSTEM_FOLDERS:
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            status = folder.lstat()
        except OSError:
            continue
        if folder.is_dir() and not folder.is_symlink() and status.st_uid == os.geteuid() and reaches(account, folder):
            return folder
    uid = account.uid if account else os.geteuid()
    raise OperatorError(
        f"uid {uid}, which runs Postgres and OpenSearch when you are root, cannot reach {wanted.parent}",
        f"choose a data folder and AFTERIMAGE_CACHE_DIR outside root's home, or make {SYSTEM_FOLDERS[0]} writable",
        code="ACCOUNT",
    )
