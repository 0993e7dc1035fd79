"""The control topic's records: requests, their answers, and the withdrawal of a request (a tombstone).

In: bytes of the topic, or frozen values. Out: the other. The key is the request's id; garbage is a ProtocolError.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cdc.errors import ProtocolError
from cdc.lsn import format_lsn, parse_lsn
from jobs.control.kept import Kept, integer, kept_fields, number, parse_kept, text

VERSION: Final = 1


class Kind(enum.Enum):
    """What a client wants of apply."""

    PAUSE = "pause"
    HOLD = "hold"
    RELEASE = "release"
    REBUILD = "rebuild"
    REPAIR = "repair"
    DROP = "drop"


class State(enum.Enum):
    """How a request stands."""

    PAUSED = "paused"
    HOLDING = "holding"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"

    @property
    def is_final(self) -> bool:
        """No further answer follows."""
        return self in (State.DONE, State.FAILED)


@dataclass(frozen=True, slots=True)
class Request:
    """A request holds for `ttl_s` from `sent_ts_ms`; sending it again under its id renews or replaces it."""

    id: str
    kind: Kind
    sent_ts_ms: int
    ttl_s: float
    client: str
    lsn: int | None = None
    view: str | None = None
    prove: bool = False
    """Whether what is rebuilt is proved before it is shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What apply says about a request; `lsn` is where the views stand, `progress` goes from 0 to 1.

    What failed has the error's `code` and `hint`, as the command would have had it by itself.

    `mended`: how many keys a repair has written, deleted and left as they were, by sink. While it runs, `message` says
    what is done now, and `left_s` how many seconds it may still take, where that can be told.
    """

    id: str
    state: State
    ts_ms: int
    lsn: int | None = None
    progress: float | None = None
    message: str | None = None
    code: str | None = None
    hint: str | None = None
    mended: Mapping[str, tuple[int, int, int]] | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The client is done with its request, or has gone in good order."""

    id: str


ControlRecord = Request | Answer | Withdrawn | Kept


def encode(record: ControlRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    if isinstance(record, Withdrawn):
        return record.id.encode(), None
    fields: dict[str, Any] = {"v": VERSION}
    if isinstance(record, Kept):
        fields |= kept_fields(record)
    elif isinstance(record, Request):
        fields |= {"type": "request", "kind": record.kind.value, "sent_ts_ms": record.sent_ts_ms}
        fields |= {"ttl_s": record.ttl_s, "client": record.client, "lsn": _lsn_text(record.lsn), "view": record.view}
        fields |= {"prove": True} if record.prove else {}
    else:
        fields |= {"type": "answer", "state": record.state.value, "ts_ms": record.ts_ms}
        fields |= {"lsn": _lsn_text(record.lsn), "progress": record.progress, "message": record.message}
        fields |= {"code": record.code, "hint": record.hint} if record.code is not None else {}
        fields |= {"mended": record.mended} if record.mended is not None else {}
        fields |= {"left_s": record.left_s} if record.left_s is not None else {}
    return record.id.encode(), json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The record, or ProtocolError whatever the bytes are."""
    try:
        name = (key or b"").decode()
        if not name:
            raise ValueError("no request id")
        return _record(name, json.loads(value)) if value is not None else Withdrawn(name)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolError(
            f"not a control record ({type(error).__name__})", "only afterimage may write to the control topic"
        ) from error


def _record(name: str, fields: dict[str, Any]) -> Request | Answer | Kept:
    if fields["v"] != VERSION:
        raise ValueError("another version of the format")
    kept = parse_kept(fields)
    if kept is not None:
        return kept
    if fields["type"] == "request":
        return Request(
            id=name,
            kind=Kind(fields["kind"]),
            sent_ts_ms=integer(fields["sent_ts_ms"]),
            ttl_s=number(fields["ttl_s"]),
            client=text(fields["client"]),
            lsn=_lsn(fields["lsn"]),
            view=_optional_text(fields["view"]),
            prove=fields.get("prove") is True,
        )
    if fields["type"] != "answer":
        raise ValueError("neither request nor answer")
    progress, left_s = fields["progress"], fields.get("left_s")
    return Answer(
        id=name,
        state=State(fields["state"]),
        ts_ms=integer(fields["ts_ms"]),
        lsn=_lsn(fields["lsn"]),
        progress=None if progress is None else number(progress),
        message=_optional_text(fields["message"]),
        code=_optional_text(fields.get("code")),
        hint=_optional_text(fields.get("hint")),
        mended=_mended(fields.get("mended")),
        left_s=None if left_s is None else number(left_s),
    )


def _mended(found: object) -> Mapping[str, tuple[int, int, int]] | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise TypeError("not an object")
    counts = {text(sink): tuple(map(integer, each)) for sink, each in found.items()}
    return {sink: (written, deleted, left) for sink, (written, deleted, left) in counts.items()}


def _lsn_text(lsn: int | None) -> str | None:
    return None if lsn is None else format_lsn(lsn)


def _lsn(found: object) -> int | None:
    return None if found is None else parse_lsn(text(found))


def _optional_text(value: object) -> str | None:
    return None if value is None else text(value)
