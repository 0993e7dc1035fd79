"""What Delta tables say of themselves, remembered: to read a log from its beginning takes longer than a small commit.

In: a path, a question to an open table. Out: the answer, for the newest version or a given one. Keeps true: it is what
a table that is opened anew would answer: the newest commit's own file is looked at each time. Tables that are not on a
local disk are opened each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from deltalake import DeltaTable

T = TypeVar("T")
PAST_MAX: Final = 8
"""Answers of a table's older versions."""


@dataclass(slots=True)
class _Open:
    """One table; `sign` is its newest commit's file, which no other commit has."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    table: DeltaTable | None = None
    sign: tuple[int, ...] = ()
    newest: dict[Hashable, Any] = field(default_factory=dict)
    past: dict[tuple[int, Hashable], Any] = field(default_factory=dict)


_all: Final = threading.Lock()
_tables: Final[dict[str, _Open]] = {}


def answer(path: str, storage_options: Mapping[str, str], what: Callable[[DeltaTable], T]) -> T:
    """What the newest version says to a question, a function of a module; TableNotFoundError without a table."""
    with newest(path, storage_options) as (table, said):
        return _asked(said, what, what, lambda: table)


def answer_at(path: str, storage_options: Mapping[str, str], version: int, what: Callable[[DeltaTable], T]) -> T:
    """What a version says."""
    if not is_local(path):
        return what(_opened(path, storage_options, version))
    with newest(path, storage_options) as (table, said):
        if table.version() == version:
            return _asked(said, what, what, lambda: table)
        past = _table(path).past
        found = _asked(past, (version, what), what, lambda: _opened(path, storage_options, version))
        _forget_oldest(past)
        return found


def _asked(said: dict[Any, Any], name: Hashable, what: Callable[[DeltaTable], T], table: Callable[[], DeltaTable]) -> T:
    if name not in said:
        said[name] = what(table())
    found: T = said[name]
    return found


def _forget_oldest(past: dict[tuple[int, Hashable], Any]) -> None:
    while len(past) > PAST_MAX:
        del past[next(iter(past))]


@contextmanager
def newest(path: str, storage_options: Mapping[str, str]) -> Iterator[tuple[DeltaTable, dict[Hashable, Any]]]:
    """The table as it is now, for this thread alone, which may also commit with it; and what was asked of it before."""
    if not is_local(path):
        yield _opened(path, storage_options), {}
        return
    own = _table(path)
    with own.lock:
        table = _refreshed(own, path, storage_options)
        version = table.version()
        try:
            yield table, own.newest
        except BaseException:
            # Whatever it is now: the next one opens it anew.
            own.table = None
            raise
        if table.version() != version:
            _look(own, path, table)


def _table(path: str) -> _Open:
    with _all:
        return _tables.setdefault(path, _Open())


def _refreshed(own: _Open, path: str, storage_options: Mapping[str, str]) -> DeltaTable:
    table = own.table
    if table is not None:
        version = table.version()
        if sign_of(path, version) != own.sign:
            # It was removed, or made anew.
            own.past.clear()
            table = own.table = None
        elif commit_file(path, version + 1).exists():
            own.past.update({(version, what): said for what, said in own.newest.items()})
            _forget_oldest(own.past)
            table.update_incremental()
            _look(own, path, table)
    if table is None:
        table = _opened(path, storage_options)
        _look(own, path, table)
    return table


def _look(own: _Open, path: str, table: DeltaTable) -> None:
    """Nothing is known of this version yet."""
    own.newest.clear()
    own.sign = sign_of(path, table.version())
    own.table = table if own.sign else None


def _opened(path: str, storage_options: Mapping[str, str], version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(path, version=version, storage_options=dict(storage_options) or None)


def is_local(path: str) -> bool:
    """Whether the table lies on a disk of this machine."""
    return "://" not in path


def commit_file(path: str, version: int) -> Path:
    """Where a version of a table on a disk of this machine is told of."""
    return Path(path, "_delta_log", f"{version:020}.json")


def sign_of(path: str, version: int) -> tuple[int, ...]:
    """What tells a version's commit from one that was made in its place; nothing where there is none."""
    try:
        found = commit_file(path, version).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size
