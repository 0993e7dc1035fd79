"""Rows as records of a view's topic: what a row's key and value look like, and what says where the view stands.

In: entries, a standing. Out: keys and values as JSON, and the standing and rows again. Keeps true: values have the
forms of the table topics, so nothing is lost; the position's key is a JSON string, which no row's is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cdc.errors import RecordError
from sinks.entries import Entry
from sinks.protocol import DELETE, UPSERT, Rejected, Written
from sinks.values import json_string, json_text, native, object_template

POSITION_KEY: Final = b'"position"'
POSITION_HEADER: Final = "position"
RECORD_BYTES_MAX: Final = (64 << 20) - 4096
"""What the topic takes (cdc.topics), less what Kafka puts around a record."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row's change; `after` is the row as JSON, None for a delete."""

    key: str
    after: str | None
    lsn: int
    at: str

    @property
    def is_too_large(self) -> bool:
        """Whether no topic of ours takes it; a character has up to four bytes."""
        size = len(self.key) + len(self.after or "")
        return 4 * size > RECORD_BYTES_MAX and len((self.key + (self.after or "")).encode()) > RECORD_BYTES_MAX

    def rejected(self) -> Rejected:
        """This row as one that is refused."""
        return Rejected(self.at, self.lsn, "larger than max.message.bytes of the view's topic")


@dataclass(frozen=True, slots=True)
class ChangeShape:
    """Which of a view's columns make the key."""

    columns: tuple[str, ...]
    key: tuple[str, ...]

    def changes(self, entries: Iterable[Entry]) -> Iterator[Change]:
        """The entries, whose values are JSON, as changes."""
        row, key = object_template(self.columns), object_template(self.key)
        at = [self.columns.index(name) for name in self.key]
        for entry in entries:
            key_text = "{" + key % tuple(entry.values[place] for place in at) + "}"
            after = None if entry.is_delete else "{" + row % entry.values + "}"
            yield Change(key_text, after, entry.lsn, entry.at)


@dataclass
class Counts:
    """Counts the changes that pass; what is too large does not."""

    upserts: int = 0
    deletes: int = 0
    rejected: list[Rejected] = field(default_factory=list)

    def fitting(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The changes that the topic takes."""
        for change in changes:
            if change.is_too_large:
                self.rejected.append(change.rejected())
                continue
            if change.after is None:
                self.deletes += 1
            else:
                self.upserts += 1
            yield change

    @property
    def written(self) -> Written:
        """What was written."""
        return Written(self.upserts, self.deletes, tuple(self.rejected))


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the values of one write have in common."""

    pipeline: str
    view: str
    source_ms: int
    written_ms: int

    def value(self, change: Change, operation: str) -> bytes:
        """Debezium's envelope: `r` is a row of a whole new content, `u` a row as it is now, `d` one that is gone."""
        before, after = ("null", change.after) if change.after is not None else (change.key, "null")
        source = (
            f'{{"connector":"afterimage","name":{json_string(self.pipeline)},"ts_ms":{self.source_ms},'
            f'"view":{json_string(self.view)},"commit_lsn":{change.lsn}}}'
        )
        text = f'{{"before":{before},"after":{after},"source":{source},"op":"{operation}","ts_ms":{self.written_ms}}}'
        return text.encode()


def position_value(fields: Mapping[str, Any]) -> bytes:
    """The value of the position's record."""
    return json_text(fields).encode()


def parse_fields(value: bytes | None) -> dict[str, Any] | None:
    """The fields of a position's record; None for a void one."""
    try:
        parsed = json.loads(value or b"null")
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


class Rows:
    """Reads the rows of one view back from values."""

    def __init__(self, view: str, columns: Iterable[str], types: Mapping[str, str]) -> None:
        self._view = view
        self._columns: list[tuple[str, Callable[[Any], Any]]] = [
            (name, native(types[name], as_json=True)) for name in columns
        ]

    def row(self, value: bytes) -> tuple[Any, ...]:
        """The row after the change; a column that isn't there is NULL."""
        try:
            after = json.loads(value)["after"]
            return tuple(to_native(after.get(name)) for name, to_native in self._columns)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            hint = f"something else writes there; run: afterimage rebuild {self._view}"
            raise RecordError(f"view {self._view}: its topic holds a record that is not ours", hint) from error


def operation(change: Change) -> str:
    """What a change is called in the envelope."""
    return DELETE if change.after is None else UPSERT
