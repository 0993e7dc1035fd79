"""What people and programs are told of proofs: where views were compared, what was mended, when that was done last."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cdc.cli import proving, repairing, status
from cdc.cli.proving import Wanted
from cdc.cli.standing import Report, ViewStanding
from cdc.settings import Prove, Settings
from jobs.control import Proved
from jobs.prove import Difference, Example, Mended, ViewProof
from sinks.spec import Kind


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"pipeline": "shop", "source": {"database": "d", "tables": ["public.*"]}})


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    made = io.StringIO()
    for module in (proving, repairing):
        monkeypatch.setattr(module, "out", Console(file=made, width=200))
    return made


def test_a_proof_says_at_which_lsn_or_between_which(screen: io.StringIO):
    small, large = ViewProof("v", "delta", 0x30, 0.1), ViewProof("w", "delta", 0x50, 0.1, first_lsn=0x40, chunks=3)
    proving.show([small])
    assert "1 of 1 proved equal to Postgres at 0/30" in screen.getvalue()
    proving.show([small, large])
    assert "at 0/30; chunk by chunk, each at one LSN, from 0/40 to 0/50" in screen.getvalue()
    assert (large.to_json()["first_lsn"], large.to_json()["lsn"], large.to_json()["chunks"]) == ("0/40", "0/50", 3)


def test_status_says_when_each_was_proved_and_what_differed(settings: Settings):
    views = tuple(ViewStanding("v", sink, 100, 0, 0.0) for sink in ("delta", "search", "cache"))
    now_ms = int(time.time() * 1000)
    proofs = {
        ("v", "delta"): Proved("v", "delta", now_ms - 180_000, 50, True, 9, 0, 0.1),
        ("v", "search"): Proved("v", "search", now_ms - 180_000, 50, False, 9, 2, 0.1),
    }
    report = Report(None, None, None, None, None, views, (), proofs)
    text = io.StringIO()
    Console(file=text, width=200).print(status.screen(settings, report, []))
    assert text.getvalue().count("3 min") == 2
    assert "2 keys differed" in text.getvalue()
    told = [view["proved"] for view in status.as_dict(settings, report, [])["views"]]
    assert (told[0]["holds"], told[1]["differences"], told[2]) == (True, 2, None)
    assert told[0]["lsn"] == "0/32"


def test_what_the_command_says_goes_before_the_configuration(settings: Settings):
    slow = settings.model_copy(update={"prove": Prove(chunk_rows=7, rows_per_s=5, every="90m")})
    assert Wanted(rows_per_s=9).settings(slow).prove == Prove(chunk_rows=7, rows_per_s=9, every="90m")
    assert slow.prove.every_s == 5400


class Repairs:
    """Apply, as the command sees it: what is found by one proof after the other, and what is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *proofs: list[ViewProof]) -> None:
        self._proofs = list(proofs)
        self.asked: list[str] = []
        specs = {"v": Spec("v", "t"), "w": Spec("w", "t"), "t": Spec("t")}
        asked = lambda names: [specs[name] for name in names or ("v", "w")]  # noqa: E731
        monkeypatch.setattr(repairing, "live_named_views", lambda _, names, *__: asked(names))
        monkeypatch.setattr(repairing, "apply_owner", lambda _: "somebody")
        monkeypatch.setattr(
            repairing, "publish_proofs", lambda _, proofs: self.asked.append(f"{len(list(proofs))} kept")
        )
        monkeypatch.setattr(repairing, "prove_views", lambda *_, **__: self._proofs.pop(0))
        monkeypatch.setattr(repairing, "rebuild_view", lambda _, view: self.asked.append(f"rebuild {view}"))
        monkeypatch.setattr(repairing, "_mended_by_apply", self._mend)

    def _mend(self, settings: Settings, view: str, _: Any) -> dict[str, Mended]:
        self.asked.append(f"mend {view}")
        return {"delta": Mended(1, 0, 0)}


class Spec:
    kind = Kind.QUERY

    def __init__(self, name: str, *relations: str) -> None:
        self.name = name
        self.relations = relations


EQUAL = ViewProof("v", "delta", 1, 0.1, rows=3)
OTHER = ViewProof("w", "delta", 1, 0.1, rows=3)
BELOW = ViewProof("t", "delta", 1, 0.1, rows=3)
WRONG = ViewProof("v", "delta", 1, 0.1, rows=3, different=1, examples=(Example(Difference.DIFFERENT, {"id": "1"}),))


def test_what_a_wrong_view_reads_is_mended_first(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    below = replace(WRONG, view="t")
    repairs = Repairs(monkeypatch, [WRONG], [below], [EQUAL, replace(EQUAL, view="t")])
    assert repairing.run_repair(settings, ["v"], Wanted()) == 0
    assert repairs.asked == ["mend t", "mend v", "2 kept"]
    assert "2 of 2 proved equal" in screen.getvalue()


def test_a_repair_mends_what_differs_alone(settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    repairs = Repairs(monkeypatch, [WRONG, OTHER], [BELOW], [EQUAL])
    assert repairing.run_repair(settings, [], Wanted(as_json=True)) == 0
    assert repairs.asked == ["mend v", "3 kept"]
    first, second, _ = json.loads(screen.getvalue())
    assert (first["holds"], first["mended"], first["rebuilt"]) == (True, {"written": 1, "deleted": 0, "left": 0}, False)
    assert (first["found"]["different"], second["found"], second["mended"]) == (1, None, None)


def test_what_no_key_mends_is_rebuilt(settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    repairs = Repairs(monkeypatch, [WRONG, OTHER], [BELOW], [WRONG], [EQUAL])
    assert repairing.run_repair(settings, [], Wanted()) == 0
    assert repairs.asked == ["mend v", "rebuild v", "3 kept"]
    assert "different id=1" in screen.getvalue()
    assert "3 of 3 proved equal" in screen.getvalue()


def test_what_cannot_be_repaired_is_not_tried(settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch):
    away = ViewProof("v", "delta", 1, 0.1, problem="the store is away")
    repairs = Repairs(monkeypatch, [away, OTHER])
    assert repairing.run_repair(settings, [], Wanted()) == 1
    assert repairs.asked == ["2 kept"]
    assert "the store is away" in screen.getvalue()
