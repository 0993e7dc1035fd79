"""The compiled encoder gives what Python gives, byte for byte, or leaves it to Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc import compiled, oids
from cdc.arrays import print_array
from cdc.assembler import Assembler
from cdc.batching import Limits
from cdc.changes import UNCHANGED, Origin, Record, Relation
from cdc.effects import Commit, Complete, Effect, Poll, Polled, Produce, Seal
from cdc.envelope import TableEncoder
from cdc.errors import CdcError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.machine import CaptureMachine
from cdc.progress import Kind, Progress, checksum
from snapshot.copy_records import encoded
from snapshot.copy_text import parse_line
from tests.property.test_values import ARRAY_OF, SCALARS, any_text, arrays, awkward_text
from tests.support import frames
from tests.support.compiling import built

TYPES = [*sorted(SCALARS), ARRAY_OF[oids.INT8], ARRAY_OF[oids.TEXT], oids.INT4]
NAMES = ["id", 'the "key"', "é\n", "d", "e"]
START = 100


@pytest.fixture(scope="module", autouse=True)
def encoder_of_this_source():
    """The module that belongs to this very source, built for the test if it has to be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "records", built())
        yield


@st.composite
def relations(draw) -> Relation:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
    columns = list(zip(NAMES, types, strict=False))
    key = draw(st.sets(st.sampled_from([name for name, _ in columns]), min_size=1))
    return frames.table(columns=columns, key=sorted(key), identity=draw(st.sampled_from("df")))


def right_texts(oid: int) -> Any:
    if oid in SCALARS:
        return SCALARS[oid]
    if oid == oids.INT4:
        return st.sampled_from(["1", "-7"])
    return st.one_of(
        arrays(SCALARS[oids.ELEMENT_OF[oid]]).map(print_array),
        st.sampled_from(["{1,NULL,-3}", "[0:1]={1,2}", "{}", "{NULLNULL,}"]),
    )


RIGHT = {oid: right_texts(oid) for oid in TYPES}


def texts(oid: int) -> Any:
    """Mostly what the type prints, sometimes anything."""
    anything = st.one_of(any_text, awkward_text, st.just("-0"))
    return st.integers(0, 30).flatmap(lambda number: RIGHT[oid] if number else anything)


@st.composite
def rows(draw, relation: Relation, *, only_key: bool = False) -> tuple[Any, ...]:
    def value(column: Any) -> Any:
        odd = draw(st.integers(0, 25))
        if (only_key and not column.is_key) or odd == 0 or (odd < 5 and not column.is_key):
            return None
        return UNCHANGED if odd == 25 and not only_key else draw(texts(column.base_oid))

    return tuple(value(column) for column in relation.columns)


@st.composite
def changes(draw, relation: Relation) -> bytes:
    oid, old_is_key = relation.oid, draw(st.booleans())
    old = rows(relation, only_key=old_is_key)
    match draw(st.sampled_from("iiuuuud")):
        case "i":
            return frames.insert(oid, draw(rows(relation)))
        case "d":
            return frames.delete(oid, draw(old), old_is_key=old_is_key)
        case _:
            before = draw(st.one_of(st.none(), old))
            return frames.update(oid, draw(rows(relation)), before, old_is_key=old_is_key)


@st.composite
def streams(draw) -> tuple[Relation, list[list[bytes]]]:
    """A table and the polls in which its log comes, cut anywhere."""
    relation = draw(relations())
    described = frames.relation(frames.relation_message(relation))
    sent: list[bytes] = []
    lsn = START
    for number in range(draw(st.integers(1, 6))):
        lsn += draw(st.integers(1, 40))
        at_us = POSTGRES_EPOCH_US + draw(st.integers(0, 2**50))
        body = draw(st.lists(changes(relation), max_size=5))
        if number == 0 or draw(st.integers(0, 5)) == 0:
            body.insert(0, described)
        if draw(st.integers(0, 8)) == 0:
            body.append(frames.truncate([relation.oid]))
        payloads = [frames.begin(lsn, number + 7, at_us), *body, frames.commit(lsn, None, at_us)]
        sent += [frames.wal_data(payload, sent_us=at_us + 9) for payload in payloads]
        if draw(st.booleans()):
            sent.append(frames.keepalive(lsn + 9))
        lsn += 9
    cuts = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=4)))
    return relation, [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


def captured(relation: Relation, polls: list[list[bytes]]) -> list[Any]:
    """Records, progress records, and the error that it ends with, if so; then what was not committed is gone."""
    topic = TableEncoder("shop", "db", relation, 3).topic
    start = Progress(4, Kind.STREAM, 50, START, 9, 0, 0, {topic: (7, 3, 5)}, "7000")
    assembler = Assembler(lambda _: relation, spill_directory=Path("unused"), spill_bytes=1 << 30)
    limits = Limits(flush_interval_s=5.0, behind_interval_s=5.0, batch_records_max=5, batch_bytes_max=3000)
    machine = CaptureMachine(start, assembler, lambda r: TableEncoder("shop", "db", r, 3), {}, limits)
    effects = machine.run()
    seen: list[Any] = []
    answer: Any = None
    waiting = iter([*polls, []])  # the last commits what is there
    now_s, durable = 0.0, 0
    while True:
        try:
            effect: Effect = effects.send(answer)
        except CdcError as error:
            return [*seen[:durable], type(error), str(error)]
        answer = None
        match effect:
            case Poll():
                frames_now = next(waiting, None)
                if frames_now is None:
                    return seen
                now_s += 9.0
                answer = Polled(frames_now, True, now_s, 77)
            case Produce():
                seen += [tuple(record) for record in effect.records]
            case Seal():
                answer = {topic: {0: 11}}
            case Complete():
                row = tuple("1" if value is UNCHANGED else value for value in effect.change.new)
                answer = type(effect.change)(effect.change.op, relation, effect.change.old, row)
            case Commit():
                seen.append(effect.progress)
                durable = len(seen)
                answer = now_s
            case _:
                seen.append(repr(effect))


def by_python(call: Any, *arguments: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "records", None)
        return call(*arguments)


@given(streams())
def test_a_log_becomes_the_same_records_and_progress(stream):
    assert captured(*stream) == by_python(captured, *stream)


def copied(relation: Relation, lines: list[bytes]) -> Any:
    try:
        return encoded(TableEncoder("shop", "db", relation, 3), lines, Origin(99, None, 1_700_000_000_123_456), 77)
    except (CdcError, ValueError) as error:
        return type(error), str(error)


ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


def line_of(row: tuple[Any, ...]) -> bytes:
    fields = ["\\N" if value is None else "".join(ESCAPES.get(c, c) for c in value) for value in row]
    return ("\t".join(fields) + "\n").encode()


@st.composite
def copies(draw) -> tuple[Relation, list[bytes]]:
    relation = draw(relations())
    plain = rows(relation).filter(lambda row: UNCHANGED not in row)
    lines = draw(st.lists(plain.map(line_of), max_size=6))
    odd = draw(st.lists(st.one_of(st.just(b"x\\"), awkward_text.map(str.encode)), max_size=1))
    return relation, [*lines, *(line + b"\n" for line in odd)]


@given(copies())
def test_copied_lines_become_the_same_records(copy):
    assert copied(*copy) == by_python(copied, *copy)


def test_plain_rows_are_not_left_to_python():
    table = frames.table(columns=[("id", oids.INT4), ("name", oids.TEXT)])
    lines = [line_of((str(number), None if number % 3 else "a\tb")) for number in range(50)]
    encoder = TableEncoder("shop", "db", table, 3)
    records, at = encoder.plain_records(lines, 0, Origin(99, None, 5), 77)
    assert (len(records), at) == (50, 50)
    assert records == [encoder.read_record(parse_line(line), Origin(99, None, 5), 77) for line in lines]


@given(st.lists(st.builds(Record, st.just("t"), st.just(0), st.binary(max_size=40), st.none() | st.binary())))
def test_checksums_are_equal(records):
    assert checksum(records) == by_python(checksum, records)
