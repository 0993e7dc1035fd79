"""A pair of events, field by field: the kinds of difference between them.

In: a pair and the columns' types. Out: a Difference for each field that differs. Keeps true: a field that neither is
the same on both sides nor has a rule here comes out as UNEXPLAINED.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.compare.pairing import Event, Pair
from bench.compare.values import ABSENT, UNEXPLAINED, differences, same

Types = Mapping[tuple[str, str, str], str]
_CONTEXT: Final = "__debezium.context."
_MOVED_KEY: Final = ("__debezium.newkey", "__debezium.oldkey")
_EMPTY: Final = (None, "", 0)
_SNAPSHOT_WORDS: Final = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_OUR_SOURCE: Final = ("commit_lsn", "ordinal")
_THEIR_SOURCE: Final = ("sequence", "ts_us", "ts_ns", "xmin", "origin", "origin_lsn")
_THEIR_FIELDS: Final = ("transaction", "ts_us", "ts_ns")
_FAILING: Final = "24:00:00-15:59:59"
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, where, and an example of it."""

    kind: str
    where: str
    ours: Any = None
    theirs: Any = None


def compare(pair: Pair, types: Types) -> Iterator[Difference]:
    """Everything in which the two events differ."""
    ours, theirs = pair.ours, pair.theirs
    if ours is None or theirs is None:
        yield Difference(_missing(ours, theirs), "event", _told(ours), _told(theirs))
    elif ours.op != theirs.op:
        yield Difference(UNEXPLAINED, "op", _told(ours), _told(theirs))
    else:
        if ours.message.partition != theirs.message.partition:
            yield Difference("partition", "partition", ours.message.partition, theirs.message.partition)
        yield from _headers(ours, theirs)
        yield from _key(ours, theirs, types)
        if ours.body is not None:
            yield from _bodies(ours, theirs, types)


def compare_messages(ours: Any, theirs: Any) -> Iterator[Difference]:
    """A logical message's two bodies."""
    if ours is None or theirs is None:
        yield Difference(UNEXPLAINED, "message", ours, theirs)
        return
    yield from _around(ours, theirs)
    yield from _sources(ours["source"], theirs["source"], "m")
    mine, other = ours["message"], theirs["message"]
    content = mine["content"] if mine["encoding"] == "base64" else b64encode(mine["content"].encode()).decode()
    if (mine["prefix"], content) != (other["prefix"], other["content"]):
        yield Difference(UNEXPLAINED, "message", mine, other)
    yield Difference("message-content", "message", mine, other)


def _missing(ours: Event | None, theirs: Event | None) -> str:
    if ours is not None and theirs is None and ours.body is not None:
        values = [value for value in (ours.body["after"] or {}).values() if isinstance(value, str)]
        if ours.op == "c" and _FAILING in values:
            return "event-lost"
    return UNEXPLAINED


def _told(event: Event | None) -> Any:
    return None if event is None else (event.table, event.op, event.key)


def _headers(ours: Event, theirs: Event) -> Iterator[Difference]:
    for name in theirs.headers:
        known = "header-context" if name.startswith(_CONTEXT) else "header-moved-key"
        is_known = name.startswith(_CONTEXT) or name in _MOVED_KEY
        yield Difference(known if is_known else UNEXPLAINED, f"header {name}")
    for name in ours.headers:
        is_position = name == "position" and ours.body is None
        yield Difference("tombstone-position" if is_position else UNEXPLAINED, f"header {name}")


def _key(ours: Event, theirs: Event, types: Types) -> Iterator[Difference]:
    if ours.op == "t":
        known = ours.key == {} and theirs.key is None
        yield Difference("truncate-key" if known else UNEXPLAINED, "key", ours.key, theirs.key)
        return
    if list(ours.key) != list(theirs.key):
        is_order = ours.key.keys() == theirs.key.keys()
        yield Difference("key-order" if is_order else UNEXPLAINED, "key", ours.key, theirs.key)
    yield from _rows("key", ours.key, theirs.key, ours, types)


def _bodies(ours: Event, theirs: Event, types: Types) -> Iterator[Difference]:
    yield from _around(ours.body, theirs.body)
    yield from _sources(ours.body["source"], theirs.body["source"], ours.op)
    for image in ("before", "after"):
        mine, other = ours.body[image], theirs.body[image]
        if mine is None or other is None:
            if mine is not other:
                yield Difference(UNEXPLAINED, image, mine, other)
        elif image == "before" and ours.op == "d" and _is_key_only(ours, other):
            yield Difference("before-key-only", image, mine, other)
            yield from _rows(image, mine, {name: other[name] for name in mine}, ours, types)
        else:
            yield from _rows(image, mine, other, ours, types)


def _is_key_only(ours: Event, theirs: Mapping[str, Any]) -> bool:
    """Ours has the key's columns alone, theirs has nothing in all others."""
    before = ours.body["before"]
    rest = [value for name, value in theirs.items() if name not in before]
    return before.keys() == ours.key.keys() and bool(rest) and all(value in _EMPTY for value in rest)


def _around(ours: Any, theirs: Any) -> Iterator[Difference]:
    """What is neither the row nor the source."""
    for name in {*ours, *theirs} - {"before", "after", "source", "message"}:
        mine, other = ours.get(name, _MISSING), theirs.get(name, _MISSING)
        if name == "ts_ms":
            kind = "capture-time" if isinstance(mine, int) and isinstance(other, int) else UNEXPLAINED
            yield Difference(kind, name, mine, other)
        elif mine is _MISSING and name in _THEIR_FIELDS:
            yield Difference("transaction-field" if name == "transaction" else "finer-times", name, None, other)
        elif not same(mine, other):
            yield Difference(UNEXPLAINED, name, mine, other)


def _sources(ours: Any, theirs: Any, op: str) -> Iterator[Difference]:
    for name in sorted({*ours, *theirs}):
        mine, other = ours.get(name, _MISSING), theirs.get(name, _MISSING)
        if not same(mine, other):
            yield Difference(_source_kind(name, mine, other, op), f"source.{name}", mine, other)


def _source_kind(name: str, ours: Any, theirs: Any, op: str) -> str:
    if ours is _MISSING:
        finer = "finer-times" if name in ("ts_us", "ts_ns") else "source-theirs"
        return finer if name in _THEIR_SOURCE else UNEXPLAINED
    if theirs is _MISSING:
        return "source-ours" if name in _OUR_SOURCE else UNEXPLAINED
    if name in ("version", "name"):
        return "source-identity"
    if op == "r":
        return _snapshot_kind(name, ours, theirs)
    if name == "lsn" and ours > theirs:
        return "source-lsn"
    return "message-time" if op == "m" and name == "ts_ms" and ours is None else UNEXPLAINED


def _snapshot_kind(name: str, ours: Any, theirs: Any) -> str:
    if name == "snapshot" and ours == "true" and theirs in _SNAPSHOT_WORDS:
        return "snapshot-words"
    if name == "txId" and ours is None and isinstance(theirs, int):
        return "snapshot-txid"
    return "snapshot-position" if name in ("lsn", "ts_ms") and isinstance(theirs, int) else UNEXPLAINED


def _rows(
    where: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], event: Event, types: Types
) -> Iterator[Difference]:
    for name in dict.fromkeys((*ours, *theirs)):
        kind = types.get((*event.table, name), "")
        mine, other = ours.get(name, ABSENT), theirs.get(name, ABSENT)
        for found in differences(kind, mine, other):
            yield Difference(found, f"{where}: {kind}", mine, other)


def values_of(pair: Pair) -> Iterator[tuple[Any, Any]]:
    """The values of the rows that both events show."""
    if pair.ours is None or pair.theirs is None or pair.ours.body is None:
        return
    for image in ("before", "after"):
        mine, other = pair.ours.body[image], (pair.theirs.body or {}).get(image)
        if mine is not None and other is not None:
            yield from ((mine[name], other[name]) for name in mine if name in other)
