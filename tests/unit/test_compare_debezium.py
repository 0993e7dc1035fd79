"""The comparison with Debezium excuses what is listed and nothing else: by a recorded run that has each kind once."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from bench.compare.__main__ import BEGIN, END, PAGE
from bench.compare.capture import SETTINGS, Both, Message
from bench.compare.kinds import KINDS
from bench.compare.recording import read
from bench.compare.summary import page, summary
from bench.compare.values import ABSENT, UNEXPLAINED, differences

RECORDED = Path("tests/corpus/debezium.json")


@pytest.fixture
def both() -> Both:
    return read(json.loads(RECORDED.read_text()))


def edited(message: Message, **fields) -> Message:
    return replace(message, value=json.dumps({**json.loads(message.value), **fields}).encode())


def row_of(message: Message) -> dict | None:
    body = json.loads(message.value) if message.value else {}
    return body.get("after")


def first(messages, wanted) -> int:
    return next(at for at, message in enumerate(messages) if wanted(message))


def test_the_recorded_run_has_every_kind_and_no_other_difference(both):
    found = summary(both)
    assert (found.unexplained, found.disordered, found.absent) == ([], [], [])
    assert found.is_fine


def test_another_value_is_a_difference(both):
    at = first(both.theirs, lambda each: each.topic == "public.plain" and row_of(each))
    row = row_of(both.theirs[at])
    both.theirs[at] = edited(both.theirs[at], after={**row, "name": row["name"] + "?"})
    [line] = summary(both).unexplained
    assert line.startswith("after: text")


@pytest.mark.parametrize("field", ["op", "ts_ms", "extra"])
def test_another_field_is_a_difference(both, field):
    at = first(both.theirs, lambda each: each.topic == "public.plain" and row_of(each))
    both.theirs[at] = edited(both.theirs[at], **{field: "x"})
    assert len(summary(both).unexplained) == 1


@pytest.mark.parametrize(("field", "value"), [("txId", 1), ("ts_ms", 1), ("table", "x"), ("lsn", 1 << 60), ("new", 1)])
def test_another_source_is_a_difference(both, field, value):
    at = first(both.theirs, lambda each: each.value is not None and b'"op": "u"' in each.value)
    source = json.loads(both.theirs[at].value)["source"]
    both.theirs[at] = edited(both.theirs[at], source={**source, field: value})
    assert not summary(both).is_fine


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_missing_event_is_a_difference(both, side):
    messages = getattr(both, side)
    del messages[first(messages, lambda each: each.topic == "public.plain")]
    assert summary(both).unexplained != []


def test_an_event_twice_is_a_difference(both):
    both.ours.append(both.ours[first(both.ours, lambda each: each.topic == "public.plain")])
    assert len(summary(both).unexplained) == 1


def test_another_order_within_a_transaction_is_seen(both):
    found: dict[int, list[tuple[int, int]]] = {}
    for at, message in enumerate(both.theirs):
        if message.value and (own := json.loads(message.value).get("transaction")):
            found.setdefault(json.loads(message.value)["source"]["txId"], []).append((at, own["total_order"]))
    xid, [(one, low), (other, high), *_] = next(
        (xid, places) for xid, places in found.items() if len(places) > 1 and xid is not None
    )
    for at, order in ((one, high), (other, low)):
        own = json.loads(both.theirs[at].value)["transaction"]
        both.theirs[at] = edited(both.theirs[at], transaction={**own, "total_order": order})
    assert summary(both).disordered == [xid]


def test_a_kind_that_does_not_occur_any_more_is_told(both):
    gone = [each for each in both.theirs if each.topic != "transaction"]
    assert summary(replace(both, theirs=gone)).absent == ["topic-transaction"]


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("text", "a", "b"),
        ("text", "a", None),
        ("text", None, ABSENT),
        ("integer", 1, 2),
        ("integer", 1, True),
        ("integer", 1, "1"),
        ("double precision", Decimal("0.1"), Decimal("0.2")),
        ("double precision", Decimal("-0.0"), 0),
        ("double precision", "NaN", None),
        ("numeric", "NaN", None),
        ("numeric", "NaN", "POSITIVE_INFINITY"),
        ("numeric(10,2)", "1.50", "1.51"),
        ("timestamp without time zone", "2026-11-18T10:00:00.5", "2026-11-18T10:00:00.6Z"),
        ("timestamp(3) with time zone", "2026-11-18T10:00:00Z", "2026-11-18T11:00:00.000000Z"),
        ("timestamp with time zone", "2026-11-18T10:00:00Z", None),
        ("date", "2026-11-18", "2026-11-19Z"),
        ("time without time zone", "10:00:00.123456", "10:00:00.123457Z"),
        ("time with time zone", "10:00:00+02", "10:00:00Z"),
        ("interval", "1 mon", "P0Y0M30DT0H0M0S"),
        ("interval day to second", "3 days 04:05:06", "P0Y0M3DT4H5M7S"),
        ("money", "$1,234.50", "1234.05"),
        ("bit(3)", "101", "BA=="),
        ("bytea", "AAE=", None),
        ("bytea", "AAE=", "AAI="),
        ("jsonpath", '$."a"', "eA=="),
        ("point", "(1,2)", {"x": 2, "y": 1}),
        ("public.hstore", '"a"=>"1"', '{"a": "2"}'),
        ("integer[]", [1, 2], [1]),
        ("text[]", ["a"], None),
        ("numeric[]", ["1.5"], None),
        ("text[]", ["a"], ABSENT),
        ("integer", ABSENT, 1),
        ("date", "infinity", None),
        ("integer[]", [1, 2], [1, 3]),
        ("boolean", True, None),
    ],
)
def test_what_differs_in_value_is_not_excused_as_form(kind, ours, theirs):
    assert list(differences(kind, ours, theirs)) == [UNEXPLAINED]


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "found"),
    [
        ("numeric(10,2)", "1.50", "1.50", []),
        ("double precision", Decimal("1E+15"), Decimal("1.0E15"), []),
        ("date", "2026-11-18", "2026-11-18Z", ["iso-time"]),
        ("date", "0044-03-15 BC", "-0043-03-15Z", ["year-bc"]),
        ("date", "0044-03-15 BC", "0044-03-15Z", ["old-date"]),
        ("date", "infinity", "+292278994-08-16Z", ["infinity"]),
        ("timestamp with time zone", "2026-11-18T10:00:00.5Z", "2026-11-18T10:00:00.500000Z", ["iso-time"]),
        ("timestamp without time zone", "294276-12-31T23:59:59.9", "+294276-12-31T23:59:59.9Z", ["iso-time"]),
        ("timestamp with time zone", "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z", ["year-bc"]),
        ("time with time zone", "10:00:00.1+02", "08:00:00.1Z", ["timetz-moved"]),
        ("time with time zone", "00:00:00+15:59", "08:01:00Z", ["timetz-moved"]),
        ("interval", "-1 years +2 days -00:00:01.5", "P-1Y0M2DT0H0M-1.5S", ["interval-form"]),
        (
            "date[]",
            ["2026-11-18", "infinity", None],
            ["2026-11-18Z", "-5877611-06-21Z", None],
            ["iso-time", "infinity"],
        ),
        ("text[]", [["a"], ["b"]], ["[Ljava.lang.String;@59a1604c"] * 2, ["array-nested"]),
        ("integer[]", "[-1:0]={1,2}", [1, 2], ["array-bounds"]),
        ("numeric[]", ["NaN"], None, ["array-lost"]),
        ("text[]", ["a"], ["__debezium_unavailable_value"], ["toast-placeholder"]),
    ],
)
def test_what_is_excused_has_its_kind(kind, ours, theirs, found):
    assert list(differences(kind, ours, theirs)) == found


def told() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def test_the_document_lists_what_is_excused():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([\d,]+) \| (.+) \| (.+) \|$", told(), flags=re.MULTILINE)
    assert {name: (what, why) for name, _, what, why in rows} == {
        name: (kind.what, kind.why) for name, kind in KINDS.items()
    }
    assert all(int(count.replace(",", "")) > 0 for _, count, _, _ in rows)


def test_the_document_is_laid_out_as_a_run_writes_it(both):
    assert re.sub(r"[\d,.]+", "0", told().partition("###")[2]) == re.sub(
        r"[\d,.]+", "0", page(summary(both)).partition("###")[2]
    )


def test_the_document_has_the_settings_of_the_peer():
    hidden = {"table.include.list", "topic.creation.default.partitions", "topic.creation.default.replication.factor"}
    text = PAGE.read_text()
    assert [name for name, value in SETTINGS.items() if f"{name}={value}" not in text] == sorted(hidden)
