"""Queries that stopped alone: what is told of them, and when they are tried again."""

from __future__ import annotations

from cdc import metrics
from cdc.errors import OperatorError
from jobs.refresh.failing import FailingViews
from jobs.twins import twin_name
from sinks.delta.held import Held

READ = {"orders": Held(4, 1, 3), "items": Held(9, 1, 8)}
TIDIED = {"orders": Held(5, 1, 3), "items": Held(9, 1, 8)}
CHANGED = {"orders": Held(4, 1, 3), "items": Held(10, 1, 9)}
ERROR = OperatorError("it divides by zero", "do not", code="VIEW_FAILED")


def stopped(view: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("afterimage_view_stopped", {"view": view})


def test_what_is_loaded_beside_is_no_view_of_anybodys():
    failing = FailingViews()

    failing.fail(twin_name("loaded"), ERROR, READ)
    failing.succeed(twin_name("other"))

    assert failing.troubles.keys() == {twin_name("loaded")}
    assert (stopped(twin_name("loaded")), stopped(twin_name("other"))) == (None, None)


def test_one_that_failed_is_tried_again_when_what_it_reads_has_changed_and_not_before():
    failing = FailingViews()
    assert not failing.fails_again("a", READ)

    failing.fail("a", ERROR, READ)

    assert failing.fails_again("a", READ)
    assert failing.fails_again("a", TIDIED)
    assert not failing.fails_again("a", CHANGED)
    trouble = failing.troubles["a"]
    assert (trouble.code, trouble.message, trouble.remedy) == ("VIEW_FAILED", "it divides by zero", "do not")
    assert stopped("a") == 1


def test_who_asks_has_it_tried_at_once():
    failing = FailingViews()
    failing.fail("a", ERROR, READ)

    failing.try_again("a")

    assert not failing.fails_again("a", READ)
    assert "a" in failing.troubles


def test_what_has_no_reason_is_tried_with_every_batch():
    failing = FailingViews()

    failing.fail("a", OperatorError("Spark failed", code="SPARK"), READ)

    assert not failing.fails_again("a", READ)


def test_what_reads_it_waits_and_is_computed_once_it_follows_again():
    failing = FailingViews()
    failing.fail("a", ERROR, READ)
    failing.wait("b", "a")

    assert failing.troubles["b"].code == "VIEW_WAITS"
    assert not failing.fails_again("b", READ)
    assert stopped("b") == 1

    for view in ("a", "b"):
        failing.succeed(view)
    assert failing.troubles == {}
    assert stopped("b") == 0
