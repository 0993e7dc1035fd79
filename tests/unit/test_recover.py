"""What recover knows of a topic: images of records, and the keys that are held of them."""

from __future__ import annotations

import pytest

from cdc.changes import Change, Column, Op, Origin, Record, Relation
from cdc.envelope import TableEncoder
from cdc.errors import OperatorError
from cdc.oids import INT4, TEXT
from cdc.recover.held import HeldKeys
from cdc.recover.image import Absence, image_of

TABLE = Relation(
    1,
    "public",
    "source",
    "f",
    (
        Column("id", INT4, -1, "integer", INT4, True, False),
        Column("after", TEXT, -1, "text", TEXT, False),
        Column("source", TEXT, -1, "text", TEXT, False),
    ),
)
ENCODER = TableEncoder("shop", "db", TABLE, 1)
ORIGIN = Origin(100, 7, 0)
HOSTILE = ['},"after":', '"},"after":{"', ',"source":{', '","source":{"version":"', "null", "", "\\", '\\"', None]


def image(record: Record) -> object:
    return image_of(record.key, record.value)


def update(old: tuple, new: tuple) -> Record:
    return ENCODER.change_records(Change(Op.UPDATE, TABLE, old, new), ORIGIN, 1, 0)[-1]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_row_has_one_image_however_it_came_into_the_topic(text):
    row = ("1", text, text)
    read = image(ENCODER.read_record(row, ORIGIN, 5))
    [created] = ENCODER.change_records(Change(Op.CREATE, TABLE, None, row), Origin(900, 8, 3), 5, 77)

    assert image(created) == read
    for before in HOSTILE:
        assert image(update(("1", before, before), row)) == read


def test_different_rows_have_different_images():
    rows = [("1", one, two) for one in HOSTILE for two in HOSTILE]

    assert len({image(ENCODER.read_record(row, ORIGIN, 0)) for row in rows}) == len(rows)


def test_deletes_tombstones_and_truncates_leave_nothing():
    deleted = ENCODER.change_records(Change(Op.DELETE, TABLE, ("1", "a", "b"), None), ORIGIN, 1, 0)
    vanished = ENCODER.vanished_records(b'{"id":1}', ORIGIN, 0)
    [truncated] = ENCODER.change_records(Change(Op.TRUNCATE, TABLE, None, None), ORIGIN, 1, 0)

    assert [image(record) for record in deleted + vanished] == [Absence.GONE] * 4
    assert [record.key for record in vanished] == [record.key for record in deleted]
    assert image(truncated) is Absence.EMPTIED


@pytest.mark.parametrize("value", [b"", b"{}", b'{"before":null,"after":{}', b'{"before":7,"after":{},"source":{'])
def test_what_capture_does_not_write_is_refused(value):
    with pytest.raises(OperatorError) as caught:
        image_of(b"k", value)

    assert caught.value.code == "RECORD_MALFORMED"


def test_held_keys_are_folded_in_order_and_taken_once(tmp_path):
    held = HeldKeys(tmp_path)
    held.fold(("t", 0), [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"c", Absence.GONE)])
    held.fold(("t", 1), [(b"x", b"1"), (b"{}", Absence.EMPTIED), (b"y", b"2")])
    held.fold(("t", 1), [(b"z", b"3"), (b"y", Absence.GONE), (b"y", b"5")])
    held.fold(("u", 0), [(b"a", b"9")])

    assert held.take(("t", 0), [b"a", b"nothing"]) == {b"a": b"3"}
    assert held.take(("t", 0), [b"a"]) == {}
    assert [key for keys in held.left("t", 1) for key in keys] == [b"b", b"y", b"z"]
    assert held.take(("v", 0), [b"a"]) == {}
    assert list(tmp_path.iterdir()) == []
    held.close()


def test_a_truncate_empties_what_earlier_batches_brought(tmp_path):
    held = HeldKeys(tmp_path)
    held.fold(("t", 0), [(b"%d" % number, b"1") for number in range(2000)])
    held.fold(("t", 0), [(b"{}", Absence.EMPTIED), (b"1", b"2")])

    assert held.take(("t", 0), [b"%d" % number for number in range(2000)]) == {b"1": b"2"}
    held.close()
