"""Progress records: what each Kafka transaction says about itself, and the chain that they form.

In: positions, counts and end offsets. Out: JSON bytes and back, and a checksum any reader can recompute.
Keeps true: a record is only ever a successor of the one before, so a gap or a torn part cannot go unnoticed.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from zlib import crc32

from cdc import compiled
from cdc.backfill import Backfill
from cdc.changes import Record
from cdc.errors import ProtocolError
from cdc.lsn import format_lsn, parse_lsn

PROGRESS_KEY: Final = b"progress"
_VERSION: Final = 1
_MASK: Final = (1 << 64) - 1


class Kind(enum.Enum):
    """Which Kafka transaction a record closes; views may stop only at STREAM and IDLE."""

    SNAPSHOT = "snapshot"
    STREAM = "stream"
    IDLE = "idle"
    PART = "part"
    RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class Part:
    """How many changes and logical messages of one large Postgres transaction the topics hold already."""

    commit_lsn: int
    changes: int
    messages: int = 0

    def require(self, commit_lsn: int) -> Part:
        """This part, if the transaction that comes next is the one that it is of."""
        if self.commit_lsn != commit_lsn:
            raise ProtocolError(
                f"half of the transaction at {format_lsn(self.commit_lsn)} is in the topics, and it did not come again",
                "was the publication changed? put it back, or run `afterimage recover --force`",
                code="PART_LOST",
            )
        return self

    def body(self) -> dict[str, Any]:
        """As the record holds it."""
        return {"commit_lsn": format_lsn(self.commit_lsn), "changes": self.changes, "messages": self.messages}

    @staticmethod
    def of(body: Mapping[str, Any]) -> Part:
        """The inverse of body(); older records count no messages, having published none."""
        return Part(parse_lsn(body["commit_lsn"]), int(body["changes"]), int(body.get("messages", 0)))


@dataclass(frozen=True, slots=True)
class Stop:
    """A table that stopped alone: its topic lacks what committed at `lsn` or later, and before `since`, if that is set.

    With `since` and without `until` it is being read, so that its topic fills; from `until` on it is whole again.
    """

    lsn: int
    since: int | None = None
    until: int | None = None
    whole: int = 0
    """Where it was whole again after it had stopped before: of what comes before nothing is known any more."""

    @property
    def is_open(self) -> bool:
        """Whether the topic is not whole again."""
        return self.until is None

    @property
    def is_read(self) -> bool:
        """Whether the table is being read again beside the stream."""
        return self.since is not None and self.until is None

    def covers(self, lsn: int) -> bool:
        """Whether no view may stand there."""
        return lsn < self.whole or (lsn >= self.lsn and (self.until is None or lsn < self.until))

    def again(self, lsn: int) -> Stop:
        """It stops at `lsn` once more; what was not whole before that is missing since it stopped first."""
        if self.until is not None and lsn >= self.until:
            return Stop(lsn, whole=self.until)
        return Stop(min(lsn, self.lsn), whole=self.whole)

    def leaves_out(self, lsn: int) -> bool:
        """Whether the topic gets nothing of what commits there."""
        return lsn >= self.lsn and self.leaves_out_after(lsn)

    def leaves_out_after(self, lsn: int) -> bool:
        """Whether that may be so of something that commits at `lsn` or later."""
        return self.since is None or lsn < self.since


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress record; `lsn` is the boundary before which everything committed is in the topics."""

    seq: int
    kind: Kind
    prev_lsn: int
    lsn: int
    source_ts_us: int
    records: int
    checksum: int
    ends: Mapping[str, tuple[int, ...]]
    system_id: str
    snapshot: Mapping[str, int] | None = None
    part: Part | None = field(default=None)
    origin_lsn: int = 0
    """The consistent point of the snapshot that this chain began with: views from before it belong to another chain."""
    stopped: Mapping[str, Stop] = field(default_factory=dict)
    """By topic: tables that stopped alone, and those that were read again since."""
    schemas: int = 0
    """How many schema records the chain has announced: a reader of the schema topic looks again when it grows."""

    recovered_lsn: int = 0
    """The consistent point of the newest recovery: between it and the record before it no position can be stood at."""

    timeline: int = 0
    """The timeline of the server that this was read from, and the database's OID there; 0 in older records."""

    database_oid: int = 0

    backfills: tuple[Backfill, ...] = ()
    """Tables that are being read in chunks meanwhile."""

    @property
    def is_boundary(self) -> bool:
        """Whether a view may stand here."""
        return self.kind in (Kind.STREAM, Kind.IDLE)

    def to_bytes(self) -> bytes:
        """The record's value in the progress topic."""
        body: dict[str, Any] = {
            "v": _VERSION,
            "seq": self.seq,
            "kind": self.kind.value,
            "prev_lsn": format_lsn(self.prev_lsn),
            "lsn": format_lsn(self.lsn),
            "source_ts_us": self.source_ts_us,
            "records": self.records,
            "checksum": self.checksum,
            "ends": {topic: list(ends) for topic, ends in self.ends.items()},
            "system_id": self.system_id,
            "snapshot": dict(self.snapshot) if self.snapshot is not None else None,
            "origin_lsn": format_lsn(self.origin_lsn),
        }
        if self.part is not None:
            body["part"] = self.part.body()
        for name in ("timeline", "database_oid"):
            if value := getattr(self, name):
                body[name] = value
        if self.recovered_lsn:
            body["recovered_lsn"] = format_lsn(self.recovered_lsn)
        if self.backfills:
            body["backfills"] = [backfill.to_json() for backfill in self.backfills]
        if self.schemas:
            body["schemas"] = self.schemas
        if self.stopped:
            body["stopped"] = {topic: _stop_to_json(stop) for topic, stop in self.stopped.items()}
        return json.dumps(body, separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Progress:
        """The inverse of to_bytes; ProtocolError for anything else."""
        try:
            body = json.loads(data)
            if body["v"] != _VERSION:
                raise ProtocolError(f"progress record of version {body['v']}", "a newer Afterimage wrote it: upgrade")
            return _from_body(body)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError("malformed progress record", "was the progress topic written by something else?") from (
                error
            )

    def successor(self, kind: Kind, records: int, checksum: int, sealed: Mapping[str, Mapping[int, int]]) -> Progress:
        """The next record at the same position, after so many records; `sealed` are the ends that they have moved.

        A topic that was not written to before is that of the messages, which has one partition.
        """
        new = {topic: tuple(ends.values()) for topic, ends in sealed.items() if topic not in self.ends}
        return replace(
            self,
            seq=self.seq + 1,
            kind=kind,
            prev_lsn=self.lsn,
            records=records,
            checksum=checksum,
            ends={topic: _merged(old, sealed.get(topic, {})) for topic, old in self.ends.items()} | new,
        )

    def follows(self, previous: Progress) -> bool:
        """Whether this record is the direct successor of `previous`."""
        return (
            self.seq == previous.seq + 1
            and self.prev_lsn == previous.lsn
            and self.lsn >= previous.lsn
            and (self.system_id, self.origin_lsn) == (previous.system_id, previous.origin_lsn)
            and all(_grown(ends, self.ends.get(topic)) for topic, ends in previous.ends.items())
        )


def _grown(before: tuple[int, ...], after: tuple[int, ...] | None) -> bool:
    return after is not None and len(after) == len(before) and all(a >= b for a, b in zip(after, before, strict=True))


def _merged(old: tuple[int, ...], new: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(new.get(partition, end) for partition, end in enumerate(old))


def _from_body(body: dict[str, Any]) -> Progress:
    part = body.get("part")
    snapshot = body["snapshot"]
    return Progress(
        seq=int(body["seq"]),
        kind=Kind(body["kind"]),
        prev_lsn=parse_lsn(body["prev_lsn"]),
        lsn=parse_lsn(body["lsn"]),
        source_ts_us=int(body["source_ts_us"]),
        records=int(body["records"]),
        checksum=int(body["checksum"]),
        ends={str(topic): tuple(int(end) for end in ends) for topic, ends in body["ends"].items()},
        system_id=str(body["system_id"]),
        snapshot={str(table): int(rows) for table, rows in snapshot.items()} if snapshot is not None else None,
        part=Part.of(part) if part is not None else None,
        origin_lsn=parse_lsn(body["origin_lsn"]),
        recovered_lsn=parse_lsn(body["recovered_lsn"]) if "recovered_lsn" in body else 0,
        timeline=int(body.get("timeline", 0)),
        database_oid=int(body.get("database_oid", 0)),
        backfills=tuple(Backfill.from_json(backfill) for backfill in body.get("backfills", ())),
        stopped={str(topic): _stop_from_json(stop) for topic, stop in body.get("stopped", {}).items()},
        schemas=int(body.get("schemas", 0)),
    )


def _stop_to_json(stop: Stop) -> dict[str, str]:
    body = {"lsn": format_lsn(stop.lsn)}
    for name, lsn in (("since", stop.since), ("until", stop.until)):
        if lsn is not None:
            body[name] = format_lsn(lsn)
    if stop.whole:
        body["whole"] = format_lsn(stop.whole)
    return body


def _stop_from_json(body: dict[str, Any]) -> Stop:
    since, until = (parse_lsn(body[name]) if name in body else None for name in ("since", "until"))
    return Stop(parse_lsn(body["lsn"]), since, until, parse_lsn(body["whole"]) if "whole" in body else 0)


def checksum(records: Iterable[Record]) -> int:
    """A sum that does not depend on order, since a reader meets the records partition by partition."""
    if compiled.records is not None:
        return int(compiled.records.checksum_of(list(records)))
    total = 0
    for record in records:
        total += crc32(record.key) << 32 | crc32(record.value or b"")
    return total & _MASK


def add_checksums(left: int, right: int) -> int:
    """The checksum of both sets of records."""
    return (left + right) & _MASK
