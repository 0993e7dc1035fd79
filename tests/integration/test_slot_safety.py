"""The slot's WAL on a real server: what `status`, `check` and capture's log say when there is too much of it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cdc.settings import Kafka, Metrics, Settings
from tests.support.capturing import insert_lsn, running_capture
from tests.support.processes import Command, json_of, run_command, write_config
from tests.support.wait import wait_until


@pytest.fixture
def settings(source: Settings, kafka: Any) -> Settings:
    source.views.mkdir(parents=True)
    return source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address)})


def scrape(command: Command) -> dict[str, float]:
    """Capture's metrics without labels, from the port that its log names."""
    [address] = re.findall(r"127\.0\.0\.1:\d+", command.text())[:1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.split(" ") for line in lines if line.startswith("afterimage_") and "{" not in line)
    return {name: float(number) for name, number in samples}


def test_an_alarm_is_raised_everywhere(settings: Settings, admin: Any, tmp_path: Path) -> None:
    with running_capture(settings) as capture:
        capture.wait_for(insert_lsn(admin))
    calm = run_command(write_config(settings, tmp_path), "status", "--json")
    assert json_of(calm)["source"]["slot_danger"] == "safe"
    assert json_of(calm)["source"]["slot_kept_bytes"] >= 0
    admin.execute("INSERT INTO public.secrets SELECT g, repeat('x', 500) FROM generate_series(1, 2000) g")

    tight = settings.source.model_copy(update={"wal_kept_warning_bytes": 1000, "wal_kept_max_bytes": 100_000})
    measured = Metrics(capture_port=0)
    config = write_config(settings.model_copy(update={"source": tight, "metrics": measured}), tmp_path)
    status = run_command(config, "status", "--json")
    report = json_of(status)
    assert status.returncode == 1
    assert report["source"]["slot_danger"] == "alarm"
    assert report["source"]["slot_kept_bytes"] > 1_000_000
    assert 0 < report["source"]["slot_safe_bytes"] < 5 << 30
    assert any("SLOT_AT_RISK" in problem for problem in report["problems"])
    assert "SLOT_AT_RISK" in run_command(config, "status").stdout
    findings = {found["code"]: found for found in json_of(run_command(config, "check", "--json"))["findings"]}
    assert "pg_stat_activity" in findings["SLOT_AT_RISK"]["remedy"]

    admin.execute("BEGIN; SELECT txid_current()")  # holds the slot's restart position where it is
    command = Command(config, ("capture",), tmp_path / "capture.log").start()
    try:
        wait_until(lambda: "SLOT_AT_RISK" in command.text(), what="the alarm in capture's log")
        assert command.alive
        scraped = scrape(command)
        assert scraped["afterimage_slot_danger"] == 2
        assert scraped["afterimage_slot_retained_bytes"] > 1_000_000
        assert scraped["afterimage_source_lsn"] > 0
    finally:
        command.stop()
        admin.execute("ROLLBACK")
    [line] = [each for each in map(json.loads, command.text().splitlines()) if each.get("code") == "SLOT_AT_RISK"]
    assert line["remedy"]
    assert line["kept_bytes"] > 1_000_000
