"""Views whose files fit the tables no longer: which of them stop a start, and what is told of the others."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from structlog.testing import capture_logs

from cdc import metrics
from cdc.cli import status, views
from cdc.cli.report import Report, ViewStanding
from cdc.errors import ConfigError
from cdc.settings import Settings
from jobs import left_out
from jobs.declare import OnError, view_texts
from jobs.declare.bodies import cut_text
from jobs.dropping import refusal
from jobs.left_out import LeftOutViews, is_left_out, sinks_of, trouble_of, unproved
from jobs.pipeline import Pipeline
from tests.unit.test_bodies import TOP

LIVE = "-- sinks: delta, cache\nSELECT id, total FROM orders"
ERROR = ConfigError("live.sql:2:12: orders has no column total", "one of id, status", code="VIEW_UNKNOWN_COLUMN")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Files of a view that is live, of one with a body, of one that was edited since, and of a new one."""
    files = {"live": LIVE, "top": TOP, "edited": LIVE.replace("total", "totl"), "new": LIVE}
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text)
    top = view_texts(tmp_path)["top"]
    kept = {"live": LIVE, "top": cut_text("top", top), "edited": LIVE, "gone": LIVE}
    monkeypatch.setattr(left_out, "declared_texts", lambda _: kept)
    return cast(Settings, SimpleNamespace(views=tmp_path))


def pipeline(*views: str) -> Pipeline:
    return Pipeline({}, cast(Any, dict.fromkeys(views)), {})


def stopped(view: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("afterimage_view_stopped", {"view": view})


@pytest.mark.parametrize("view", ["live", "top", "top__body"])
def test_what_was_live_as_it_is_stops_no_start(settings: Settings, view: str):
    with capture_logs() as said:
        LeftOutViews(settings).tell(view, ERROR)
    (told,) = said
    assert (told["view"], told["code"], told["remedy"]) == (view, ERROR.code, ERROR.hint)


@pytest.mark.parametrize("view", ["edited", "new", "gone"])
def test_what_was_never_live_as_it_is_stops_a_start_and_nothing_later(settings: Settings, view: str):
    left = LeftOutViews(settings)
    with pytest.raises(ConfigError) as caught:
        left.tell(view, ERROR)
    assert caught.value is ERROR
    left.loaded(pipeline("live"))
    left.tell(view, ERROR)


def test_a_limit_that_had_no_body_was_live_as_well(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(left_out, "declared_texts", lambda _: {"top": TOP})
    LeftOutViews(settings).tell("top", ERROR)


def test_the_metric_shows_who_is_left_out_and_not_whose_former_declaration_goes_on(settings: Settings):
    left = LeftOutViews(settings)
    left.tell("live", ERROR)
    left.loaded(pipeline("top"))
    assert stopped("live") == 1

    left.tell("top", ERROR)
    left.loaded(pipeline("live", "top"))
    assert (stopped("live"), stopped("top")) == (0, None)


def test_its_remedy_says_how_to_mend_it_and_how_to_do_without(settings: Settings):
    trouble = trouble_of("live", ERROR)
    assert (trouble.code, trouble.message) == (ERROR.code, ERROR.message)
    assert trouble.remedy.startswith("one of id, status; or remove its file, and `afterimage drop live`")


def test_a_body_is_left_out_with_its_view(settings: Settings):
    assert [is_left_out(view, {"top"}) for view in ("top", "top__body", "live")] == [True, True, False]


def test_its_sinks_are_those_that_its_file_names(settings: Settings):
    assert sinks_of(settings, "live") == ("delta", "cache")
    (settings.views / "live.sql").write_text("-- sinsk: cache\nSELECT 1")
    assert sinks_of(settings, "live") == ("delta",)
    assert sinks_of(settings, "top__body") == ("delta",)


def test_it_is_proved_nowhere_and_the_problem_has_its_remedy(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    rows = {"live": SimpleNamespace(lsn=0x30)}
    ledger = SimpleNamespace(read=lambda: SimpleNamespace(rows=rows))
    monkeypatch.setattr(left_out, "Ledger", lambda *_: ledger)
    given: Any = SimpleNamespace(views=settings.views, delta_root="", delta=SimpleNamespace(storage_options={}))
    proofs = unproved(given, {"live": ERROR})
    assert [(proof.view, proof.sink, proof.lsn, proof.holds) for proof in proofs] == [
        ("live", "delta", 0x30, False),
        ("live", "cache", 0x30, False),
    ]
    assert proofs[0].problem == f"left out: {ERROR.message} (one of id, status)"
    assert unproved(given, {}) == []


def test_status_shows_it_as_stopped_and_not_as_loading(settings: Settings):
    standings = [
        ViewStanding("live", sink, lsn, None, None, stopped=trouble_of("live", ERROR))
        for sink, lsn in (("delta", 0x30), ("cache", None))
    ]
    given = Settings.model_validate({"pipeline": "shop", "source": {"database": "d", "tables": ["public.*"]}})
    report = Report(None, None, None, None, None, tuple(standings), ())
    text = io.StringIO()
    Console(file=text, width=200).print(status.screen(given, report, []))
    assert text.getvalue().count("stopped") == 2
    assert "loading" not in text.getvalue()
    assert "one of id, status; or remove its file, and `afterimage drop live`" in text.getvalue()
    told = status.as_dict(given, report, [])["views"]
    assert [view["lsn"] for view in told] == ["0/30", None]
    assert all("afterimage drop live" in view["stopped"]["remedy"] for view in told)


def test_a_body_of_what_is_left_out_is_not_dropped(settings: Settings):
    assert "the LIMIT of top is cut from" in str(refusal(settings, "top__body", {}))
    assert refusal(settings, "none__body", {}) is None
    specs = cast(Any, {"top": SimpleNamespace(kind=None)})
    assert refusal(settings, "top__body", specs) is None, "the view has no body any more"


class TestNamedViews:
    """Those that a command names, while one is left out."""

    @pytest.fixture(autouse=True)
    def _declared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def declare(_: Settings, __: Any, on_error: OnError) -> dict[str, Any]:
            on_error("live", ERROR)
            return {"top": "top", "other": "other"}

        monkeypatch.setattr(views, "captured_tables", lambda _: {})
        monkeypatch.setattr(views, "live_views", declare)

    def _named(self, settings: Settings, names: list[str], left_out: OnError | None = None) -> list[Any]:
        return [*views.live_named_views(settings, names, left_out)]

    def test_the_others_are_there_and_it_is_told(self, settings: Settings):
        told: dict[str, ConfigError] = {}
        assert self._named(settings, [], told.__setitem__) == ["top", "other"]
        assert self._named(settings, ["top", "live"], told.__setitem__) == ["top"]
        assert told == {"live": ERROR}

    def test_it_is_raised_where_nobody_is_told_and_it_is_wanted(self, settings: Settings):
        assert self._named(settings, ["top"]) == ["top"]
        for names in ([], ["top", "live"]):
            with pytest.raises(ConfigError) as caught:
                self._named(settings, names)
            assert caught.value is ERROR
