"""Apply's machine by hand: what it yields to which answers."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc.progress import Kind, Progress, Stop
from jobs.batch import Mode, Target
from jobs.control.halt import Run as Running
from jobs.control.halt import RunTo, Stand, Step
from jobs.machine import Ask, Asked, Effect, Load, Locate, Rebuild, Record, Run, Swap, apply_machine, common_lsn
from jobs.twins import twins_of
from sinks.protocol import Position

TOPIC = "shop.public.orders"
MIRROR = Target("orders", "delta", TOPIC)
INDEX = Target("orders", "search", TOPIC)

Machine = Generator[Effect, Any, Any]


def boundary(lsn: int) -> Progress:
    return Progress(1, Kind.STREAM, 0, lsn, lsn, 0, 0, {TOPIC: (lsn, 0)}, "7000")


def at(lsn: int) -> Position:
    return Position(lsn, lsn, {TOPIC: (lsn, 0)})


def asked(lsn: int | None, step: Step | None = None, **rebuild: Rebuild) -> Asked:
    return Asked(boundary(lsn) if lsn is not None else None, step or Running(), rebuild)


def loaded(view: str, lsn: int, *targets: Target, **more: Any) -> Rebuild:
    """A rebuild whose twins stand there."""
    return Rebuild(view, {twin: at(lsn) for twin in twins_of(targets, view).values()}, **more)


def located(positions: Mapping[Target, Position | None], *, settled: bool = False) -> tuple[Machine, Effect]:
    machine = apply_machine(settled=settled)
    assert next(machine) == Locate()
    return machine, machine.send(positions)


def test_a_batch_is_run_and_then_recorded():
    machine, ask = located({MIRROR: at(10), INDEX: at(5)})

    run = machine.send(asked(20))
    record = machine.send(frozenset())

    assert ask == Ask(None)
    assert isinstance(run, Run)
    assert [(task.target, task.mode, task.floor_lsn) for task in run.tasks] == [
        (MIRROR, Mode.WRITE, 10),
        (INDEX, Mode.WRITE, 5),
    ]
    assert record == Record({MIRROR: at(20), INDEX: at(20)}, {})
    assert machine.send(frozenset()) == Ask(20)


def test_where_nothing_is_to_do_the_first_batch_is_recorded_once():
    machine, _ = located({MIRROR: at(10)})

    assert machine.send(asked(10)) == Record({MIRROR: at(10)}, {})
    assert machine.send(frozenset()) == Ask(10)
    assert machine.send(asked(10)) == Ask(10)


def test_without_a_boundary_nothing_begins():
    machine, ask = located({MIRROR: None})

    assert ask == Ask(None)
    assert machine.send(asked(None)) == Ask(None)


def test_standing_still_begins_no_batch():
    machine, _ = located({MIRROR: at(10)})

    assert machine.send(asked(20, Stand())) == Ask(10)


@pytest.mark.parametrize("hold", [12, 20])
def test_a_held_batch_ends_exactly_there(hold: int):
    machine, _ = located({MIRROR: at(10)}, settled=True)

    run = machine.send(asked(20, RunTo(hold)))

    assert isinstance(run, Run)
    assert [task.position.lsn for task in run.tasks] == [hold]


def test_a_hold_that_capture_has_not_reached_is_waited_for():
    machine, _ = located({MIRROR: at(10)}, settled=True)

    assert machine.send(asked(20, RunTo(25))) == Ask(10)


def test_the_first_batch_goes_to_the_boundary_whatever_is_held():
    """A run that was killed may have written rows up to the newest boundary, without a position that says so."""
    machine, _ = located({MIRROR: at(10)})

    run = machine.send(asked(20, RunTo(12)))
    machine.send(frozenset())
    machine.send(frozenset())
    held = machine.send(asked(30, RunTo(25)))

    assert isinstance(run, Run)
    assert isinstance(held, Run)
    assert [task.position.lsn for task in (*run.tasks, *held.tasks)] == [20, 25]


def test_a_hold_behind_the_furthest_sink_is_passed():
    machine, _ = located({MIRROR: at(10), INDEX: at(18)}, settled=True)

    run = machine.send(asked(20, RunTo(15)))

    assert isinstance(run, Run)
    assert {task.position.lsn for task in run.tasks} == {20}


class TestRebuilds:
    """Loaded beside, brought along, shown at one LSN."""

    LOG = Target("orders", "history", TOPIC)
    TWINS = twins_of([MIRROR, INDEX], "orders")

    def machine(self, *more: Target) -> Machine:
        machine, _ = located(dict.fromkeys((MIRROR, INDEX, *more), at(20)), settled=True)
        return machine

    def test_it_is_loaded_as_of_the_boundary_at_which_all_stand_and_once(self):
        machine = self.machine()

        run = machine.send(asked(30, r1=Rebuild("orders")))
        load = machine.send(frozenset())
        record = machine.send(None)

        assert isinstance(run, Run)
        assert load == Load("r1", "orders", boundary(30))
        assert record == Record({MIRROR: at(30), INDEX: at(30)}, {})
        assert machine.send(None) == Ask(30)
        assert machine.send(asked(30, r1=Rebuild("orders", is_loading=True))) == Ask(30)

    def test_what_has_failed_is_loaded_again_once_it_is_wanted_again(self):
        machine = self.machine()
        load = machine.send(asked(20, r1=Rebuild("orders")))
        machine.send(None)
        machine.send(None)

        assert machine.send(asked(20, r1=Rebuild("orders", is_loading=True))) == Ask(20)
        assert machine.send(asked(20, r1=Rebuild("orders"))) == load

    def test_it_is_not_loaded_short_of_the_boundary(self):
        machine = self.machine()
        machine.send(asked(30, RunTo(25), r1=Rebuild("orders")))

        assert isinstance(machine.send(frozenset()), Record)

    def test_what_was_loaded_goes_along_and_is_swapped_where_all_stand(self):
        machine = self.machine()

        run = machine.send(asked(40, r1=loaded("orders", 20, MIRROR, INDEX)))
        swap = machine.send(frozenset())
        record = machine.send(None)

        assert isinstance(run, Run)
        assert {task.target for task in run.tasks} == {*self.TWINS, *self.TWINS.values()}
        assert swap == Swap(self.TWINS, {MIRROR: at(40), INDEX: at(40)})
        assert record == Record({MIRROR: at(40), INDEX: at(40)}, {"r1": "orders"})

    def test_it_is_shown_when_it_may_and_goes_along_until_then(self):
        machine = self.machine()
        kept = loaded("orders", 20, MIRROR, INDEX, may_swap=False)

        machine.send(asked(40, r1=kept))
        record = machine.send(frozenset())
        machine.send(None)
        run = machine.send(asked(50, r1=kept))
        machine.send(frozenset())
        machine.send(None)
        swap = machine.send(asked(50, r1=replace(kept, may_swap=True)))

        assert isinstance(record, Record)
        assert not any(target in self.TWINS.values() for target in record.positions)
        assert isinstance(run, Run)
        assert {task.floor_lsn for task in run.tasks} == {40}
        assert swap == Swap(self.TWINS, {MIRROR: at(50), INDEX: at(50)})

    def test_nobody_brings_along_what_nobody_waits_for(self):
        machine = self.machine()
        machine.send(asked(40, r1=loaded("orders", 20, MIRROR, INDEX, may_swap=False)))
        machine.send(frozenset())
        machine.send(None)

        run = machine.send(asked(50))

        assert isinstance(run, Run)
        assert {task.target for task in run.tasks} == {MIRROR, INDEX}

    def test_what_has_no_twin_is_replaced_after_the_swap(self):
        machine = self.machine(self.LOG)

        machine.send(asked(20, r1=loaded("orders", 20, MIRROR, INDEX)))
        run = machine.send(None)
        record = machine.send(frozenset())

        assert isinstance(run, Run)
        assert [(task.target, task.mode) for task in run.tasks] == [(self.LOG, Mode.REPLACE)]
        assert isinstance(record, Record)
        assert record.rebuilt == {"r1": "orders"}

    def test_one_after_the_other(self):
        machine = self.machine()

        load = machine.send(asked(20, r1=Rebuild("orders"), r2=Rebuild("orders")))
        machine.send(None)
        machine.send(None)
        machine.send(asked(20, r1=loaded("orders", 20, MIRROR, INDEX), r2=Rebuild("orders")))
        machine.send(None)
        machine.send(None)

        assert load == Load("r1", "orders", boundary(20))
        assert machine.send(asked(20, r2=Rebuild("orders"))) == Load("r2", "orders", boundary(20))

    def test_another_declaration_has_other_targets_and_what_has_no_twin_waits_for_the_next_session(self):
        machine = self.machine(self.LOG)
        becomes = (MIRROR, Target("orders", "cache", TOPIC), Target("orders", "kafka", TOPIC))
        twins = twins_of(becomes, "orders")
        wanted = Rebuild("orders", {twin: at(20) for twin in twins.values()}, becomes=becomes)

        run = machine.send(asked(40, r1=wanted))
        swap = machine.send(frozenset())
        record = machine.send(None)

        assert isinstance(run, Run)
        assert {task.target for task in run.tasks} == {MIRROR, INDEX, self.LOG, *twins.values()}
        assert swap == Swap(twins, dict.fromkeys(twins, at(40)))
        assert record == Record(dict.fromkeys(twins, at(40)), {"r1": "orders"})

    def test_where_only_a_sink_is_coming_the_others_stay_as_they_are(self):
        machine = self.machine(self.LOG)
        cache = Target("orders", "cache", TOPIC)
        twins = twins_of([cache], "orders")
        wanted = Rebuild(
            "orders", {twin: at(20) for twin in twins.values()}, becomes=(MIRROR, cache), stays=frozenset({MIRROR})
        )

        machine.send(asked(40, r1=wanted))
        swap = machine.send(frozenset())
        record = machine.send(None)

        assert swap == Swap(twins, {cache: at(40)})
        assert record == Record({MIRROR: at(40), cache: at(40)}, {"r1": "orders"})

    def test_a_sink_of_a_query_that_fails_is_not_loaded(self):
        query = Target("lines", "delta", "", 1, (TOPIC,), ("orders",))
        cache = Target("lines", "cache", "", 2, (TOPIC,), ("lines",))
        machine, _ = located({MIRROR: at(10), query: at(10)})

        machine.send(asked(20, r1=Rebuild("lines", becomes=(query, cache), stays=frozenset({query}))))

        assert isinstance(machine.send(frozenset({query})), Record)

    @pytest.mark.parametrize("failing", ["live", "twin"])
    def test_another_declaration_is_shown_though_the_former_one_fails(self, failing: str):
        machine = self.machine()
        wanted = loaded("orders", 20, MIRROR, INDEX)
        machine.send(asked(40, r1=replace(wanted, becomes=(MIRROR, INDEX))))
        swap = machine.send(frozenset({INDEX if failing == "live" else self.TWINS[INDEX]}))

        assert isinstance(swap, Swap) == (failing == "live")

    def test_where_the_live_rows_are_damaged_they_are_replaced_in_place(self):
        machine = self.machine()

        run = machine.send(asked(20, r1=Rebuild("orders", in_place=True)))
        record = machine.send(frozenset())

        assert isinstance(run, Run)
        assert {task.mode for task in run.tasks} == {Mode.REPLACE}
        assert record == Record({MIRROR: at(20), INDEX: at(20)}, {"r1": "orders"})


def test_sinks_have_an_lsn_in_common_or_none():
    assert common_lsn({MIRROR: at(5), INDEX: at(5)}) == 5
    assert common_lsn({MIRROR: at(5), INDEX: at(6)}) is None
    assert common_lsn({MIRROR: at(5), INDEX: None}) is None
    assert common_lsn({MIRROR: None}) is None


def test_no_batch_ends_between_a_recovery_and_what_was_lost_before_it():
    recovered = replace(boundary(50), recovered_lsn=50)
    for wanted, ends in ((30, 50), (50, 50)):
        machine, _ = located({MIRROR: at(10)}, settled=True)
        run = machine.send(Asked(recovered, RunTo(wanted)))
        assert isinstance(run, Run)
        assert [task.position.lsn for task in run.tasks] == [ends]


def test_a_stopped_table_stays_behind_while_the_others_flow():
    other = Target("items", "delta", "shop.public.items")
    ends = {TOPIC: (15, 0), other.topic: (9, 0)}
    stopped = replace(boundary(20), ends=ends, stopped={TOPIC: Stop(15)})
    machine, _ = located({MIRROR: at(10), other: Position(10, 10, {other.topic: (5, 0)})})

    run = machine.send(Asked(stopped, Running()))
    record = machine.send(frozenset())

    assert isinstance(run, Run)
    assert {task.target: task.position.lsn for task in run.tasks} == {MIRROR: 15, other: 20}
    assert isinstance(record, Record)
    assert machine.send(frozenset()) == Ask(20)


def test_where_all_tables_have_stopped_it_waits():
    stopped = replace(boundary(20), stopped={TOPIC: Stop(10)})
    machine, _ = located({MIRROR: at(10)})

    assert machine.send(Asked(stopped, Running())) == Record({MIRROR: at(10)}, {})
    assert machine.send(frozenset()) == Ask(20)
    assert machine.send(Asked(replace(stopped, lsn=30), Running())) == Ask(30)


QUERY = Target("lines", "delta", "", 1, (TOPIC,), ("orders",))
FOLLOWER = Target("lines", "cache", "", 2, (TOPIC,), ("lines",))


class TestQueriesThatFail:
    """They stay behind alone."""

    def machine(self) -> Machine:
        machine, _ = located({MIRROR: at(10), QUERY: at(10), FOLLOWER: at(5)})
        return machine

    def test_they_stand_where_they_stood_and_what_follows_comes_to_its_table(self):
        machine = self.machine()
        machine.send(asked(20))

        record = machine.send(frozenset({QUERY, FOLLOWER}))

        assert isinstance(record, Record)
        assert {target: position.lsn for target, position in record.positions.items()} == {
            MIRROR: 20,
            QUERY: 10,
            FOLLOWER: 10,
        }
        assert machine.send(None) == Ask(20)

    def test_they_are_tried_again_with_the_next_boundary_and_not_before(self):
        machine = self.machine()
        machine.send(asked(20))
        machine.send(frozenset({QUERY, FOLLOWER}))
        machine.send(None)

        assert machine.send(asked(20)) == Ask(20)
        run = machine.send(asked(30))

        assert isinstance(run, Run)
        assert {task.target for task in run.tasks} == {MIRROR, QUERY, FOLLOWER}
        record = machine.send(frozenset())
        assert isinstance(record, Record)
        assert {position.lsn for position in record.positions.values()} == {30}

    def test_a_rebuild_tries_them_at_once_and_once(self):
        machine = self.machine()
        machine.send(asked(20))
        machine.send(frozenset({QUERY, FOLLOWER}))
        machine.send(None)

        run = machine.send(asked(20, r1=Rebuild("lines")))
        record = machine.send(frozenset({QUERY, FOLLOWER}))
        machine.send(None)

        assert isinstance(run, Run)
        assert {(task.target, task.mode) for task in run.tasks} == {(QUERY, Mode.WRITE), (FOLLOWER, Mode.WRITE)}
        assert isinstance(record, Record)
        assert record.rebuilt == {}
        assert machine.send(asked(20, r1=Rebuild("lines"))) == Ask(20)

    def test_one_that_was_never_loaded_has_no_position(self):
        machine, _ = located({MIRROR: at(10), QUERY: None})
        machine.send(asked(20))

        record = machine.send(frozenset({QUERY}))

        assert isinstance(record, Record)
        assert set(record.positions) == {MIRROR}
        assert machine.send(None) == Ask(20)
