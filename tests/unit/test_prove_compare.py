"""What a comparison counts and names, and what a proof's outcome means."""

from __future__ import annotations

from collections import Counter

import pytest

from jobs.prove.compare import Digester, compare, named
from jobs.prove.naming import examples
from jobs.prove.result import EXAMPLES_MAX, Difference, Example, Mended, ViewProof, joined


def test_all_are_counted_and_a_few_of_each_kind_are_named() -> None:
    digester = Digester([0])
    source = [(str(n), "a") for n in range(3000)]
    sink = [(str(n), "a" if n % 2 else "b") for n in range(1000, 4000)]
    found = compare(digester.all(source), digester.all(sink))
    counts = {kind: found.count(kind) for kind in Difference}
    assert counts == {
        Difference.DUPLICATE: 0,
        Difference.DIFFERENT: 1000,
        Difference.MISSING: 1000,
        Difference.EXTRA: 1000,
    }
    wanted = found.sample()
    assert set(wanted.values()) == {Difference.DIFFERENT, Difference.MISSING, Difference.EXTRA}
    assert len(wanted) <= EXAMPLES_MAX
    keys = dict(named(digester, source + sink, wanted))
    for digest, (key, _) in keys.items():
        number = int(key or "")
        kind = Difference.MISSING if number < 1000 else Difference.EXTRA if number >= 3000 else Difference.DIFFERENT
        assert wanted[digest] is kind


def test_rare_differences_leave_their_share_to_others() -> None:
    digester = Digester([0])
    source = [(str(n), "a") for n in range(30)]
    sink = [(str(n), "b") for n in range(1, 31)]
    found = compare(digester.all(source), digester.all(sink))
    for keys_max, different in ((20, 18), (7, 5), (100, 29)):
        assert Counter(found.sample(keys_max).values()) == {
            Difference.DIFFERENT: different,
            Difference.MISSING: 1,
            Difference.EXTRA: 1,
        }


def test_two_proofs_do_not_share_a_salt() -> None:
    assert Digester([0]).key(("a",)) != Digester([0]).key(("a",))


@pytest.mark.parametrize(
    ("proof", "holds"),
    [
        (ViewProof("v", "delta", 1, 0.1, rows=5), True),
        (ViewProof("v", "delta", 1, 0.1, missing=1), False),
        (ViewProof("v", "cache", 1, 0.1, missing=1, may_expire=True), True),
        (ViewProof("v", "cache", 1, 0.1, missing=1, extra=1, may_expire=True), False),
        (ViewProof("v", "delta", 1, 0.1, different=1), False),
        (ViewProof("v", "delta", 1, 0.1, duplicate=1), False),
        (ViewProof("v", "delta", 1, 0.1, problem="away"), False),
    ],
)
def test_what_holds(proof: ViewProof, holds: bool) -> None:
    assert proof.holds is holds


def test_json() -> None:
    proof = ViewProof("v", "search", 0x100000002, 1.23456, 10, 1, examples=(Example(Difference.MISSING, {"id": None}),))
    assert proof.to_json() == {
        "view": "v",
        "sink": "search",
        "lsn": "1/2",
        "first_lsn": "1/2",
        "chunks": 1,
        "holds": False,
        "rows": 10,
        "missing": 1,
        "extra": 0,
        "different": 0,
        "duplicate": 0,
        "examples": [{"difference": "missing", "key": {"id": None}}],
        "seconds": 1.235,
        "problem": None,
        "dead_letters": [],
        "mended": None,
    }


def test_values_are_told_when_asked_for() -> None:
    digester = Digester([0])
    source = [("1", "a", "x"), ("2", "b", None)]
    sink = [("1", "a", "y"), ("3", "\0int\0007", "x")]
    wanted = {
        digester.key(("1",)): Difference.DIFFERENT,
        digester.key(("2",)): Difference.MISSING,
        digester.key(("3",)): Difference.EXTRA,
    }
    bare = examples(("id", "v", "w"), digester, wanted, (source, sink), with_values=False)
    assert [(each.difference.value, each.key["id"], each.source, each.sink) for each in bare] == [
        ("different", "1", None, None),
        ("extra", "3", None, None),
        ("missing", "2", None, None),
    ]
    told = examples(("id", "v", "w"), digester, wanted, (source, sink), with_values=True)
    assert [each.to_json(with_values=True) for each in told] == [
        {"difference": "different", "key": {"id": "1"}, "source": {"w": "x"}, "sink": {"w": "y"}},
        {"difference": "extra", "key": {"id": "3"}, "source": None, "sink": {"id": "3", "v": "7 (int)", "w": "x"}},
        {"difference": "missing", "key": {"id": "2"}, "source": {"id": "2", "v": "b", "w": None}, "sink": None},
    ]


def test_chunks_are_told_as_one_proof() -> None:
    example = Example(Difference.MISSING, {"id": "1"})
    first = ViewProof("v", "delta", 7, 1.0, 10, 1, examples=(example,), mended=Mended(1, 0, 0))
    second = ViewProof("v", "delta", 9, 0.5, 5, 0, 2, mended=Mended(0, 1, 1))
    whole = joined([first, second, ViewProof("v", "delta", 11, 0.5, 5)])
    assert (whole.first_lsn, whole.lsn, whole.chunks, whole.rows, whole.seconds) == (7, 11, 3, 20, 2.0)
    assert (whole.missing, whole.extra, whole.examples, whole.mended) == (1, 2, (example,), Mended(1, 1, 1))
    assert joined([first, ViewProof("v", "delta", 9, 0.0, problem="gone")]).problem == "gone"
