"""Apply's batches as planned: ranges, modes and positions, and what a person has to decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.errors import OperatorError
from cdc.progress import Kind, Part, Progress, Stop
from jobs.batch import PART_STALE_US, STALE_US, Mode, Target, Task, held_back, hides_rows, plan, stages
from sinks.protocol import Position

TOPIC = "shop.public.orders"
ORDERS = Target("orders", "delta", TOPIC)
FOUND = Target("found", "search", TOPIC)
NOW_US = 10 * STALE_US
BOUNDARY = Progress(9, Kind.STREAM, 80, 100, NOW_US, 3, 0, {TOPIC: (10, 20)}, "7000")


def at(lsn: int, *offsets: int, ts_us: int = NOW_US - 1000) -> Position:
    return Position(lsn, ts_us, {TOPIC: offsets})


def test_a_sink_goes_on_from_its_own_offsets():
    positions = {ORDERS: at(50, 4, 20), FOUND: at(80, 10, 18)}

    assert plan(positions, BOUNDARY, 100) == [
        Task(ORDERS, Mode.WRITE, (4, 20), (10, 20), 50, Position(100, NOW_US, {TOPIC: (10, 20)})),
        Task(FOUND, Mode.WRITE, (10, 18), (10, 20), 80, Position(100, NOW_US, {TOPIC: (10, 20)})),
    ]


def test_a_sink_without_anything_to_read_only_advances():
    [task] = plan({ORDERS: at(50, 10, 20)}, BOUNDARY, 100)

    assert (task.mode, task.position) == (Mode.ADVANCE, Position(100, NOW_US, {TOPIC: (10, 20)}))


def test_a_sink_at_the_boundary_has_no_task():
    assert plan({ORDERS: at(100, 10, 20)}, BOUNDARY, 100) == []


@pytest.mark.parametrize("position", [None, at(100, 10, 20), at(50, 4, 20), at(900, 10, 20)])
def test_what_is_wanted_anew_is_replaced_from_offset_zero(position: Position | None):
    [task] = plan({ORDERS: position}, BOUNDARY, 100, anew=[ORDERS])

    assert task == Task(ORDERS, Mode.REPLACE, (0, 0), (10, 20), 0, Position(100, NOW_US, {TOPIC: (10, 20)}))


def test_an_empty_sink_is_loaded_from_offset_zero():
    [task] = plan({FOUND: None}, BOUNDARY, 100)

    assert (task.mode, task.start, task.end, task.floor_lsn) == (Mode.REPLACE, (0, 0), (10, 20), 0)


def test_other_targets_are_left_alone():
    tasks = plan({ORDERS: at(100, 10, 20), FOUND: at(100, 10, 20)}, BOUNDARY, 100, anew=[FOUND])

    assert [(task.target, task.mode) for task in tasks] == [(FOUND, Mode.REPLACE)]


@pytest.mark.parametrize(("position", "start"), [(at(50, 4, 20), (4, 20)), (None, (0, 0))])
def test_short_of_the_boundary_the_offsets_stay(position: Position | None, start: tuple[int, ...]):
    [task] = plan({ORDERS: position}, BOUNDARY, 90)

    assert (task.start, task.end) == (start, (10, 20))
    assert task.position == Position(90, NOW_US, {TOPIC: start})


def test_a_sink_that_never_read_the_topic_reads_it_from_the_start():
    [task] = plan({ORDERS: Position(50, NOW_US, {})}, BOUNDARY, 100)

    assert (task.mode, task.start) == (Mode.WRITE, (0, 0))


class TestStale:
    """Deletes that lay unread for too long may have been compacted away."""

    def test_what_lay_unread_is_replaced(self):
        [task] = plan({ORDERS: at(50, 4, 20, ts_us=NOW_US - STALE_US - 1)}, BOUNDARY, 100)

        assert task.mode is Mode.REPLACE

    def test_the_clock_counts_when_capture_rests(self):
        positions = {ORDERS: at(50, 4, 20)}

        [task] = plan(positions, BOUNDARY, 100, now_us=NOW_US + STALE_US)

        assert task.mode is Mode.REPLACE

    def test_what_is_read_to_the_end_lacks_nothing(self):
        positions = {ORDERS: at(50, 10, 20, ts_us=0), FOUND: at(100, 10, 20, ts_us=0)}

        assert [task.mode for task in plan(positions, BOUNDARY, 100, now_us=2 * NOW_US)] == [Mode.ADVANCE]

    def test_a_slow_clock_is_no_excuse(self):
        [task] = plan({ORDERS: at(50, 4, 20, ts_us=NOW_US - STALE_US - 1)}, BOUNDARY, 100, now_us=5)

        assert task.mode is Mode.REPLACE


@pytest.mark.parametrize(("late_us", "hidden"), [(0, False), (PART_STALE_US, False), (PART_STALE_US + 1, True)])
def test_an_old_part_of_a_transaction_may_hide_what_it_is_about_to_replace(late_us: int, hidden: bool):
    part = replace(BOUNDARY, kind=Kind.PART, part=Part(120, 1000))

    assert hides_rows(part, part.source_ts_us + late_us) is hidden
    assert not hides_rows(BOUNDARY, BOUNDARY.source_ts_us + late_us)


@pytest.mark.parametrize(
    ("target", "position", "code"),
    [
        (ORDERS, at(101, 10, 20), "VIEW_AHEAD"),
        (ORDERS, at(50, 11, 20), "TOPIC_CHANGED"),
        (ORDERS, at(50, 4), "TOPIC_CHANGED"),
        (Target("gone", "delta", "shop.public.gone"), None, "TABLE_NOT_CAPTURED"),
        (Target("gone", "delta", "shop.public.gone"), at(50, 4, 4), "TABLE_NOT_CAPTURED"),
    ],
)
def test_what_does_not_fit_the_topics_stops(target: Target, position: Position | None, code: str):
    with pytest.raises(OperatorError) as raised:
        plan({target: position}, BOUNDARY, 100)

    assert raised.value.code == code
    assert target.view in str(raised.value)


class TestStopped:
    """A table that stopped alone holds its own views where it stopped, until it was read again."""

    def plan(self, position: Position | None, stop: Stop, ceiling_lsn: int = 100, anew: tuple[Target, ...] = ()):
        boundary = replace(BOUNDARY, stopped={TOPIC: stop})
        return plan({ORDERS: position}, boundary, ceiling_lsn, anew)

    def test_its_views_end_where_it_stopped(self):
        [task] = self.plan(at(50, 4, 20), Stop(70))

        assert (task.mode, task.floor_lsn) == (Mode.WRITE, 50)
        assert task.position == Position(70, NOW_US, {TOPIC: (4, 20)})

    @pytest.mark.parametrize("position", [None, at(70, 4, 20), at(60, 4, 20, ts_us=0)])
    def test_there_they_stay(self, position: Position | None):
        assert self.plan(position, Stop(60), anew=(ORDERS,)) == []

    def test_a_stop_that_is_still_ahead_changes_nothing(self):
        assert self.plan(at(50, 4, 20), Stop(101)) == plan({ORDERS: at(50, 4, 20)}, BOUNDARY, 100)

    def test_read_again_but_not_reached_yet(self):
        assert self.plan(at(60, 4, 20), Stop(60, 90, 101)) == []

    @pytest.mark.parametrize("position", [None, at(60, 4, 20), at(89, 4, 20)])
    def test_read_again_its_views_are_replaced_by_what_was_read(self, position: Position | None):
        [task] = self.plan(position, Stop(60, 80, 90))

        assert task == Task(ORDERS, Mode.REPLACE, (0, 0), (10, 20), 79, Position(100, NOW_US, {TOPIC: (10, 20)}))

    def test_a_view_from_before_it_was_whole_once_waits_until_it_is_again(self):
        assert self.plan(at(50, 4, 20), Stop(95, whole=80)) == []
        assert self.plan(at(50, 4, 20), Stop(95, whole=80), ceiling_lsn=70) == []
        [task] = self.plan(at(50, 4, 20), Stop(95, whole=80), ceiling_lsn=90)
        assert task.mode is Mode.REPLACE

    def test_a_view_from_after_that_goes_on(self):
        [task] = self.plan(at(85, 4, 20), Stop(95, whole=80))

        assert (task.mode, task.floor_lsn, task.position.lsn) == (Mode.WRITE, 85, 95)

    def test_from_then_on_they_flow(self):
        [task] = self.plan(at(90, 4, 20), Stop(60, 80, 90))

        assert (task.mode, task.start, task.floor_lsn) == (Mode.WRITE, (4, 20), 90)

    def test_what_is_replaced_leaves_out_what_is_void(self):
        [task] = self.plan(at(100, 10, 20), Stop(60, 80, 90), anew=(ORDERS,))

        assert (task.mode, task.floor_lsn) == (Mode.REPLACE, 79)


LINES = Target("lines", "delta", "", 1, (TOPIC,), ("orders",))
CACHED = Target("lines", "cache", "", 2, (TOPIC,), ("lines",))
ABOVE = Target("sums", "delta", "", 3, (TOPIC,), ("lines",))


class TestQueries:
    """What is computed from Delta tables: stage by stage, and never over a table that has stopped."""

    def plan(self, positions: dict[Target, Position | None], stop: Stop | None = None, **more: Any) -> list[Task]:
        boundary = replace(BOUNDARY, stopped={TOPIC: stop} if stop else {}, origin_lsn=more.pop("origin", 0))
        return plan(positions, boundary, more.pop("ceiling", 100), **more)

    def test_they_are_refreshed_after_what_they_read(self):
        tasks = self.plan({ABOVE: at(50), CACHED: at(50), LINES: at(50), ORDERS: at(50, 4, 20)})

        order = [[task.target for task in stage] for stage in stages(tasks)]
        assert order == [[ORDERS], [LINES], [CACHED], [ABOVE]]
        assert all(task.position == Position(100, NOW_US, {}) for task in tasks if task.target.is_derived)

    @pytest.mark.parametrize(("position", "mode"), [(None, Mode.REPLACE), (at(50), Mode.WRITE), (at(100), None)])
    def test_by_where_they_stand(self, position: Position | None, mode: Mode | None):
        assert [task.mode for task in self.plan({LINES: position})] == ([mode] if mode else [])

    def test_what_is_asked_for_or_of_another_chain_is_loaded_anew(self):
        assert [task.mode for task in self.plan({LINES: at(100)}, anew=[LINES])] == [Mode.REPLACE]
        assert [task.mode for task in self.plan({LINES: at(50)}, origin=60)] == [Mode.REPLACE]

    def test_what_was_killed_behind_its_table_comes_there_before_the_table_moves_on(self):
        table = Position(70, NOW_US, {"orders": (3, 1, 3)})

        tasks = self.plan({LINES: table, CACHED: at(50)})

        assert [(task.target, task.mode, task.position.lsn) for stage in stages(tasks) for task in stage] == [
            (CACHED, Mode.WRITE, 70),
            (LINES, Mode.WRITE, 100),
            (CACHED, Mode.WRITE, 100),
        ]

    def test_over_a_table_that_stopped_they_stay_but_followers_come_to_their_table(self):
        assert self.plan({LINES: at(50), ABOVE: None}, Stop(70)) == []
        assert self.plan({LINES: None, CACHED: None}, Stop(70)) == []
        behind = self.plan({LINES: at(60), CACHED: at(50)}, Stop(70))
        empty = self.plan({LINES: at(60), CACHED: None}, Stop(70))
        assert [(task.target, task.mode, task.position.lsn) for task in behind] == [(CACHED, Mode.WRITE, 60)]
        assert [(task.target, task.mode, task.position.lsn) for task in empty] == [(CACHED, Mode.REPLACE, 60)]

    def test_an_empty_follower_of_what_failed_before_is_loaded_where_its_table_stands(self):
        first = stages(self.plan({LINES: at(60), CACHED: None}, stayed={"lines"}))[0]

        assert [(task.target, task.mode, task.position.lsn) for task in first] == [(CACHED, Mode.REPLACE, 60)]

    def test_when_the_table_is_whole_again_they_go_on(self):
        assert [task.mode for task in self.plan({LINES: at(50)}, Stop(60, 80, 90))] == [Mode.WRITE]

    def test_past_the_topics_they_stop_everything(self):
        with pytest.raises(OperatorError, match="past the topics"):
            self.plan({LINES: at(900)})

    def test_what_reads_a_table_that_failed_is_held_back_and_a_follower_that_only_catches_up_is_not(self):
        tasks = self.plan({LINES: at(70), CACHED: at(50), ABOVE: at(50)})

        held = [(task.target, task.stage) for task in tasks if held_back(task, {"lines"})]
        assert held == [(CACHED, 2), (ABOVE, 3)]
        assert not any(held_back(task, {"sums"}) for task in tasks)


def test_a_history_learns_that_a_recovery_left_out_single_changes():
    kept = Target("orders", "history", TOPIC)
    recovered = replace(BOUNDARY, recovered_lsn=70)
    tasks = plan({ORDERS: at(50, 4, 20), kept: at(50, 4, 20)}, recovered, 100)
    assert [(task.target, task.mode) for task in tasks] == [(ORDERS, Mode.WRITE), (kept, Mode.REPLACE)]
    assert [task.mode for task in plan({kept: at(70, 4, 20)}, recovered, 100)] == [Mode.WRITE]
