"""Scans of a narrowed plan read at once, in this process: what few keys ask for is few rows, and no job of Spark's.

In: scans with known keys, one after the other. Out: scans of small relations that hold the rows, and the values of
their columns, which are keys of what is joined with them. A scan whose rows are not few is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.plan.nodes import Scan
from jobs.refresh.lookup import TooMany
from jobs.upkeep.narrow import Key, Known, Narrowed, keyed_scan

if TYPE_CHECKING:
    import pyarrow as pa

Lookup = Callable[[str, Mapping[str, Any], tuple[str, ...]], "pa.Table"]
"""A relation's columns of the rows whose columns have one of these values each."""


@dataclass(slots=True)
class FetchedScans:
    """The scans of one refresh; `tables` are what they became, by names that begin with `prefix`."""

    lookup: Lookup
    prefix: str
    tables: dict[str, tuple[str, pa.Table]] = field(default_factory=dict)

    def scan(self, node: Scan, known: Known) -> Narrowed:
        """One of them."""
        source = dict(zip(node.columns, node.sources, strict=True))
        wanted = {source[column]: key.values for column, key in known.items() if key.values is not None}
        if not wanted:
            return _by_key(node, known)
        try:
            rows = self.lookup(node.relation, wanted, node.sources)
        except TooMany:
            return _by_key(node, known)
        name = f"{self.prefix}fetched_{len(self.tables)}"
        self.tables[name] = node.relation, rows
        values = {column: Key(None, values=rows.column(name)) for column, name in source.items()}
        return Scan(name, node.columns, node.sources, node.key), values


def _by_key(node: Scan, known: Known) -> Narrowed:
    """By the affected keys alone: others are columns of no relation."""
    own = {column: key for column, key in known.items() if key.name is not None}
    return keyed_scan(node, own) if own else (node, {})
