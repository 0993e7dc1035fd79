"""Which server may go on with a pipeline's topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.errors import OperatorError, ProtocolError
from cdc.lineage import Lineage, parse_history, require_same_database, require_same_history
from cdc.progress import Kind, Progress

STREAMED = Progress(7, Kind.STREAM, 50, 100, 0, 1, 0, {}, "7000", timeline=2, database_oid=5)
SERVER = Lineage("7000", 2, 5, {1: 40})


def code_of(check, progress, lineage):
    try:
        check(progress, lineage)
    except OperatorError as error:
        return error.code
    return None


def test_a_history_file():
    text = "1\t0/5000148\tno recovery target specified\n\n# comment\n 2\t1/A\tbefore 2026\n"

    assert parse_history(text) == {1: 0x5000148, 2: 0x1_0000_000A}
    assert parse_history("") == {}
    with pytest.raises(ProtocolError):
        parse_history("one\t0/1")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"database_oid": 6}, "SOURCE_CHANGED"),
        ({"timeline": 9}, None),
    ],
)
def test_the_same_source(change, code):
    assert code_of(require_same_database, STREAMED, replace(SERVER, **change)) == code


@pytest.mark.parametrize(
    ("lineage", "code"),
    [
        (SERVER, None),
        (replace(SERVER, timeline=3, switches={1: 40, 2: 100}), None),
        (replace(SERVER, timeline=3, switches={1: 40, 2: 101}), None),
        (replace(SERVER, timeline=3, switches={1: 40, 2: 99}), "DIVERGED"),
        (replace(SERVER, timeline=3, switches={1: 90}), "DIVERGED"),
        (replace(SERVER, timeline=1, switches={}), "DIVERGED"),
        (replace(SERVER, timeline=5, switches={1: 40, 2: 120, 4: 130}), None),
    ],
)
def test_a_lost_tail_is_seen(lineage, code):
    assert code_of(require_same_history, STREAMED, lineage) == code


def test_records_that_do_not_say_are_trusted_and_marked_from_then_on():
    older = replace(STREAMED, timeline=0, database_oid=0)

    assert code_of(require_same_database, older, SERVER) is None
    assert code_of(require_same_history, older, replace(SERVER, timeline=3, switches={})) is None
    assert code_of(require_same_history, None, SERVER) is None
    assert code_of(require_same_database, None, SERVER) is None
    assert SERVER.marked(older) == STREAMED
