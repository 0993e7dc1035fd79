"""pgoutput messages: each kind by example, and each way of being malformed."""

from __future__ import annotations

import pytest

from cdc.changes import UNCHANGED
from cdc.errors import ProtocolError
from cdc.frames import POSTGRES_EPOCH_US
from cdc.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    RelationColumn,
    RelationMessage,
    Truncate,
    TypeMessage,
    Update,
    decode,
)
from tests.support import frames

TS = POSTGRES_EPOCH_US + 846_000_000_000_123
ACCOUNTS = RelationMessage(
    16384,
    "public",
    "größe",
    "f",
    (RelationColumn(True, "id", 23, -1), RelationColumn(False, "price", 1700, 655366)),
)

EXAMPLES = [
    (frames.begin(0x16B3748, 740, TS), Begin(0x16B3748, TS, 740)),
    (frames.commit(0x16B3748, 0x16B3778, TS), Commit(0x16B3748, 0x16B3778, TS)),
    (frames.origin("elsewhere", 7), Origin(7, "elsewhere")),
    (frames.type_(16400, "public", "mood"), TypeMessage(16400, "public", "mood")),
    (frames.type_(16400, "", "mood"), TypeMessage(16400, "pg_catalog", "mood")),
    (frames.relation(ACCOUNTS), ACCOUNTS),
    (frames.insert(9, ["1", None, "é"]), Insert(9, ("1", None, "é"))),
    (frames.insert(9, []), Insert(9, ())),
    (frames.update(9, ["1", UNCHANGED]), Update(9, None, None, ("1", UNCHANGED))),
    (frames.update(9, ["1"], ["2"], old_is_key=True), Update(9, "K", ("2",), ("1",))),
    (frames.update(9, ["1"], ["2"]), Update(9, "O", ("2",), ("1",))),
    (frames.delete(9, ["1", None]), Delete(9, "K", ("1", None))),
    (frames.delete(9, ["1", ""], old_is_key=False), Delete(9, "O", ("1", ""))),
    (frames.truncate([9, 10], cascade=True), Truncate((9, 10), True, False)),
    (frames.truncate([9], restart_identity=True), Truncate((9,), False, True)),
    (frames.logical_message("p", b"\0\xff", 5), LogicalMessage(True, 5, "p", b"\0\xff")),
    (frames.logical_message("", b"", 5, transactional=False), LogicalMessage(False, 5, "", b"")),
]
IDS = [type(message).__name__ for _, message in EXAMPLES]


@pytest.mark.parametrize(("data", "message"), EXAMPLES, ids=IDS)
def test_decodes(data, message):
    assert decode(data) == message


@pytest.mark.parametrize("data", [data for data, _ in EXAMPLES], ids=IDS)
def test_no_part_of_a_message_is_a_message(data):
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:end])


@pytest.mark.parametrize("data", [data for data, _ in EXAMPLES], ids=IDS)
def test_trailing_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        decode(data + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"S" + bytes(5),  # stream start
        b"A" + bytes(8),
        b"b" + bytes(30),  # begin prepare
        b"\xff",
        frames.commit(1, 2)[:1] + b"\x01" + frames.commit(1, 2)[2:],
        frames.insert(9, ["1"]).replace(b"t", b"b"),  # binary
        frames.insert(9, ["1"]).replace(b"N", b"K"),
        frames.update(9, ["1"], ["2"]).replace(b"N", b"O"),
        frames.update(9, ["1"]).replace(b"N", b"X"),
        frames.delete(9, ["1"]).replace(b"K", b"N"),
        b"I\0\0\0\x09N\0\x01t\xff\xff\xff\xff1",
        b"I\0\0\0\x09N\0\x01t\0\0\0\x01\xff",  # not UTF-8
        b"O" + bytes(8) + b"\xff\0",
        b"T\xff\xff\xff\xff\0" + bytes(8),
        b"T\0\0\0\x01\x04" + bytes(4),
        frames.relation(ACCOUNTS).replace(b"\0f\0", b"\0z\0"),
        b"M\x02" + bytes(13),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(data):
    with pytest.raises(ProtocolError):
        decode(data)
