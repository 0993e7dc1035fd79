"""Decoding pgoutput: every message round trips, and garbage is a message or a ProtocolError, never anything else."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from cdc import pgoutput
from cdc.changes import UNCHANGED
from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US, decode_frame
from tests.support import frames

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
rows = st.lists(st.one_of(st.none(), st.just(UNCHANGED), texts), max_size=6)
lsns = st.integers(0, 2**64 - 1)
oids = st.integers(0, 2**32 - 1)
times = st.integers(-(2**63), 2**63 - 1).map(lambda us: us + POSTGRES_EPOCH_US)
columns = st.builds(pgoutput.RelationColumn, st.booleans(), texts, oids, st.integers(-(2**31), 2**31 - 1))
old_kinds = st.sampled_from(["K", "O"])

messages = st.one_of(
    st.builds(pgoutput.Begin, lsns, times, oids),
    st.builds(pgoutput.Commit, lsns, lsns, times),
    st.builds(pgoutput.Origin, lsns, texts),
    st.builds(pgoutput.TypeMessage, oids, texts.filter(bool), texts),
    st.builds(
        pgoutput.RelationMessage,
        oids,
        texts.filter(bool),
        texts,
        st.sampled_from("dnfi"),
        st.lists(columns, max_size=5).map(tuple),
    ),
    st.builds(pgoutput.Insert, oids, rows.map(tuple)),
    st.builds(lambda oid, new: pgoutput.Update(oid, None, None, tuple(new)), oids, rows),
    st.builds(
        lambda oid, kind, old, new: pgoutput.Update(oid, kind, tuple(old), tuple(new)), oids, old_kinds, rows, rows
    ),
    st.builds(pgoutput.Delete, oids, old_kinds, rows.map(tuple)),
    st.builds(pgoutput.Truncate, st.lists(oids, max_size=5).map(tuple), st.booleans(), st.booleans()),
    st.builds(pgoutput.LogicalMessage, st.booleans(), lsns, texts, st.binary(max_size=20)),
)


def encoded(message: pgoutput.Message) -> bytes:
    match message:
        case pgoutput.Begin(final_lsn, ts, xid):
            return frames.begin(final_lsn, xid, ts)
        case pgoutput.Commit(commit_lsn, end_lsn, ts):
            return frames.commit(commit_lsn, end_lsn, ts)
        case pgoutput.Origin(lsn, name):
            return frames.origin(name, lsn)
        case pgoutput.TypeMessage(oid, schema, name):
            return frames.type_(oid, schema, name)
        case pgoutput.RelationMessage():
            return frames.relation(message)
        case pgoutput.LogicalMessage(transactional, lsn, prefix, content):
            return frames.logical_message(prefix, content, lsn, transactional=transactional)
        case _:
            return encoded_change(message)


def encoded_change(message: pgoutput.Message) -> bytes:
    match message:
        case pgoutput.Insert(oid, new):
            return frames.insert(oid, new)
        case pgoutput.Update(oid, kind, old, new):
            return frames.update(oid, new, old, old_is_key=kind == "K")
        case pgoutput.Delete(oid, kind, old):
            return frames.delete(oid, old, old_is_key=kind == "K")
        case pgoutput.Truncate(tables, cascade, restart):
            return frames.truncate(tables, cascade=cascade, restart_identity=restart)
        case _:
            raise AssertionError(message)


def outcome(data: bytes) -> pgoutput.Message | None:
    try:
        return pgoutput.decode(data)
    except ProtocolError:
        return None


@given(messages)
def test_round_trip(message):
    assert pgoutput.decode(encoded(message)) == message


@given(
    st.builds(bytes.__add__, st.sampled_from([b"", *(kind.encode() for kind in "BCORYIUDTM")]), st.binary(max_size=60))
)
def test_garbage_is_a_message_or_a_protocol_error(data):
    message = outcome(data)
    # What was accepted used every byte: it is what its own encoding says, but for the names left empty.
    assert message is None or len(encoded(message)) >= len(data)


@given(messages, st.data())
def test_a_damaged_message_is_a_message_or_a_protocol_error(message, data):
    damaged = bytearray(encoded(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(damaged))


@given(messages, st.data())
def test_a_cut_message_is_a_protocol_error(message, data):
    whole = encoded(message)
    assert outcome(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(st.builds(bytes.__add__, st.sampled_from([b"w", b"k", b""]), st.binary(max_size=60)))
def test_garbage_frames_are_frames_or_protocol_errors(data):
    with suppress(ProtocolError):
        assert decode_frame(data)
