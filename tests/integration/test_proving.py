"""Proofs inside the apply process: by the clock, mended if the configuration says so, and repairs for the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog

from cdc import metrics
from cdc.check.fix import fix
from cdc.errors import OperatorError, TransientError
from cdc.settings import Kafka, Prove, Settings
from cdc.stack.server import Endpoint
from jobs import proving
from jobs.control import (
    ControlClient,
    ControlServer,
    Kind,
    Proved,
    Run,
    RunTo,
    Stand,
    State,
    newest_proofs,
    publish_proofs,
)
from jobs.prove import Mend, Mended
from jobs.proving import ProofThread
from sinks.spec import Kind as ViewKind
from sinks.spec import SinkOptions, ViewSpec
from tests.fakes.memory_sink import MemorySink
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.wait import wait_until

TABLE = """
CREATE TABLE public.many (id int PRIMARY KEY, note text);
INSERT INTO public.many SELECT g, 'note ' || g FROM generate_series(1, 20) g;
"""
RIGHT = [(number, f"note {number}") for number in range(1, 21)]
SPEC = ViewSpec(
    "many",
    ViewKind.MIRROR,
    "public",
    "many",
    ("id",),
    ("id",),
    ("id", "note"),
    "SELECT id, note FROM public.many",
    "",
    (SinkOptions("delta"),),
    "",
)


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink(list(RIGHT))


@pytest.fixture
def settings(
    pg_database: Database,
    kafka: Endpoint,
    pipeline_name: str,
    tmp_path: Any,
    sink: MemorySink,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Settings]:
    monkeypatch.setattr(proving, "captured_tables", lambda _: {})
    monkeypatch.setattr(proving, "live_views", lambda *_: {SPEC.name: SPEC})
    monkeypatch.setattr(proving, "make_sink", lambda *_: sink)
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=TABLE, tables=("public.many",)) as prepared:
        fix(prepared)
        yield prepared.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})


@contextmanager
def apply_process(settings: Settings, sink: MemorySink) -> Iterator[ProofThread]:
    """Apply's loop, as far as it concerns proofs."""
    stop = threading.Event()

    def mender(mend: Mend) -> Mended:
        assert sink.lsn == mend.lsn, "apply has moved on"
        kept = {row[0]: row for row in sink.stored if str(row[0]) not in {key[0] for key in mend.gone}}
        kept |= {int(row[0] or 0): (int(row[0] or 0), row[1]) for row in mend.rows}
        sink.stored = list(kept.values())
        return Mended(len(mend.rows), len(mend.gone), mend.left)

    def loop(server: ControlServer, proofs: ProofThread) -> None:
        sink.lsn = 1
        while not stop.is_set():
            server.poll(0.02)
            proofs.attend(server, mender)
            match server.step(sink.lsn):
                case Run():
                    sink.lsn += 1
                case RunTo(lsn):
                    sink.lsn = lsn
                case Stand():
                    pass

    with ControlServer(settings) as server, ProofThread(settings) as proofs:
        server.acquire(30)
        thread = threading.Thread(target=loop, args=[server, proofs])
        thread.start()
        try:
            yield proofs
        finally:
            stop.set()
            thread.join()


def value(metric: Any) -> float:
    found: float = metric.labels("many", "delta")._value.get()
    return found


def labelled(metric: Any) -> list[dict[str, str]]:
    return [sample.labels for family in metric.collect() for sample in family.samples]


def until(settings: Settings, wanted: Callable[[Any], bool]) -> Any:
    """The newest proof, once it is so."""

    def look() -> Any:
        proved = newest_proofs(settings).get(("many", "delta"))
        return proved if proved is not None and wanted(proved) else None

    return wait_until(look, timeout_s=60, what="a proof")


def scheduled(settings: Settings, **prove: Any) -> Settings:
    return settings.model_copy(update={"prove": Prove(every="1s", **prove)})


def test_proofs_by_the_clock_are_told_and_a_difference_is_an_error(settings: Settings, sink: MemorySink) -> None:
    with structlog.testing.capture_logs() as logs, apply_process(scheduled(settings), sink):
        first = until(settings, lambda proved: proved.holds)
        assert (first.rows, first.differences) == (20, 0)
        assert (value(metrics.PROVED_HOLDS), value(metrics.PROVED_ROWS)) == (1, 20)
        assert value(metrics.PROVED_TIMESTAMP) > time.time() - 60
        assert 0 < value(metrics.PROVED_SECONDS) < 60
        assert 0 < float(metrics.REGISTRY.get_sample_value("afterimage_prove_held_seconds") or 0) < 60
        sink.stored = [(1, "wrong"), *RIGHT[2:]]
        wrong = until(settings, lambda proved: not proved.holds)
        assert (wrong.differences, wrong.problem) == (2, None)
        assert (value(metrics.PROVED_HOLDS), value(metrics.PROVED_DIFFERENCES)) == (0, 2)
    errors = [log for log in logs if log["log_level"] == "error"]
    assert {(log["code"], log["view"], log["missing"], log["different"]) for log in errors} == {
        ("VIEW_DIFFERS", "many", 1, 1)
    }


def test_after_a_restart_the_metrics_are_what_the_newest_proof_found(settings: Settings, sink: MemorySink) -> None:
    """Of what is kept in these sinks still, and where the clock makes the next proofs."""
    publish_proofs(settings, [Proved("many", at, 5_000, 9, at == "cache", 20, 2, 0.5) for at in ("delta", "cache")])
    metrics.dropped("many")
    ProofThread(settings).begin({("many", "delta")})
    assert not labelled(metrics.PROVED_HOLDS), "nothing proves it by the clock"

    proofs = ProofThread(scheduled(settings))
    proofs.begin({("many", "delta"), ("new", "delta")})

    assert labelled(metrics.PROVED_HOLDS) == [{"view": "many", "sink": "delta"}]
    assert (value(metrics.PROVED_HOLDS), value(metrics.PROVED_TIMESTAMP), value(metrics.PROVED_ROWS)) == (0, 5, 20)
    assert (value(metrics.PROVED_DIFFERENCES), value(metrics.PROVED_SECONDS)) == (2, 0.5)
    metrics.proved(("many", "delta"), ts_s=6.0, holds=True, rows=20, differences=0, seconds=0.1)
    proofs.begin({("many", "delta")})
    assert value(metrics.PROVED_HOLDS) == 1, "what was found since is newer"


def test_a_view_that_is_dropped_while_it_is_proved_has_no_proof(
    settings: Settings, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(SPEC, name="gone")
    looks = iter([{SPEC.name: SPEC, gone.name: gone}])
    monkeypatch.setattr(proving, "live_views", lambda *_: next(looks, {SPEC.name: SPEC}))
    with apply_process(scheduled(settings), sink):
        until(settings, lambda proved: proved.holds)
    assert ("gone", "delta") not in newest_proofs(settings)
    assert metrics.REGISTRY.get_sample_value("afterimage_prove_holds", {"view": "gone", "sink": "delta"}) is None


def test_what_differs_is_mended_where_the_configuration_says_so(settings: Settings, sink: MemorySink) -> None:
    sink.stored = [(1, "wrong"), (99, "stray"), *RIGHT[2:]]
    before = metrics.REGISTRY.get_sample_value("afterimage_prove_mended_keys_total") or 0.0
    with structlog.testing.capture_logs() as logs, apply_process(scheduled(settings, repair=True), sink):
        until(settings, lambda proved: proved.holds)
    assert sorted(sink.stored) == RIGHT
    assert any(log.get("code") == "VIEW_DIFFERS" for log in logs), "a repair hides no difference"
    assert metrics.REGISTRY.get_sample_value("afterimage_prove_mended_keys_total") == before + 3


def test_a_proof_that_cannot_be_made_is_told_and_stops_nothing(
    settings: Settings, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "_RETRY_S", 0.1)
    tries = iter([TransientError("no", "later", code="ELSEWHERE"), ZeroDivisionError()])

    def captured(_: Settings) -> dict[Any, Any]:
        for error in tries:
            raise error
        return {}

    monkeypatch.setattr(proving, "captured_tables", captured)
    with apply_process(scheduled(settings), sink):
        until(settings, lambda proved: proved.holds)
    assert metrics.PROVE_FAILURES.labels("ELSEWHERE")._value.get() == 1
    assert metrics.PROVE_FAILURES.labels("ZeroDivisionError")._value.get() == 1


def test_a_repair_that_is_asked_for_mends_and_is_answered(settings: Settings, sink: MemorySink) -> None:
    sink.stored = [(1, "wrong"), (99, "stray"), *RIGHT[2:]]
    with apply_process(settings, sink), ControlClient(settings) as client:
        with client.keep(Kind.REPAIR, view="many") as kept:
            answer = client.await_answer(kept.id, {State.DONE}, 60)
        assert answer.mended == {"delta": (2, 1, 0)}
        assert sorted(sink.stored) == RIGHT
        with client.keep(Kind.REPAIR, view="nobody") as kept:
            with pytest.raises(OperatorError, match="no view nobody") as caught:
                client.await_answer(kept.id, {State.DONE}, 60)
            assert (caught.value.code, caught.value.hint) == ("UNKNOWN_VIEW", "is its view file the same here?")


def test_apply_ends_at_once_while_a_proof_rests(
    settings: Settings, sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = threading.Event()

    def repair(self: ProofThread, _: Any) -> None:
        rests.set()
        self._rest(600)

    monkeypatch.setattr(ProofThread, "_repair", repair)
    with (
        apply_process(settings, sink) as proofs,
        ControlClient(settings) as client,
        client.keep(Kind.REPAIR, view="many"),
    ):
        assert rests.wait(60)
    assert not proofs._thread.is_alive()
