"""Documents written by an executor, as raw NDJSON in bulk requests.

In: a partition's entries. Out: documents with external versions, and what OpenSearch refused. Keeps true: every item's
outcome is looked at; an older version and an unseen delete are successes; a deleted index is not made again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import stamina

from cdc.errors import CdcError, OperatorError, TransientError
from cdc.names import document_id
from sinks.entries import Entry
from sinks.protocol import Rejected
from sinks.search.nested import TEXTS, Nested, NotNestedError
from sinks.search.server import BUSY, SearchConnection, SearchServer
from sinks.standing import lost
from sinks.values import json_string, object_template

CHUNK_BYTES: Final = 4 << 20
CHUNK_ROWS: Final = 2000
BUSY_ATTEMPTS: Final = 8
BUSY_SECONDS: Final = 60.0

# require_alias: a write to an index that was deleted is an error, not a new index with a guessed mapping.
_WANTED: Final = "errors,items.*.status,items.*.error.type,items.*.error.reason"
_BULK: Final = "/{alias}/_bulk?require_alias=true&filter_path=" + _WANTED
_FIELD: Final = re.compile(r"""field ?[\[=]"?([^\]"]*)""")
_TOO_LARGE: Final = 413

Item = tuple[Entry, bytes]


class Outcome(enum.Enum):
    """What became of one item."""

    DONE = enum.auto()
    AGAIN = enum.auto()
    REFUSED = enum.auto()
    LOST = enum.auto()
    STOP = enum.auto()


@dataclass(frozen=True, slots=True)
class BulkWriter:
    """Writes a partition through the alias of one generation."""

    server: SearchServer
    view: str
    alias: str
    columns: tuple[str, ...]
    nested: Nested = field(default_factory=lambda: Nested({}))

    def __call__(self, entries: Iterator[Entry]) -> Iterable[Rejected]:
        """Write in chunks; what is refused comes back row by row."""
        refused: list[Rejected] = []
        with self.server.connection() as connection:
            for chunk in _chunks(self._items(entries, refused)):
                yield from self._write(connection, chunk)
                yield from refused
                refused.clear()
        yield from refused

    def _items(self, entries: Iterator[Entry], refused: list[Rejected]) -> Iterator[Item]:
        members = object_template(self.columns) + (f',"{TEXTS}":%s' if self.nested.forms else "")
        for entry in entries:
            values: tuple[str | None, ...] = entry.values
            if self.nested.forms and not entry.is_delete:
                try:
                    values = self.nested.members(self.columns, values)
                except NotNestedError as error:
                    refused.append(entry.rejected(f"not of its type's form in field {error.column}"))
                    continue
            yield entry, _lines(entry, members, values)

    def _write(self, connection: SearchConnection, chunk: list[Item]) -> list[Rejected]:
        """Until every item is either in or refused; an overloaded server is given time."""
        pending, rejected = chunk, list[Rejected]()
        # Not stamina's decorator: it would log the arguments, which are rows.
        for attempt in stamina.retry_context(on=_is_busy, attempts=BUSY_ATTEMPTS, timeout=BUSY_SECONDS):
            with attempt:
                pending, refused = self._send(connection, pending)
                rejected += refused
                if pending:
                    raise TransientError("OpenSearch is overloaded", "it is tried again", code=BUSY)
        return rejected

    def _send(self, connection: SearchConnection, chunk: list[Item]) -> tuple[list[Item], list[Rejected]]:
        """One request: the items to send again, and the refused ones."""
        body = b"".join(lines for _, lines in chunk)
        answer = connection.ask("POST", _BULK.format(alias=self.alias), body, accept=(404, _TOO_LARGE))
        if answer.status == 404:
            raise lost("OpenSearch", self.view)
        if answer.status == _TOO_LARGE:
            return self._halve(connection, chunk)
        if not answer.body.get("errors"):
            return [], []
        return self._sort_out(chunk, answer.body["items"])

    def _halve(self, connection: SearchConnection, chunk: list[Item]) -> tuple[list[Item], list[Rejected]]:
        if len(chunk) == 1:
            return [], [chunk[0][0].rejected("larger than OpenSearch's http.max_content_length")]
        middle = len(chunk) // 2
        first, second = self._send(connection, chunk[:middle]), self._send(connection, chunk[middle:])
        return first[0] + second[0], first[1] + second[1]

    def _sort_out(self, chunk: list[Item], items: list[dict[str, Any]]) -> tuple[list[Item], list[Rejected]]:
        again: list[Item] = []
        rejected: list[Rejected] = []
        for sent, item in zip(chunk, items, strict=True):
            (result,) = item.values()
            match outcome(result):
                case Outcome.AGAIN:
                    again.append(sent)
                case Outcome.LOST:
                    raise lost("OpenSearch", self.view)
                case Outcome.REFUSED:
                    rejected.append(sent[0].rejected(reason(result["error"], self.columns)))
                case Outcome.STOP:
                    raise _stopped(result)
        return again, rejected


def _lines(entry: Entry, members: str, values: tuple[str | None, ...]) -> bytes:
    action = "delete" if entry.is_delete else "index"
    target = f'{{"_id":{json_string(document_id(entry.key))},"version":{entry.lsn},"version_type":"external_gte"}}'
    document = "" if entry.is_delete else f"{{{members % values}}}\n"
    return f'{{"{action}":{target}}}\n{document}'.encode()


def outcome(result: dict[str, Any]) -> Outcome:
    """What the answer says of one item."""
    status = result["status"]
    # 409: a newer version is there already. A delete of what was never there is 404 without an error.
    if status < 300 or status == 409 or "error" not in result:
        return Outcome.DONE
    if status in (429, 503):
        return Outcome.AGAIN
    if status == 404:
        return Outcome.LOST
    return Outcome.REFUSED if status == 400 else Outcome.STOP


def reason(error: dict[str, Any], columns: Collection[str]) -> str:
    """Why a row was refused, without its values: OpenSearch's reason may quote them, so only a known field is kept."""
    named = [name for name in _FIELD.findall(str(error.get("reason", ""))) if name in columns]
    return str(error.get("type", "unknown")) + (f" in field {named[0]}" if named else "")


def _is_busy(error: Exception) -> bool:
    return isinstance(error, TransientError) and error.code == BUSY


def _stopped(result: dict[str, Any]) -> CdcError:
    kind = str(result["error"].get("type", "unknown"))
    if result["status"] >= 500:
        return TransientError(f"OpenSearch failed: {kind}", "its log has more", code="SEARCH_UNAVAILABLE")
    hint = "is its disk full, or the index read-only? see GET _cluster/allocation/explain"
    return OperatorError(f"OpenSearch refuses to write: {kind}", hint, code="SEARCH_READ_ONLY")


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    size = 0
    for item in items:
        if chunk and (size + len(item[1]) > CHUNK_BYTES or len(chunk) >= CHUNK_ROWS):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += len(item[1])
    if chunk:
        yield chunk
