"""Which requests hold apply, for how long, and what it may do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.control.halt import InForce, Run, RunTo, Stand, answers_due, next_step
from jobs.control.records import Answer, Kind, Request, State, Withdrawn


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def request(name: str, kind: Kind, lsn: int | None = None, *, sent_s: float = 1_000, ttl_s: float = 10) -> Request:
    return Request(name, kind, int(sent_s * 1000), ttl_s, "host:1", lsn)


def in_force() -> tuple[InForce, Clock]:
    clock = Clock()
    return InForce(clock, clock), clock


def test_nobody_asks() -> None:
    assert next_step([], 5) == Run()
    assert next_step([request("r", Kind.REBUILD)], 5) == Run()


def test_a_pause_stands_still_and_is_answered() -> None:
    asked = [request("p", Kind.PAUSE)]
    assert next_step(asked, 5) == Stand()
    assert list(answers_due(asked, 5)) == [("p", State.PAUSED)]


def test_a_hold_ahead_is_run_to_and_then_kept() -> None:
    asked = [request("h", Kind.HOLD, 9)]
    assert next_step(asked, 5) == RunTo(9)
    assert list(answers_due(asked, 5)) == []
    assert next_step(asked, 9) == Stand()
    assert list(answers_due(asked, 9)) == [("h", State.HOLDING)]


def test_a_hold_that_was_passed_is_refused_but_still_stands() -> None:
    # Its client takes a new snapshot; were apply to run on meanwhile, it could be passed for ever.
    asked = [request("h", Kind.HOLD, 4)]
    assert next_step(asked, 5) == Stand()
    assert list(answers_due(asked, 5)) == [("h", State.REFUSED)]


def test_two_holders_are_served_one_after_the_other() -> None:
    asked = [request("far", Kind.HOLD, 12), request("near", Kind.HOLD, 9), request("p", Kind.PAUSE)]
    assert next_step(asked, 5) == RunTo(9)
    assert next_step(asked, 9) == Stand()
    assert next_step([asked[0], asked[2]], 9) == RunTo(12)
    assert next_step([asked[2]], 12) == Stand()


def test_a_renewal_is_no_news_but_extends_and_a_change_is_news() -> None:
    requests, clock = in_force()
    assert requests.see(request("p", Kind.PAUSE), live=True) is not None
    clock.now_s += 8
    assert requests.see(request("p", Kind.PAUSE, sent_s=clock.now_s), live=True) is None
    clock.now_s += 8
    assert [kept.id for kept in requests.requests()] == ["p"]
    hold = request("p", Kind.HOLD, 9, sent_s=clock.now_s)
    assert requests.see(hold, live=True) == hold
    assert requests.requests() == (hold,)


def test_a_silent_client_holds_nothing_for_ever() -> None:
    requests, clock = in_force()
    requests.see(request("p", Kind.PAUSE), live=True)
    clock.now_s += 10
    assert requests.requests() == ()


def test_an_old_request_counts_from_when_it_was_sent() -> None:
    requests, clock = in_force()
    assert requests.see(request("stale", Kind.REBUILD, sent_s=985), live=False) is None
    assert requests.see(request("fresh", Kind.REBUILD, sent_s=995), live=False) is not None
    clock.now_s += 4.9
    assert [kept.id for kept in requests.requests()] == ["fresh"]
    clock.now_s += 0.2
    assert requests.requests() == ()


def test_a_live_request_need_not_share_our_clock() -> None:
    requests, _ = in_force()
    assert requests.see(request("behind", Kind.PAUSE, sent_s=0), live=True) is not None
    assert requests.see(request("ahead", Kind.PAUSE, sent_s=9_999), live=False) is not None
    assert len(requests.requests()) == 2


def test_releases_and_withdrawals_end_a_request() -> None:
    requests, _ = in_force()
    for name in ("a", "b"):
        requests.see(request(name, Kind.PAUSE), live=True)
    assert requests.see(request("a", Kind.RELEASE), live=True) is None
    requests.see(Withdrawn("b"), live=True)
    assert requests.requests() == ()


def test_a_finished_rebuild_is_not_begun_again() -> None:
    requests, _ = in_force()
    rebuild = request("r", Kind.REBUILD)
    requests.see(rebuild, live=False)
    requests.see(Answer("r", State.RUNNING, 0, progress=0.5), live=False)
    assert requests.requests() == (rebuild,)
    requests.see(Answer("r", State.DONE, 0), live=False)
    assert requests.see(rebuild, live=True) is None
    assert requests.requests() == ()
