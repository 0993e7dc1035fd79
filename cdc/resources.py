"""The data files that come with Afterimage: in a checkout the folder config/, in an installed wheel a copy of it."""

from __future__ import annotations

from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent / "config"
_INSTALLED = Path(__file__).resolve().parent / "_config"


def config_file(name: str) -> Path:
    """The path of one file under config/."""
    return (_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT) / name
