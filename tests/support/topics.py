"""Whether topics hold what tables hold, each change once: for tests that change the server under a capture."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from cdc.progress import Progress
from cdc.settings import Settings
from tests.support.capturing import folded, read_topic, table_messages
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE

HOSTILE = '"we.ird *Schema"."""; drop table x; --/../é"'
TABLES = [
    ("public", "orders", "public.orders"),
    ("public", "order_items", "public.order_items"),
    ("public", "documents", "public.documents"),
    ("public", "events", "public.events"),
    (HOSTILE_SCHEMA, HOSTILE_TABLE, HOSTILE),
]
_PRINTED_OTHERWISE = ("at", "amount", "meta")
"""By to_jsonb: times and decimals."""


def require_equal(settings: Settings, connection: Any) -> None:
    """Every captured table's topic folds to what the table holds."""
    for schema, table, name in TABLES:
        rows = connection.execute(f"SELECT to_jsonb(t) FROM {name} t").fetchall()
        state = folded(table_messages(settings, schema, table))
        assert sorted(map(_comparable, state.values())) == sorted(_comparable(row) for (row,) in rows), table


def require_once(settings: Settings, schema: str = "public", table: str = "orders") -> None:
    """No change of the log stands twice in the topic."""
    positions: list[tuple[int, int]] = []
    folded(
        table_messages(settings, schema, table),
        lambda event: positions.append((event["source"]["commit_lsn"], event["source"]["ordinal"])),
    )
    streamed = [position for position in positions if position[1]]
    assert len(streamed) == len(set(streamed))


def require_chain(settings: Settings) -> list[Progress]:
    """The progress records, each of which follows the one before."""
    records = [Progress.from_bytes(m.value()) for m in read_topic(settings, f"{settings.pipeline}._progress", 1)]
    assert all(after.follows(before) for before, after in pairwise(records))
    return records


def _comparable(row: dict[str, Any]) -> str:
    kept = {key: value for key, value in row.items() if key not in _PRINTED_OTHERWISE}
    return json.dumps(kept, sort_keys=True)
