"""Digests say what a comparison of the rows themselves says."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.prove import compare as compare_module
from jobs.prove.compare import Digester, TextRow, compare, named
from jobs.prove.result import Difference

VALUES = st.sampled_from([None, "", "n", "v", "vn", "n\0v", "1"])
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=12)


def slowly(source: list[TextRow], sink: list[TextRow]) -> dict[Difference, set[TextRow]]:
    repeated = {key for rows in (source, sink) for key, n in Counter(row[:2] for row in rows).items() if n > 1}
    theirs, ours = ({row[:2]: row for row in rows if row[:2] not in repeated} for rows in (source, sink))
    return {
        Difference.DUPLICATE: repeated,
        Difference.DIFFERENT: {key for key in theirs.keys() & ours.keys() if theirs[key] != ours[key]},
        Difference.MISSING: theirs.keys() - ours.keys(),
        Difference.EXTRA: ours.keys() - theirs.keys(),
    }


@given(source=ROWS, sink=ROWS)
def test_digests_find_what_the_rows_show(source: list[TextRow], sink: list[TextRow]) -> None:
    digester = Digester([0, 1])
    found = compare(digester.all(source), digester.all(sink))
    expected = slowly(source, sink)
    assert {kind: found.count(kind) for kind in Difference} == {kind: len(keys) for kind, keys in expected.items()}
    assert found.equal == (not any(expected.values()))
    wanted = found.sample()
    keys = dict(named(digester, source + sink, wanted))
    assert keys.keys() == wanted.keys()
    assert all(keys[digest][:2] in expected[kind] for digest, kind in wanted.items())


@given(rows=st.lists(st.tuples(st.text(), VALUES), unique_by=lambda row: row[0]), data=st.data())
def test_the_order_of_rows_does_not_matter(rows: list[TextRow], data: st.DataObject) -> None:
    digester = Digester([0])
    assert compare(digester.all(rows), digester.all(data.draw(st.permutations(rows)))).equal


@given(left=st.tuples(VALUES, VALUES), right=st.tuples(VALUES, VALUES))
def test_no_two_rows_are_encoded_alike_unless_a_sink_holds_nul(left: TextRow, right: TextRow) -> None:
    digester = Digester([0, 1], b"salt")
    nul_free = not any("\0" in (value or "") for value in left)
    if nul_free and left != right:
        assert digester.key(left) != digester.key(right)


@given(source=ROWS, sink=ROWS)
def test_comparing_by_parts_changes_nothing(source: list[TextRow], sink: list[TextRow]) -> None:
    digester = Digester([0, 1])
    whole = compare(digester.all(source), digester.all(sink))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare_module, "_PART_ROWS", 2)
        parted = compare(digester.all(source), digester.all(sink))
    assert {kind: set(parted.keys[kind]) for kind in Difference} == {kind: set(whole.keys[kind]) for kind in Difference}
