"""Where the Delta tables stand: their own commits, and what the ledger vouches for.

In: sinks and positions. Out: ledger rows after a batch, and merged positions at the start. Keeps true: the ledger only
speaks of a table's exact version, so it can't disagree with the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.batch import Target
from jobs.ledger import LedgerRow, LedgerState
from sinks.delta import DeltaSink, vouched
from sinks.protocol import Position, Sink
from sinks.standing import lost, overtaken


@dataclass(frozen=True, slots=True)
class About:
    """What the ledger says of a view for people: how it was refreshed last, and by which SQL."""

    refreshed: str = ""
    sql: str = ""


def recorded(
    sinks: Mapping[Target, Sink], positions: Mapping[Target, Position], about: Mapping[str, About] | None = None
) -> list[LedgerRow]:
    """One row for every Delta table, all at the batch's LSN."""
    rows = []
    for target, position in positions.items():
        sink = sinks[target]
        if isinstance(sink, DeltaSink):
            held = sink.held()
            which, moment = (sink.folder, held.version, held.generation), (position.lsn, position.source_ts_us)
            texts = (about or {}).get(target.view, About())
            rows.append(LedgerRow(*which, *moment, position.offsets, position.unfit, texts.refreshed, texts.sql))
    return rows


def tidied(sinks: Iterable[Sink]) -> bool:
    """Tidy the Delta tables that are due, between two batches; whether the ledger has to name other versions."""
    moved = [sink.keep_up() for sink in sinks if isinstance(sink, DeltaSink)]
    return any(moved)


def located(
    sinks: Mapping[Target, Sink], own: Mapping[Target, Position | None], ledger: LedgerState | None
) -> dict[Target, Position | None]:
    """Every sink's position; a Delta table's is the ledger's if that names the table's very version."""
    found: dict[Target, Position | None] = {}
    for target, position in own.items():
        sink = sinks[target]
        if isinstance(sink, DeltaSink) and position is not None and ledger is not None:
            found[target] = vouched(position, sink.version()[0], ledger.rows.get(sink.folder))
        else:
            found[target] = position
    return found


def require_kept(target: Target, sink: Sink, lsn: int) -> None:
    """Raise if a store that stood at `lsn` has lost its rows since, or was written by another process."""
    position = sink.position()
    # A Delta table without changes stays behind: the ledger vouches for it.
    if position is None or (position.lsn < lsn and not isinstance(sink, DeltaSink)):
        raise lost(target.sink, target.view)
    if position.lsn > lsn:
        raise overtaken(target.sink, target.view)


def folders(sinks: Iterable[Sink]) -> frozenset[str]:
    """What the ledger calls their tables."""
    return frozenset(sink.folder for sink in sinks if isinstance(sink, DeltaSink))
