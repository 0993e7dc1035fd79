"""What `status` shows on screens that are too narrow for it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cdc.cli import status
from cdc.cli.report import Report, ViewStanding
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.refresh.outcome import How, Outcome
from sinks.delta import Figures

SETTINGS = Settings.model_validate({"pipeline": "shop", "source": {"database": "d", "tables": ["public.*"]}})
NAMES = ("revenue_of_each_customer_by_country_and_month", "public.an_ordinary_table_of_orders", "short")
LSN = 0xAB_12345678


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_name_and_no_position_is_cut_off(width: int):
    figures = Figures(files=12, rows=1_234_567, bytes=98_765_432, tidied_s=3_600.0)
    refreshed = Outcome(How.INCREMENTAL, None, 1_234, 1_000, 56.7)
    views = tuple(ViewStanding(name, "delta", LSN, 123_456, 12.3, refreshed=refreshed, table=figures) for name in NAMES)
    text = io.StringIO()
    Console(file=text, width=width).print(status.screen(SETTINGS, Report(None, None, None, None, None, views, ()), []))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    header = next(line for line in lines if line.split()[:2] == ["view", "sink"])
    column = "".join(line[: header.index("sink")].strip() for line in lines[lines.index(header) + 1 :])
    assert column == "".join(NAMES)
    assert text.getvalue().count(format_lsn(LSN)) == len(NAMES)
