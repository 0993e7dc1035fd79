"""The name of a view, which is its file's.

In: a name and the captured tables. Out: nothing, or an error. Keeps true: no two things that can be queried share
a name.
"""

from __future__ import annotations

import re
from typing import Final

from cdc.errors import ConfigError
from jobs.declare.relations import Tables
from jobs.declare.source import Source

NAME: Final = "VIEW_NAME"
RESERVED: Final = frozenset({"afterimage", "changes"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


def is_name(name: str) -> bool:
    """Whether a view can be called so."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str, source: Source, tables: Tables) -> None:
    """Refuse a name that no view can have, or that is taken."""
    if not is_name(name):
        hint = "rename the file: lower-case letters, digits and _, a letter first, 63 at most"
        raise ConfigError(f"{source.name}: {name!r} cannot be a view's name", hint, code=NAME)
    taken = {table for _, table in tables} | RESERVED
    if name in taken:
        what = "is reserved" if name in RESERVED else "is a captured table's name"
        raise ConfigError(f"{source.name}: the name {name} {what}", "give the file another name", code=NAME)
