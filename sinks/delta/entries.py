"""The files of a Delta table as its log has them word for word, and commits in our own words.

In: the folder of a table on a local disk. Out: each live file's `add` entry; a commit, if its version is still free.
Keeps true: what was read is of exactly the version that was asked for; a commit appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sinks.delta.opened import commit_file, sign_of

LOG: Final = "_delta_log"
PAST_MAX: Final = 4
DRAFTS: Final = ".*.tmp"
"""Commits of processes that were killed before these were in place."""
Entry = dict[str, Any]


class Unreadable(Exception):  # noqa: N818  not an error: others read the log
    """This log is not as we know it."""


@dataclass(slots=True)
class _Log:
    """A table's files at a version; `sign` tells the commit's file from one that was made in its place."""

    version: int = -1
    sign: tuple[int, ...] = ()
    files: dict[str, Entry] = field(default_factory=dict)
    past: dict[int, dict[str, Entry]] = field(default_factory=dict)
    """The same of some versions before: queries ask for what a batch has just replaced."""


_guard: Final = threading.Lock()
_logs: Final[dict[str, _Log]] = {}


def live_files(folder: str, version: int) -> dict[str, Entry]:
    """The files of a version, by path; to be looked at, not changed."""
    with _guard:
        log = _logs.get(folder)
        if log is None or sign_of(folder, log.version) != log.sign:
            log = _from_checkpoint(folder, version)
        elif version in log.past:
            return log.past[version]
        elif version < log.version:
            return _read_up_to(_from_checkpoint(folder, version), folder, version).files
        _logs[folder] = _read_up_to(log, folder, version)
        log.sign = sign_of(folder, version)
        return log.files


def _read_up_to(log: _Log, folder: str, version: int) -> _Log:
    while log.version < version:
        actions = [*_actions(folder, log.version + 1)]
        log.past[log.version] = log.files
        log.files = dict(log.files)
        take(log.files, actions)
        log.version += 1
        for former in sorted(log.past)[:-PAST_MAX]:
            del log.past[former]
    return log


def make_version(folder: str, version: int, actions: Iterable[Mapping[str, Any]]) -> None:
    """Commit them as this version; FileExistsError where somebody else has made it."""
    log = Path(folder, LOG)
    draft = log / f".{uuid.uuid4()}.tmp"
    draft.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
    try:
        os.link(draft, commit_file(folder, version))
    finally:
        draft.unlink()


def about(operation: str, **more: Any) -> Entry:
    """What a commit says of itself."""
    told = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "operationParameters": {}}
    return {"commitInfo": told | more}


def removal(entry: Entry, *, data_change: bool = True) -> Entry:
    """The action that takes a live file out of the table."""
    kept = {name: entry[name] for name in ("deletionVector", "size", "tags") if entry.get(name) is not None}
    return {
        "remove": {
            "path": entry["path"],
            "deletionTimestamp": time.time_ns() // 1_000_000,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": entry.get("partitionValues") or {},
            **kept,
        }
    }


def spoken_of(folder: str) -> Iterator[Entry]:
    """Every `add` and `remove` of the commits that the log still has one by one: at least of the last hour."""
    for path in Path(folder, LOG).glob("*.json"):
        if path.stem.isdigit():
            for action in _actions(folder, int(path.stem)):
                yield from (action[kind] for kind in ("add", "remove") if kind in action)


def take(files: dict[str, Entry], actions: Iterable[Mapping[str, Any]]) -> None:
    """What a commit makes of the live files."""
    # A file may be removed with one vector and added with another by the same commit, in any order.
    actions = list(actions)
    for action in actions:
        if "remove" in action:
            files.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            files[action["add"]["path"]] = action["add"]


def actions_of(text: str) -> Iterator[Mapping[str, Any]]:
    """A commit's actions, one a line; a text in statistics may have what Python calls the end of a line as well."""
    return (json.loads(line) for line in text.split("\n") if line)


def _actions(folder: str, version: int) -> Iterator[Mapping[str, Any]]:
    try:
        return actions_of(commit_file(folder, version).read_text())
    except OSError as error:
        raise Unreadable from error


def _from_checkpoint(folder: str, version: int) -> _Log:
    try:
        last: dict[str, Any] = json.loads(Path(folder, LOG, "_last_checkpoint").read_text())
    except FileNotFoundError:
        return _Log()
    at = int(last["version"])
    if at > version:
        return _Log()
    if last.get("parts") or last.get("v2Checkpoint"):
        raise Unreadable
    return _Log(at, files={entry["path"]: entry for entry in _checkpointed(folder, at)})


def _checkpointed(folder: str, version: int) -> Iterator[Entry]:
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(Path(folder, LOG, f"{version:020}.checkpoint.parquet"), columns=["add"])
    except OSError as error:
        raise Unreadable from error
    for entry in rows.column("add").to_pylist():
        if entry is not None:
            known = {name: value for name, value in entry.items() if value is not None and not name.endswith("_parsed")}
            vector = known.get("deletionVector")
            if vector is not None:
                known["deletionVector"] = {name: value for name, value in vector.items() if value is not None}
            yield known | {"partitionValues": {}, "tags": dict(known.get("tags") or {}) or None}
