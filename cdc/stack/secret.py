"""Passwords of the embedded servers: made once, kept in files that only their owner may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def password(path: Path) -> str:
    """The password in that file, made if there is none yet."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_urlsafe(24) + "\n")
        return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Write a file that was never readable by others, in one rename."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)
