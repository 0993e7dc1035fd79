"""Commands that ask apply for something: they give up when it is gone, and say what one of their own ended with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.cli import applying, asking
from cdc.errors import CdcError, OperatorError, TransientError
from cdc.settings import Settings
from jobs.apply import Finished
from jobs.control import Answer, Kind, State
from jobs.prove import holder
from tests.support.wait import wait_until

SETTINGS = cast(Settings, SimpleNamespace(pipeline="p"))


class Client:
    """The control topic: silent until somebody says something."""

    def __init__(self, _: Any) -> None:
        self.id = "r"
        self.answer: Callable[[], Answer | None] = lambda: None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None: ...

    def keep(self, *_: Any, **__: Any) -> Client:
        return self

    def await_answer(self, *given: Any) -> Answer:
        *_, on_wait = given

        def answered() -> Answer | None:
            on_wait()
            return self.answer()

        found = wait_until(answered, timeout_s=30)
        assert found is not None
        return found


class Server:
    """Apply's side in this process."""

    fails: CdcError | None = None

    def __init__(self, _: Any) -> None: ...

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None: ...

    def acquire(self, *_: Any) -> None:
        if self.fails is not None:
            raise self.fails


class Run:
    """Apply itself, until it is asked to stop or has answered."""

    ended: threading.Event

    def __init__(self, _: Any, __: Any, ___: Any, wait: Callable[[float], bool], *, once: bool) -> None:
        self._wait = wait

    def run(self) -> None:
        while not self.ended.is_set():
            if self._wait(0.01):
                raise Finished


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(None)
    monkeypatch.setattr(asking, "ControlClient", lambda _: made)
    monkeypatch.setattr(applying, "ControlServer", Server)
    monkeypatch.setattr(applying, "ApplyRun", Run)
    monkeypatch.setattr(applying, "spark_session", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(asking, "apply_owner", lambda _: None)
    monkeypatch.setattr(holder, "apply_owner", lambda _: "host:1")
    monkeypatch.setattr(Run, "ended", threading.Event(), raising=False)
    monkeypatch.setattr(Server, "fails", None)
    return made


@pytest.mark.parametrize("kind", [Kind.REBUILD, Kind.DROP])
def test_an_apply_that_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    monkeypatch.setattr(asking, "apply_owner", lambda _: "host:1")
    monkeypatch.setattr(holder, "apply_owner", lambda _: None)
    monkeypatch.setattr(holder, "ABSENCE_MAX_S", 0.0)
    monkeypatch.setattr(holder, "_LOOK_EVERY_S", 0.0)
    with pytest.raises(TransientError) as caught:
        asking.ask_apply(SETTINGS, kind, "paid")
    assert caught.value.code == "APPLY_GONE"


def test_where_nobody_applies_it_is_done_here_while_the_command_listens(client: Client) -> None:
    waited: list[str] = []

    def answer() -> Answer | None:
        if len(waited) < 3:
            return None
        Run.ended.set()
        return Answer("r", State.DONE, 0, 20)

    client.answer = answer
    assert asking.ask_apply(SETTINGS, Kind.REBUILD, "paid", on_wait=waited.append).lsn == 20
    assert set(waited) == {asking.NOBODY_APPLIES}
    assert "apply" not in {thread.name for thread in threading.enumerate()}


def test_what_an_apply_of_its_own_ended_with_is_what_the_command_says(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "fails", OperatorError("no file", "", code="DELTA_DAMAGED"))

    def refused() -> Answer | None:
        raise OperatorError("apply failed the request", "", code="CONTROL_REFUSED")

    for client.answer in (lambda: None, refused):
        with pytest.raises(OperatorError) as caught:
            asking.ask_apply(SETTINGS, Kind.REBUILD, "paid")
        assert caught.value.code == "DELTA_DAMAGED"


def test_interrupting_the_command_stops_an_apply_of_its_own(client: Client) -> None:
    def interrupted() -> Answer | None:
        raise KeyboardInterrupt

    client.answer = interrupted
    with pytest.raises(KeyboardInterrupt):
        asking.ask_apply(SETTINGS, Kind.REBUILD, "paid")
    assert "apply" not in {thread.name for thread in threading.enumerate()}
