"""The messages of both sides as events, paired by table and key, in the order in which a topic's reader meets them.

In: each side's messages. Out: pairs, one of which may be missing, and what is wrong with the order. Keeps true: every
record of a table's topic is in exactly one pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from bench.compare import printed
from bench.compare.capture import Both, Message

Table = tuple[str, str]
TRUNCATE: Final = "{}"
_STREAMED: Final = ("c", "u", "d", "t")
_OURS_ALONE: Final = ("_progress", "_schema", "_control", "_snapshots")


@dataclass(frozen=True, slots=True)
class Event:
    """A record of a table's topic; without a body it is a tombstone."""

    table: Table
    key: Any
    body: Any
    message: Message

    @property
    def headers(self) -> dict[str, str]:
        """The record's."""
        return self.message.headers

    @property
    def op(self) -> str:
        """The envelope's, or `tombstone`."""
        return "tombstone" if self.body is None else str(self.body["op"])


@dataclass(frozen=True, slots=True)
class Pair:
    """The same change as each side tells it."""

    table: Table
    ours: Event | None
    theirs: Event | None


def events(messages: Iterable[Message]) -> list[Event]:
    """The records of tables, which say themselves of which."""
    there = list(messages)
    tables = {topic: table for table, topic in _topics(there).items()}
    return [
        Event(tables[each.topic], printed.parsed(each.key), printed.parsed(each.value), each)
        for each in there
        if each.topic in tables
    ]


def pairs(both: Both) -> Iterator[Pair]:
    """Every event with its partner."""
    ours, theirs = _by_key(_once(events(both.ours)), both), _by_key(events(both.theirs), both)
    for where in sorted({*ours, *theirs}):
        for mine, other in zip_longest(ours.get(where, ()), theirs.get(where, ())):
            yield Pair(where[0], mine, other)


def messages(both: Both) -> Iterator[tuple[Any, Any]]:
    """The bodies of logical messages, in order."""
    yield from zip_longest(_bodies(both.ours, "_messages"), _bodies(both.theirs, "message"))


def disorder(both: Both) -> list[int]:
    """Transactions, by their ids, whose changes the sides tell in different orders; one that is missing is no order."""
    ours, theirs = _transactions(events(both.ours), both), _transactions(events(both.theirs), both)
    return [xid for xid in sorted({*ours, *theirs}) if not _agree(ours.get(xid, []), theirs.get(xid, []))]


def renamed_topics(both: Both) -> dict[Table, tuple[str, str]]:
    """Tables whose topics have different names behind the prefix."""
    ours, theirs = _topics(both.ours), _topics(both.theirs)
    return {
        table: (ours[table], theirs[table]) for table in ours.keys() & theirs.keys() if ours[table] != theirs[table]
    }


def others(messages: Iterable[Message]) -> dict[str, int]:
    """How many records stand in topics that are no table's and no messages'."""
    counts: dict[str, int] = defaultdict(int)
    for message in messages:
        if message.topic in (*_OURS_ALONE, "transaction"):
            counts[message.topic] += 1
    return dict(counts)


def _once(found: Iterable[Event]) -> Iterator[Event]:
    """A truncate stands in every partition: the first one of each position is taken."""
    seen = set()
    for event in found:
        if event.op == "t":
            position = event.table, event.body["source"]["commit_lsn"], event.body["source"]["ordinal"]
            if position in seen:
                continue
            seen.add(position)
        yield event


def _by_key(found: Iterable[Event], both: Both) -> dict[tuple[Table, str], list[Event]]:
    rows: dict[tuple[Table, str], list[Event]] = defaultdict(list)
    for event in found:
        rows[event.table, identity(event, both)].append(event)
    return rows


def identity(event: Event, both: Both) -> str:
    """The key as Afterimage writes it, so that both sides have one text for it."""
    if not event.key:
        return TRUNCATE
    shown = {column: _ours(both.types.get((*event.table, column), ""), value) for column, value in event.key.items()}
    return repr(sorted(shown.items()))


def _ours(kind: str, value: Any) -> Any:
    moments = {"date": "date", "timestamp with time zone": "timestamptz", "timestamp without time zone": "timestamp"}
    try:
        return printed.moment(moments[kind], value)
    except (KeyError, ValueError):
        return value


def _transactions(found: Iterable[Event], both: Both) -> dict[int, list[Any]]:
    """By transaction id, the streamed changes in the order of the transaction."""
    ordered: dict[int, dict[int, Any]] = defaultdict(dict)
    for event in found:
        if event.op not in _STREAMED:
            continue
        own = event.body.get("transaction")
        at = event.body["source"]["ordinal"] if own is None else own["total_order"]
        ordered[event.body["source"]["txId"]][at] = event.table, event.op, identity(event, both)
    return {xid: [each for _, each in sorted(changes.items())] for xid, changes in ordered.items()}


def _bodies(found: Iterable[Message], topic: str) -> list[Any]:
    return [printed.parsed(message.value) for message in found if message.topic == topic]


def _agree(ours: list[Any], theirs: list[Any]) -> bool:
    mine, other = set(ours), set(theirs)
    return [each for each in ours if each in other] == [each for each in theirs if each in mine]


def _topics(found: Iterable[Message]) -> dict[Table, str]:
    named: dict[str, Table] = {}
    for message in found:
        if message.topic not in named and message.value is not None:
            body: Any = printed.parsed(message.value)
            if isinstance(body, dict) and body.get("source", {}).get("table"):
                named[message.topic] = body["source"]["schema"], body["source"]["table"]
    return {table: topic for topic, table in named.items()}
