"""Rebuilds from the command's side, and what a twin is called."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest
from structlog.testing import capture_logs

from cdc.cli import rebuilding
from cdc.errors import ConfigError, OperatorError, TransientError
from cdc.settings import Settings
from jobs.batch import Target
from jobs.control import Answer, ControlServer, Request, State
from jobs.control import Kind as ControlKind
from jobs.control.kept import Rebuilding
from jobs.declare import OnError
from jobs.declare.load import tell
from jobs.pipeline import lowest_first
from jobs.rebuild.loading import Loader
from jobs.rebuild.rebuilds import Rebuilds
from jobs.rebuild.run import RebuildRun
from jobs.rebuild.wishes import Wish
from jobs.twins import is_twin, live_name, twins_of, without_twin
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.support.wait import wait_until

TOPIC = "shop.public.orders"


def spec(name: str, kind: Kind, *relations: str, sinks: tuple[str, ...] = ("delta",)) -> ViewSpec:
    options = tuple(SinkOptions(sink) for sink in sinks)
    return ViewSpec(name, kind, "", "", ("id",), (), ("id",), "", "", options, "f", relations=relations)


SPECS = [
    spec("above", Kind.QUERY, "below"),
    spec("below", Kind.QUERY, "paid", "public.orders"),
    spec("paid", Kind.ROWWISE, sinks=("delta", "kafka")),
    spec("public.orders", Kind.MIRROR),
]
ORDER = ["public.orders", "paid", "below", "above"]


def test_what_is_read_comes_before_what_reads_it():
    assert [each.name for each in lowest_first(SPECS)] == ORDER
    assert [each.name for each in lowest_first(SPECS[:1])] == ["above"]


class TestTheCommand:
    """One after the other."""

    @pytest.fixture(autouse=True)
    def _asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.proved: list[str] = []
        self.refused = ""
        self.wrong: dict[str, ConfigError] = {}
        monkeypatch.setattr(rebuilding, "named_views", lambda _, names, left_out: self._named(names, left_out))
        monkeypatch.setattr(rebuilding, "rebuild_view", self._rebuild)
        monkeypatch.setattr(rebuilding, "run_prove", self._prove)

    def _named(self, names: list[str], left_out: OnError | None) -> list[ViewSpec]:
        for name, error in self.wrong.items():
            tell(name, error, left_out)
        return [each for each in SPECS if not names or each.name in names]

    def _prove(self, _: Any, names: list[str], __: Any) -> int:
        self.proved += names
        return 0

    def _rebuild(self, _: Any, name: str, *, prove: bool) -> Answer:
        self.asked.append(f"{name} {prove}")
        if name == self.refused:
            raise OperatorError("it has stopped", code="CONTROL_REFUSED")
        return Answer("r", State.DONE, 0, 20)

    def test_a_topic_is_proved_afterwards(self):
        settings: Any = None
        assert rebuilding.run_rebuild(settings, [], all_views=True, prove=True) == 0
        assert self.asked == [f"{name} True" for name in ORDER]
        assert self.proved == ["paid"]

    def test_one_that_is_left_out_keeps_no_other_from_it_and_is_told(self, capsys: pytest.CaptureFixture[str]):
        settings: Any = None
        self.wrong = {"shares": ConfigError("shares.sql:2:8: items has no column price", "one of id, line")}
        assert rebuilding.run_rebuild(settings, [], all_views=True, prove=False) == 1
        assert self.asked == [f"{name} False" for name in ORDER]
        told = capsys.readouterr().err
        assert "not rebuilt shares: shares.sql:2:8" in told
        assert "one of id, line" in told
        with pytest.raises(ConfigError, match="price"):
            rebuilding.run_rebuild(settings, ["shares"], all_views=False, prove=False)

    def test_one_that_is_refused_keeps_no_other_from_it(self):
        settings: Any = None
        self.refused = "paid"
        with pytest.raises(OperatorError, match="stopped"):
            rebuilding.run_rebuild(settings, [], all_views=True, prove=False)
        assert self.asked == [f"{name} False" for name in ORDER]


def test_a_twin_reads_what_the_view_reads_and_follows_its_own_table():
    table = Target("lines", "delta", "", 1, (TOPIC,), ("orders",))
    index, topic = (replace(table, sink=sink, level=2, reads=("lines",)) for sink in ("search", "kafka"))

    twins = twins_of([topic, index, table, Target("orders", "delta", TOPIC)], "lines")

    assert list(twins) == [table, index]
    assert twins[table].reads == ("orders",)
    assert twins[index].reads == (twins[table].view,)
    assert all(is_twin(twin) and live_name(twin.view) == "lines" for twin in twins.values())
    assert without_twin([topic, index, table], "lines") == [topic]


class Broken:
    """A loader with a defect."""

    def __init__(self) -> None:
        self.progress = None

    def run(self) -> None:
        raise KeyError("a row's value")

    def cancel(self) -> None:
        pass


class Slow(Broken):
    """A loader that goes on until it is let go."""

    rows: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def run(self) -> Any:
        self.go_on.wait(60)
        raise TransientError("let go", "")

    def share(self) -> float:
        return 0.5


class Control:
    """What is told on the control topic."""

    def __init__(self) -> None:
        self.told: list[Answer] = []
        self.kept: list[Rebuilding] = []

    def tell(self, answer: Answer) -> None:
        self.told.append(answer)

    def answer(self, request_id: str, state: State, *, message: str) -> None:
        self.told.append(Answer(request_id, state, 0, message=message))

    def keep(self, record: Any) -> None:
        self.kept.append(record)


class Renewed(Control):
    """A request whose ttl ran out in a long batch, and that was renewed on the topic meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: tuple[Request, ...] = ()

    def poll(self) -> None:
        self.heard = (Request("r", ControlKind.REBUILD, 0, 15.0, "host:1", view="paid"),)

    def requests(self) -> tuple[Request, ...]:
        return self.heard


def test_damage_met_in_a_batch_that_outlasts_a_request_is_mended_by_it_nevertheless():
    nothing: Any = None
    rebuilds = Rebuilds(nothing, nothing, cast(ControlServer, Renewed()), nothing, nothing)
    assert rebuilds.takes_in_place(OperatorError("files are gone", code="DELTA_DAMAGED"))
    assert not rebuilds.takes_in_place(OperatorError("files are gone", code="DELTA_DAMAGED")), "once"


def test_while_one_is_loaded_those_who_wait_for_others_hear_of_it():
    control, loader = Control(), Slow()
    own, other = (Request(each, ControlKind.REBUILD, 0, 15.0, "host:1", view=each) for each in ("paid", "below"))
    run = RebuildRun(cast(Settings, None), cast(ControlServer, control), Wish("1", ("paid",), (own,)), [])
    run.others = (other,)
    run.load(cast(Loader, loader))
    try:
        told = wait_until(lambda: {each.id: each for each in control.told} if len(control.told) > 1 else None)
    finally:
        loader.go_on.set()
        run.end()
    assert (told["paid"].message, told["paid"].progress) == ("loading", 0.45)
    assert told["paid"].left_s is not None
    assert (told["below"].state, told["below"].message) == (State.RUNNING, "waits for the rebuild of paid")
    assert isinstance(control.kept[0], Rebuilding)


def test_where_there_is_no_terminal_a_line_is_said_every_ten_seconds(capsys: pytest.CaptureFixture[str]):
    clock_s = iter((0.0, 1.0, 9.0, 11.0, 12.0, 15.0, 22.0, 25.0)).__next__
    lines = rebuilding.Lines("paid", clock_s)
    for _ in range(4):
        lines.say("no apply process runs")
    assert not lines.has_heard
    for _ in range(3):
        lines.heard(Answer("r", State.RUNNING, 0, progress=0.5, message="loading", left_s=61.3))
    assert lines.has_heard
    assert capsys.readouterr().err.splitlines() == [
        "rebuilding paid: no apply process runs",
        "rebuilding paid: loading, 50%, about 61 s left",
    ]


def test_a_defect_of_a_rebuild_is_told_by_its_place_and_not_by_its_message():
    with capture_logs() as said:
        run = RebuildRun(cast(Settings, None), cast(ControlServer, None), Wish("1", ()), [])
        run.load(cast(Loader, Broken()))
        wait_until(lambda: run.error, what="its end")
        run.end()
    (defect,) = [each for each in said if each["event"] == "rebuild met a defect"]
    assert defect["error"] == "KeyError"
    assert "test_rebuilding_views.py" in defect["at"][-1]
    assert "a row's value" not in str(said)
    assert run.error is not None
    assert "KeyError" in run.error.message
