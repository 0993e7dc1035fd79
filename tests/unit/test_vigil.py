"""What apply notices while it has nothing to write."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc.errors import OperatorError
from jobs.vigil import CAPTURE_SILENT_S, Vigil


def test_whoever_is_asked_for_a_new_view_looks_at_the_folder_at_once(tmp_path: Path) -> None:
    settings: Any = SimpleNamespace(views=tmp_path)
    watch = Vigil(settings, cast(Any, None))
    watch.begin()
    assert not watch.sees_other_files()
    tmp_path.joinpath("new.sql").write_text("SELECT 1")
    assert not watch.sees_other_files(), "it was looked at just now"
    assert watch.sees_other_files(at_once=True)


def test_who_waits_for_capture_hears_when_it_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    watch = Vigil(cast(Any, None), cast(Any, None))
    for lsn in (5, 5, 6, 6):
        now_s += CAPTURE_SILENT_S - 1
        watch.require_capture(lsn, 9)
    now_s += 2
    with pytest.raises(OperatorError, match="capture stands at 0/6 and has not come to 0/9") as caught:
        watch.require_capture(6, 9)
    assert caught.value.code == "CAPTURE_SILENT"
