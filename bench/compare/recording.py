"""A small part of a run that shows every kind of difference: what the unit tests compare without any server.

In: Both. Out: a document for JSON, and back. Keeps true: for each kind there is a pair of records as both sides wrote
them; but columns that are null on both sides are left out, and long texts are cut on both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from bench.compare.capture import Both, Message
from bench.compare.envelopes import compare
from bench.compare.pairing import Pair, pairs

_TEXT_MAX = 150
_ALWAYS = ("_messages", "message")
_ONCE = ("_progress", "_schema", "transaction")


def recorded(both: Both) -> dict[str, Any]:
    """What to write into a file."""
    chosen = list(_chosen(both))
    ours = [pair.ours.message for pair in chosen if pair.ours is not None]
    theirs = [pair.theirs.message for pair in chosen if pair.theirs is not None]
    null = [_null_columns(pair) for pair in chosen]
    document: dict[str, Any] = {
        "ours": [_small(each, gone) for each, gone in zip(ours, _of(chosen, null, "ours"), strict=True)],
        "theirs": [_small(each, gone) for each, gone in zip(theirs, _of(chosen, null, "theirs"), strict=True)],
    }
    for side, found in (("ours", both.ours), ("theirs", both.theirs)):
        document[side] += [_small(message, frozenset()) for message in _beside(found)]
    text = "".join(f"{each['key']}{each['value']}" for each in document["ours"] + document["theirs"])
    document["types"] = [
        [*name, kind] for name, kind in both.types.items() if json.dumps(name[2], ensure_ascii=False) in text
    ]
    return document


def read(document: dict[str, Any]) -> Both:
    """What was recorded."""
    types = {(schema, table, column): kind for schema, table, column, kind in document["types"]}
    return Both(_messages(document["ours"]), _messages(document["theirs"]), types)


def _chosen(both: Both) -> Iterator[Pair]:
    """The first pair of each kind, and of each operation on each table."""
    seen: set[object] = set()
    for pair in pairs(both):
        known = pair.ours or pair.theirs
        assert known is not None
        found = {(pair.table, known.op), *(each.kind for each in compare(pair, both.types))}
        if found - seen:
            seen |= found
            yield pair


def _of(chosen: Iterable[Pair], null: Iterable[frozenset[str]], side: str) -> Iterator[frozenset[str]]:
    yield from (gone for pair, gone in zip(chosen, null, strict=True) if getattr(pair, side) is not None)


def _null_columns(pair: Pair) -> frozenset[str]:
    """Columns that neither side's rows have a value in; a few stay."""
    images = [
        row
        for event in (pair.ours, pair.theirs)
        if event is not None and event.body is not None
        for row in (event.body["before"], event.body["after"])
        if row is not None
    ]
    names = {name for row in images for name in row}
    empty = [name for name in names if all(row.get(name) is None for row in images)]
    empty.sort(key=lambda name: (all(name in row for row in images), name))  # those that one side lacks come first
    return frozenset(empty[2:])


def _small(message: Message, gone: frozenset[str]) -> dict[str, Any]:
    body = json.loads(message.value) if message.value is not None else None
    for image in ("before", "after"):
        if body is not None and body.get(image) is not None:
            body[image] = {name: _cut(value) for name, value in body[image].items() if name not in gone}
    key = None if message.key is None else message.key.decode()
    value = None if body is None else json.dumps(body, ensure_ascii=False)
    return {**asdict(message), "key": key, "value": value}


def _cut(value: Any) -> Any:
    if isinstance(value, list):
        return [_cut(each) for each in value]
    return value[:_TEXT_MAX] if isinstance(value, str) else value


def _beside(found: Iterable[Message]) -> Iterator[Message]:
    seen = set()
    for message in found:
        if message.topic in _ALWAYS or (message.topic in _ONCE and message.topic not in seen):
            seen.add(message.topic)
            yield message


def _messages(found: list[dict[str, Any]]) -> list[Message]:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [Message(**{**each, "key": raw(each["key"]), "value": raw(each["value"])}) for each in found]
