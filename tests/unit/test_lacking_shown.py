"""What people and programs are told about rows that a view lacks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cdc.cli import proving, status
from cdc.cli.report import Report, ViewStanding
from cdc.settings import Settings
from jobs.prove import ViewProof
from sinks.protocol import Unfit

LACKING = (Unfit("k1", "shop.public.orders@0:7", 70, ("price",)), Unfit("k2", "shop.public.orders@1:9", 90, ("day",)))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"pipeline": "shop", "source": {"database": "d", "tables": ["public.*"]}})


def report(unfit: tuple[Unfit, ...]) -> Report:
    view = ViewStanding("public.orders", "delta", 100, 0, 0.0, unfit=unfit)
    return Report(None, None, None, None, None, (view,), ())


def test_status_tells_how_many_which_columns_and_where(settings: Settings):
    screen = io.StringIO()
    Console(file=screen, width=200).print(status.screen(settings, report(LACKING), []))
    assert "public.orders in delta lacks 2 rows: no Delta type holds a value of day, price" in screen.getvalue()
    assert "shop.public.orders@0:7" in screen.getvalue()
    [view] = status.as_dict(settings, report(LACKING), [])["views"]
    assert view["dead_letters"] == [
        {"at": "shop.public.orders@0:7", "columns": ["price"]},
        {"at": "shop.public.orders@1:9", "columns": ["day"]},
    ]


def test_status_says_nothing_where_nothing_lacks(settings: Settings):
    screen = io.StringIO()
    Console(file=screen, width=200).print(status.screen(settings, report(()), []))
    assert "lacks" not in screen.getvalue()


def test_prove_shows_the_rows_and_asks_to_correct_them(monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    monkeypatch.setattr(proving, "out", Console(file=screen, width=200))
    proving.show([ViewProof("public.orders", "delta", 100, 0.1, rows=5, missing=2, unfit=LACKING)])
    assert "0 of 1 proved equal" in screen.getvalue()
    assert "dead letter shop.public.orders@1:9, column day" in screen.getvalue()
    assert "correct these rows" in screen.getvalue()
    assert "rebuild" not in screen.getvalue()


def test_a_cache_that_drops_entries_does_not_hold_while_it_lacks_rows():
    assert ViewProof("v", "cache", 1, 0.1, missing=1, may_expire=True).holds
    assert not ViewProof("v", "cache", 1, 0.1, missing=1, may_expire=True, unfit=LACKING).holds
