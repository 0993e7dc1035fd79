"""Metrics: what events do to them, that each is documented, and that a port that is taken stops nobody."""

from __future__ import annotations

import math
import re
import socket
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from cdc import metrics
from cdc.metrics_server import serve_metrics
from cdc.progress import Kind, Progress
from cdc.retention import SAFE, Danger, Level, Retention
from cdc.settings import Metrics, Settings
from jobs.vouching import Vouching

STREAMED = Progress(7, Kind.STREAM, 50, 1000, 5_000_000, 3, 0, {}, "7000")
SETTINGS = {"pipeline": "shop", "source": {"database": "d", "tables": ["public.*"]}}
UNITS = (
    "_total",
    "_bytes",
    "_seconds",
    "_lsn",
    "_per_second",
    "_seconds_left",
    "_danger",
    "_rows",
    "_keys",
    "_holds",
    "_stopped",
)


def families():
    return {family.name: family for family in metrics.REGISTRY.collect() if family.name.startswith("afterimage_")}


def names():
    return {name + ("_total" if family.type == "counter" else "") for name, family in families().items()}


def value(name, **labels):
    return metrics.REGISTRY.get_sample_value(f"afterimage_{name}", labels) or 0.0


def test_each_has_a_unit_and_a_meaning():
    assert all(name.endswith(UNITS) for name in names())
    assert all(family.documentation for family in families().values())


def test_the_document_lists_them_all():
    documented = set(re.findall(r"^\| `(afterimage_\w+)", Path("docs/METRICS.md").read_text(), flags=re.MULTILINE))

    assert documented == names()


def test_a_commit_is_counted():
    before = value("records_total"), value("kafka_transactions_total", kind="stream")

    metrics.committed(STREAMED)

    assert (value("records_total"), value("kafka_transactions_total", kind="stream")) == (before[0] + 3, before[1] + 1)
    assert value("committed_lsn") == 1000


def test_the_slot_and_the_lag():
    metrics.committed(STREAMED)
    kept = Retention(lsn=1500, active=True, kept_bytes=400, safe_bytes=200, wal_status="reserved")

    metrics.looked(kept, Danger(Level.ALARM), 10.0, now_s=8.0)

    assert (value("capture_lag_bytes"), value("capture_lag_seconds")) == (500, 3.0)
    assert (value("slot_retained_bytes"), value("slot_safe_bytes"), value("slot_seconds_left")) == (400, 200, 20)
    assert (value("slot_danger"), value("source_wal_bytes_per_second")) == (2, 10)


def test_what_is_not_known_is_not_a_number():
    metrics.committed(STREAMED)

    metrics.looked(Retention(lsn=900), SAFE, None, now_s=8.0)

    assert math.isnan(value("slot_safe_bytes"))
    assert math.isnan(value("slot_seconds_left"))
    assert (value("capture_lag_bytes"), value("capture_lag_seconds")) == (0, 0)


def told(view):
    return {
        sample.name
        for family in metrics.REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("view") == view
    }


def test_nothing_is_said_of_what_is_not_kept_any_more():
    for view, sink in (("stays", "delta"), ("stays", "cache"), ("goes", "delta")):
        metrics.VIEW_LSN.labels(view, sink).set(7)
        metrics.VIEW_UNFIT_ROWS.labels(view, sink).set(0)
        metrics.proved((view, sink), ts_s=5.0, holds=False, rows=3, differences=1, seconds=0.1)
        metrics.VIEW_STOPPED.labels(view).set(1)
        metrics.refreshed(view, "full", None, 0.1)

    metrics.kept({("stays", "delta"), ("new", "delta")})

    assert value("prove_differing_rows", view="stays", sink="delta") == 1
    assert value("view_lsn", view="stays", sink="delta") == 7
    assert value("view_stopped", view="stays") == 1
    assert metrics.REGISTRY.get_sample_value("afterimage_prove_holds", {"view": "stays", "sink": "cache"}) is None
    assert metrics.REGISTRY.get_sample_value("afterimage_view_lsn", {"view": "stays", "sink": "cache"}) is None
    assert told("goes") == set()

    for _ in range(2):
        Vouching(Settings.model_validate(SETTINGS), *[None] * 3).dropped("stays")

    assert told("stays") == set()


@pytest.mark.parametrize("port", [None])
def test_nothing_listens_unless_it_was_asked_for(port):
    with structlog.testing.capture_logs() as logs:
        serve_metrics(Metrics(), port)

    assert logs == []


def test_a_port_that_is_taken_is_a_warning():
    with closing(socket.socket()) as taken, structlog.testing.capture_logs() as logs:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve_metrics(Metrics(), taken.getsockname()[1])

    assert [(line["code"], line["log_level"]) for line in logs] == [("METRICS_PORT", "warning")]
