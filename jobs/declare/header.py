"""The header comments of a view file: its key, its sinks and their options.

In: the file's text. Out: a Header whose every word was checked, with the place of each. Keeps true: a word that is not
known, not of a declared sink, or not in its place is an error, so that a misspelt option is never silently ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from jobs.declare.source import Source
from jobs.identifiers import fold
from sinks.spec import SinkOptions

CODE: Final = "VIEW_HEADER"
SINKS: Final = ("delta", "search", "cache", "kafka")
VALUES: Final = ("json", "hash")
REFRESHES: Final = ("auto", "full", "incremental")

_COMMENT = re.compile(r"^[ \t]*--(.*)$")
_WORD = re.compile(r"^\s*([A-Za-z_][\w.-]*)\s*:(.*)$")
_ITEM = re.compile(r'(?:^|,)(\s*"(?:[^"]|"")*"\s*|[^,]*)')


@dataclass(frozen=True, slots=True)
class Entry:
    """One header word: its value, where the word stands and where the value does."""

    word: str
    value: str
    word_at: int
    value_at: int


@dataclass(frozen=True, slots=True)
class Header:
    """`key` is None when it is to be inferred; `entries` are kept for errors found later."""

    key: tuple[str, ...] | None
    sinks: tuple[SinkOptions, ...]
    description: str | None
    refresh: str = "auto"
    max_affected: float | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict)


def read_header(source: Source, before: int) -> Header:
    """The header of a view file: its comment lines before the SELECT."""
    entries: dict[str, Entry] = {}
    for entry in _entries(source, before):
        if entry.word in entries:
            raise _error(source, entry, f"`{entry.word}` is said twice", "keep one of them")
        if entry.word not in _WORDS:
            hint = suggestion(entry.word, _WORDS, what="header words")
            raise _error(source, entry, f"unknown header word `{entry.word}`", hint)
        entries[entry.word] = entry
    for word, entry in entries.items():
        _WORDS[word](source, entry)
    return Header(
        key=_key(source, entries["key"]) if "key" in entries else None,
        sinks=_sinks(source, entries),
        description=entries["description"].value if "description" in entries else None,
        refresh=entries["refresh"].value if "refresh" in entries else "auto",
        max_affected=_share(entries["max_affected"].value) if "max_affected" in entries else None,
        entries=entries,
    )


def check_row_wise(source: Source, header: Header) -> None:
    """A row-wise view has nothing to choose: each change costs one row."""
    for word in ("refresh", "max_affected"):
        entry = header.entries.get(word)
        if entry is not None and entry.value not in ("auto", "incremental"):
            raise _error(
                source, entry, f"`{word}` says nothing of a view over the rows of one table", "remove the line"
            )


def _entries(source: Source, before: int) -> list[Entry]:
    """The words of the comment lines before the SELECT; known words after it are in the wrong place."""
    found, start = [], 0
    for line in source.text.split("\n"):
        comment = _COMMENT.match(line.rstrip("\r"))
        entry = _entry(comment, start) if comment else None
        if entry and start < before:
            found.append(entry)
        elif entry and entry.word in _WORDS:
            hint = "move it to the top of the file"
            raise _error(source, entry, f"`{entry.word}` must stand before the SELECT", hint)
        start += len(line) + 1
    return found


def _entry(comment: re.Match[str], start: int) -> Entry | None:
    match = _WORD.match(comment[1])
    if match is None:
        return None
    base = start + comment.start(1)
    blank = len(match[2]) - len(match[2].lstrip())
    return Entry(match[1], match[2].strip(), base + match.start(1), base + match.start(2) + blank)


def _key(source: Source, entry: Entry) -> tuple[str, ...]:
    names = _list(entry.value)
    if not names or "" in names:
        raise _value_error(source, entry, "the key names no column", "write -- key: id, or leave the line out")
    if len(set(names)) < len(names):
        raise _value_error(source, entry, "the key names a column twice", "name each column once")
    return names


def _list(value: str) -> tuple[str, ...]:
    """Names between commas, folded and unquoted as SQL would."""
    return tuple(_identifier(name.strip()) for name in _ITEM.findall(value))


def _identifier(name: str) -> str:
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return fold(name)


def _sinks(source: Source, entries: Mapping[str, Entry]) -> tuple[SinkOptions, ...]:
    names = _list(entries["sinks"].value) if "sinks" in entries else ("delta",)
    options: dict[str, dict[str, str]] = {name: {} for name in names}
    for word, entry in entries.items():
        sink, dot, option = word.partition(".")
        if dot and sink not in options:
            hint = f"add {sink} to -- sinks:, or remove the line"
            raise _error(source, entry, f"`{word}` is an option of a sink that the view does not have", hint)
        if dot:
            options[sink][option] = entry.value
    return tuple(SinkOptions(name, options[name]) for name in names)


def _check_sinks(source: Source, entry: Entry) -> None:
    names = _list(entry.value)
    for name in names:
        if name not in SINKS:
            hint = suggestion(name, SINKS, what="sinks")
            raise _value_error(source, entry, f"unknown sink `{name}`", hint)
    if len(set(names)) < len(names):
        raise _value_error(source, entry, "a sink is named twice", "name each sink once")


def _check_pattern(source: Source, entry: Entry) -> None:
    # The rest depends on the view's key and is the cache sink's to check.
    if "{generation}" not in entry.value:
        hint = "the default is {pipeline}:{view}:{generation}:{key}"
        raise _value_error(source, entry, "the pattern must contain {generation}", hint)


def _check_ttl(source: Source, entry: Entry) -> None:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", entry.value):
        raise _value_error(source, entry, "the time to live is a number of seconds", "write -- cache.ttl: 3600")


def _check_value(source: Source, entry: Entry) -> None:
    if entry.value not in VALUES:
        raise _value_error(source, entry, f"unknown value format `{entry.value}`", "write json or hash")


def _check_mapping(source: Source, entry: Entry) -> None:
    try:
        value = json.loads(entry.value)
    except ValueError as error:
        raise _value_error(
            source, entry, f"the mapping is not JSON: {error}", 'write {"field": {"type": "keyword"}} on one line'
        ) from error
    if not isinstance(value, dict):
        hint = 'write {"field": {"type": "keyword"}}'
        raise _value_error(source, entry, "the mapping is not a JSON object", hint)


def _check_refresh(source: Source, entry: Entry) -> None:
    if entry.value not in REFRESHES:
        hint = f"write one of {', '.join(REFRESHES)}"
        raise _value_error(source, entry, f"unknown way to refresh `{entry.value}`", hint)


def _check_share(source: Source, entry: Entry) -> None:
    if _share(entry.value) is None:
        hint = "write -- max_affected: 20%"
        raise _value_error(source, entry, "the most keys that may be refreshed one by one are a percentage", hint)


def _share(value: str) -> float | None:
    match = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", value)
    found = float(match[1]) / 100 if match else None
    return found if found is not None and found <= 1 else None


def _check_text(source: Source, entry: Entry) -> None:
    if not entry.value:
        raise _value_error(source, entry, f"`{entry.word}` says nothing", "write something, or remove the line")


_WORDS: Final[Mapping[str, Callable[[Source, Entry], None]]] = {
    "key": _check_text,
    "sinks": _check_sinks,
    "description": _check_text,
    "refresh": _check_refresh,
    "max_affected": _check_share,
    "cache.key": _check_pattern,
    "cache.ttl": _check_ttl,
    "cache.value": _check_value,
    "cache.list": _check_text,
    "search.mapping": _check_mapping,
}


def _error(source: Source, entry: Entry, message: str, hint: str) -> ConfigError:
    return source.error(entry.word_at, message, hint, code=CODE, length=len(entry.word))


def _value_error(source: Source, entry: Entry, message: str, hint: str) -> ConfigError:
    return source.error(entry.value_at, message, hint, code=CODE, length=len(entry.value))
