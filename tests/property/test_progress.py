"""Progress records: what was written is read back, garbage is refused, checksums know no order and chains no gap."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc.changes import Record
from cdc.errors import ProtocolError
from cdc.progress import Kind, Part, Progress, add_checksums, checksum

lsns = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**63 - 1)
texts = st.text(max_size=10)
ends = st.dictionaries(texts, st.lists(counts, max_size=4).map(tuple), max_size=4)
records = st.lists(
    st.builds(Record, texts, st.integers(0, 3), st.binary(max_size=20), st.none() | st.binary(max_size=20)), max_size=12
)
progresses = st.builds(
    Progress,
    seq=counts,
    kind=st.sampled_from(Kind),
    prev_lsn=lsns,
    lsn=lsns,
    source_ts_us=st.integers(-(2**62), 2**62),
    records=counts,
    checksum=lsns,
    ends=ends,
    system_id=texts,
    snapshot=st.none() | st.dictionaries(texts, counts, max_size=3),
    part=st.none() | st.builds(Part, lsns, counts, counts),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(progresses)
def test_what_was_written_is_read_back(progress: Progress):
    assert Progress.from_bytes(progress.to_bytes()) == progress


@given(st.binary(max_size=60))
def test_garbage_is_a_protocol_error(data: bytes):
    with pytest.raises(ProtocolError):
        Progress.from_bytes(data)


@given(progresses, st.data())
def test_a_record_with_a_wrong_field_is_a_record_or_a_protocol_error(progress: Progress, data: st.DataObject):
    body = json.loads(progress.to_bytes())
    field = data.draw(st.sampled_from(sorted(body)))
    body[field] = data.draw(json_values)

    with suppress(ProtocolError):
        assert isinstance(Progress.from_bytes(json.dumps(body).encode()), Progress)


@given(progresses, st.data())
def test_a_record_without_a_field_is_a_protocol_error(progress: Progress, data: st.DataObject):
    body = json.loads(replace(progress, part=None).to_bytes())
    del body[data.draw(st.sampled_from(sorted(body)))]

    with pytest.raises(ProtocolError):
        Progress.from_bytes(json.dumps(body).encode())


@given(progresses, st.integers(1, 400))
def test_a_record_cut_short_is_a_protocol_error(progress: Progress, cut: int):
    with pytest.raises(ProtocolError):
        Progress.from_bytes(progress.to_bytes()[:-cut])


@given(records, st.randoms(use_true_random=False))
def test_a_checksum_knows_no_order(some: list[Record], random):
    shuffled = list(some)
    random.shuffle(shuffled)

    assert checksum(shuffled) == checksum(some)


@given(records, records)
def test_checksums_add_up(left: list[Record], right: list[Record]):
    assert add_checksums(checksum(left), checksum(right)) == checksum(left + right)


@given(records.filter(bool), st.data())
def test_a_checksum_notices_a_lost_record(some: list[Record], data: st.DataObject):
    lost = data.draw(st.integers(0, len(some) - 1))
    assume(checksum([some[lost]]))

    assert checksum(some[:lost] + some[lost + 1 :]) != checksum(some)


@st.composite
def chained(draw: st.DrawFn) -> tuple[Progress, Progress]:
    """A record and its successor."""
    before = draw(progresses)
    grown = {topic: tuple(end + draw(st.integers(0, 9)) for end in of_topic) for topic, of_topic in before.ends.items()}
    lsn = draw(st.integers(before.lsn, 2**64 - 1))
    return before, replace(before, seq=before.seq + 1, prev_lsn=before.lsn, lsn=lsn, ends=grown)


@given(chained())
def test_a_successor_follows(pair: tuple[Progress, Progress]):
    before, after = pair

    assert after.follows(before)


@given(chained(), counts, lsns, texts)
def test_nothing_else_follows(pair: tuple[Progress, Progress], seq: int, prev_lsn: int, system_id: str):
    before, after = pair

    assert replace(after, seq=seq).follows(before) == (seq == before.seq + 1)
    assert replace(after, prev_lsn=prev_lsn).follows(before) == (prev_lsn == before.lsn)
    assert replace(after, system_id=system_id).follows(before) == (system_id == before.system_id)


@given(chained(), st.data())
def test_a_record_that_goes_back_does_not_follow(pair: tuple[Progress, Progress], data: st.DataObject):
    before, after = pair
    assume(before.lsn > 0)

    assert not replace(after, lsn=data.draw(st.integers(0, before.lsn - 1))).follows(before)


@given(chained(), st.data())
def test_ends_that_shrink_or_vanish_do_not_follow(pair: tuple[Progress, Progress], data: st.DataObject):
    before, after = pair
    assume(before.ends)
    topic = data.draw(st.sampled_from(sorted(before.ends)))
    without = {name: of_topic for name, of_topic in after.ends.items() if name != topic}

    assert not replace(after, ends=without).follows(before)
    assert not replace(after, ends={**after.ends, topic: (*after.ends[topic], 1)}).follows(before)
    if any(before.ends[topic]):
        shrunk = tuple(max(0, end - 1) for end in before.ends[topic])
        assert not replace(after, ends={**after.ends, topic: shrunk}).follows(before)
