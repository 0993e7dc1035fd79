"""How far a rebuild is: every phase by its own rate, the proof by the rows that it has read."""

from __future__ import annotations

from jobs.prove.result import Progress
from jobs.rebuild.course import Course, Doing, RowsRead


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def later(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_load_is_most_of_a_rebuild_and_half_of_one_that_is_proved():
    clock = Clock()
    course = Course(clock)
    clock.later(10)
    assert course.at(Doing.LOADING, 0.5, prove=False).share == 0.45
    assert course.at(Doing.LOADING, 1.0, prove=False).share == 0.9
    proved = Course(clock)
    clock.later(10)
    assert proved.at(Doing.LOADING, 1.0, prove=True).share == 0.5


def test_the_time_left_goes_by_the_rate_of_the_phase_that_it_is_in():
    clock = Clock()
    course = Course(clock)
    course.at(Doing.LOADING, 0.0, prove=True)
    clock.later(1000)
    loaded = course.at(Doing.LOADING, 1.0, prove=True)
    assert loaded.left_s == 1000
    assert course.at(Doing.PROVING, 0.0, prove=True).left_s is None
    left: list[tuple[float, float]] = []
    for share in (0.1, 0.2, 0.6, 1.0):
        clock.later(100 * (share - (0 if not left else left[-1][0])))
        at = course.at(Doing.PROVING, share, prove=True)
        assert at.left_s is not None
        left.append((share, at.left_s))
    seconds = [each for _, each in left]
    assert seconds == sorted(seconds, reverse=True), "it never grows while the rate is the same"
    assert seconds[0] < 120, "however slow the load was"


def test_what_nobody_can_measure_has_no_time_left_and_the_share_never_goes_back():
    clock = Clock()
    course = Course(clock)
    clock.later(5)
    assert course.at(Doing.LOADING, 0.9, prove=False).share == 0.81
    clock.later(5)
    caught = course.at(Doing.CATCHING_UP, None, prove=False)
    assert (caught.share, caught.left_s) == (0.9, None)
    clock.later(5)
    # Somebody wants it proved by now, and it is not shown yet.
    assert course.at(Doing.PROVING, 0.1, prove=True).share == 0.9


def read(rows: RowsRead, doing: str, sink: str | None, upto: int, total: int | None = None) -> None:
    for done in (1, upto):
        rows.take(Progress(doing, "v", sink, done, total))


def test_a_proof_is_as_far_as_rows_were_read_of_postgres_and_of_each_sink():
    rows = RowsRead({"v": 100}, {"v": 2})
    assert rows.share() == 0.0
    rows.take(Progress("taking a snapshot of the source"))
    read(rows, "reading Postgres", None, 100)
    assert round(rows.share(), 3) == 0.333
    read(rows, "reading delta", "delta", 50, 100)
    assert rows.share() == 0.5
    read(rows, "reading delta", "delta", 100, 100)
    read(rows, "reading cache", "cache", 100, 100)
    assert rows.share() == 1.0


def test_a_proof_in_chunks_reads_each_sink_twice():
    rows = RowsRead({"v": 100}, {"v": 1})
    for _ in range(10):
        read(rows, "reading Postgres", None, 10)
        read(rows, "reading delta", "delta", 10, 10)
    assert round(rows.share(), 3) == 0.667
    read(rows, "reading delta", "delta", 100, 100)
    assert rows.share() == 1.0


def test_more_rows_than_were_loaded_are_no_more_than_all():
    rows = RowsRead({"v": 10, "w": 0}, {"v": 1, "w": 1})
    read(rows, "reading Postgres", None, 500)
    assert rows.share() == 1.0
    assert RowsRead({}, {}).share() is None
