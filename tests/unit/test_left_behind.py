"""Which sinks are left that a view's file names no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs import left_behind as module
from jobs.control.kept import Declared, Kept, Left
from jobs.control.records import Withdrawn
from jobs.ledger import LedgerState
from jobs.left_behind import left_behind, tell_left
from sinks.spec import Kind, SinkOptions, ViewSpec


def view(name: str, *sinks: str, kind: Kind = Kind.ROWWISE) -> ViewSpec:
    options = tuple(map(SinkOptions, sinks))
    return ViewSpec(name, kind, "", "", ("id",), (), ("id",), "", "", options, "1")


def ledger(*tables: str) -> LedgerState:
    return LedgerState(1, 1, dict.fromkeys(tables, cast(Any, None)))


def test_what_was_told_and_a_table_that_has_a_row_are_left():
    specs = {"v": view("v", "cache"), "w": view("w", "delta", "search"), "t": view("t", "delta", kind=Kind.MIRROR)}
    kept: list[Kept] = [Left("v", "search"), Left("w", "search"), Left("gone", "cache"), Declared("v", "SELECT 1")]
    assert left_behind(kept, ledger("v", "w", "t", "gone"), specs) == {"v": ("delta", "search")}
    assert left_behind([], None, specs) == {}


def test_what_is_live_or_coming_is_not_left():
    kept = [Left("v", "search"), Left("v", "kafka")]
    live, coming = {"v": view("v", "delta")}, {"v": view("v", "search")}
    assert left_behind(kept, ledger("v"), live, coming) == {"v": ("kafka",)}


class Topic:
    """The control topic, as far as it is written to."""

    def __init__(self, *kept: Kept) -> None:
        self.kept: dict[str, Kept] = {each.id: each for each in kept}

    def keep(self, record: Kept | Withdrawn) -> None:
        if isinstance(record, Withdrawn):
            self.kept.pop(record.id)
        else:
            self.kept[record.id] = record


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic(Left("w", "cache"))
    monkeypatch.setattr(module, "kept_records", lambda _: [*made.kept.values()])
    return made


def tell(topic: Topic, former: dict[str, str], *specs: ViewSpec) -> set[Kept]:
    tell_left(cast(Any, SimpleNamespace()), cast(Any, topic), former, {spec.name: spec for spec in specs})
    return {*topic.kept.values()}


def test_it_is_told_until_the_sink_is_named_again_or_dropped(topic: Topic):
    was = {"v": "-- sinks: delta, search, kafka\nSELECT id FROM t"}
    before = {Left("w", "cache")}
    assert tell(topic, {}, view("v", "delta"), view("w", "delta")) == before
    told = tell(topic, was, view("v", "cache"), view("w", "delta"))
    assert told == {*before, Left("v", "search"), Left("v", "kafka")}, "a table tells of itself, by the ledger"
    less = {"v": "-- sinks: cache\nSELECT id FROM t", "w": "SELECT id FROM t"}
    again = tell(topic, less, view("v", "cache", "search"), view("w", "delta", "cache"))
    assert again == {Left("v", "kafka")}
    assert tell(topic, {}, view("v", "kafka")) == {Left("v", "kafka")}, "no text has changed"


def test_a_former_text_that_cannot_be_read_leaves_nothing(topic: Topic):
    assert tell(topic, {"v": "-- sinks: nowhere\nSELECT"}, view("v", "cache")) == {Left("w", "cache")}
