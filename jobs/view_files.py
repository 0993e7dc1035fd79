"""What became of the view files since their views were loaded: changed, gone, or as they were.

In: the folder, the declared views, the ledger. Out: a state to compare, differences for people. It decides nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from jobs.ledger import LedgerRow, LedgerState
from sinks.spec import ViewSpec

FolderState = tuple[tuple[str, int, int], ...]


def folder_state(folder: Path) -> FolderState:
    """Another one after any file has changed."""
    try:
        found = [(path.name, path.stat()) for path in sorted(folder.glob("*.sql"))]
    except OSError:
        # A file that goes just now; the next look tells.
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


def changed_views(specs: Mapping[str, ViewSpec], ledger: LedgerState | None) -> Iterator[tuple[str, list[str]]]:
    """Views whose SQL is not what their rows were computed by, with the lines that differ."""
    for name, row in (ledger.rows if ledger is not None else {}).items():
        spec = specs.get(name)
        if spec is not None and row.sql and row.sql != spec.postgres_sql:
            yield name, difference(row.sql, spec.postgres_sql)


def difference(before: str, after: str) -> list[str]:
    """Lines with `-` and `+`."""
    lines = difflib.unified_diff(before.strip().splitlines(), after.strip().splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def undeclared(folders: Collection[str], ledger: LedgerState | None) -> dict[str, LedgerRow]:
    """Tables that are there without anything that declares them: they stay as they are."""
    return {name: row for name, row in (ledger.rows if ledger is not None else {}).items() if name not in folders}
