"""What people and programs are told of proofs: where views were compared, what was mended, when that was done last."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cdc.cli import proving, repairing, status
from cdc.cli.proving import Wanted
from cdc.cli.report import Report, ViewStanding
from cdc.errors import CdcError, OperatorError, TransientError
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
        self.refused: dict[str, CdcError] = {}
        self.specs = {"v": Spec("v", "t"), "w": Spec("w", "t"), "t": Spec("t")}
        asked = lambda names: [self.specs[name] for name in names or ("v", "w")]  # noqa: E731
        monkeypatch.setattr(repairing, "live_named_views", lambda _, names, *__: asked(names))
        monkeypatch.setattr(repairing, "apply_owner", lambda _: "somebody")
        monkeypatch.setattr(
            repairing, "publish_proofs", lambda _, proofs: self.asked.append(f"{len(list(proofs))} kept")
        )
        monkeypatch.setattr(repairing, "prove_views", self._prove)
        self.to_come: list[str] = []
        monkeypatch.setattr(repairing, "views_to_come", lambda *_: self.to_come)
        monkeypatch.setattr(repairing, "rebuild_view", lambda _, view: self._ask("rebuild", view))
        monkeypatch.setattr(repairing, "_mended_by_apply", lambda _, view, __: self._ask("mend", view))

    def _prove(self, settings: Settings, specs: Sequence[Spec], *_: Any) -> list[ViewProof]:
        found = self._proofs.pop(0)
        assert {proof.view for proof in found} == {spec.name for spec in specs}, "proofs of what was asked for"
        return found

    def _ask(self, what: str, view: str) -> dict[str, Mended]:
        self.asked.append(f"{what} {view}")
        if f"{what} {view}" in self.refused:
            raise self.refused[f"{what} {view}"]
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
    repairs = Repairs(monkeypatch, [WRONG], [below], [replace(EQUAL, view="t"), EQUAL])
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


def test_what_a_view_reads_is_rebuilt_before_it(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    view, table = replace(WRONG, view="a"), replace(WRONG, view="t")
    now = [replace(each, different=0, examples=()) for each in (view, table)]
    repairs = Repairs(monkeypatch, [view], [table], [table, view], now)
    repairs.specs["a"] = Spec("a", "t")
    assert repairing.run_repair(settings, ["a"], Wanted(as_json=True)) == 0
    assert repairs.asked == ["mend t", "mend a", "rebuild t", "rebuild a", "2 kept"]
    told = json.loads(screen.getvalue())
    assert [(proof["view"], proof["holds"], proof["rebuilt"]) for proof in told] == [
        ("a", True, True),
        ("t", True, True),
    ]


def test_a_rebuild_that_fails_is_told_with_all_the_rest(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    repairs = Repairs(monkeypatch, [WRONG, OTHER], [BELOW], [WRONG], [WRONG])
    repairs.refused["rebuild v"] = OperatorError("its table has stopped", "see `afterimage status`")
    assert repairing.run_repair(settings, [], Wanted(as_json=True)) == 1
    assert repairs.asked == ["mend v", "rebuild v", "3 kept"]
    first, second, third = json.loads(screen.getvalue())
    assert (first["holds"], second["holds"], third["holds"]) == (False, True, True)
    assert first["problem"] == "it was not rebuilt: its table has stopped; see `afterimage status`"
    assert (first["different"], first["rebuilt"]) == (1, False)


def test_a_rebuild_whose_end_nobody_heard_may_have_been_one(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    repairs = Repairs(monkeypatch, [WRONG], [BELOW], [WRONG], [EQUAL])
    repairs.refused["rebuild v"] = TransientError("apply has not answered")
    assert repairing.run_repair(settings, ["v"], Wanted()) == 0
    assert "2 of 2 proved equal" in screen.getvalue()
    assert "has not answered" not in screen.getvalue()


def test_a_view_that_apply_does_not_mend_keeps_it_from_no_other(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    other = replace(WRONG, view="w")
    repairs = Repairs(monkeypatch, [WRONG, other], [BELOW], [WRONG, OTHER])
    repairs.refused["mend v"] = OperatorError("apply failed the request")
    assert repairing.run_repair(settings, [], Wanted()) == 1
    assert repairs.asked == ["mend v", "mend w", "3 kept"]
    assert "v in delta: it was not mended: apply failed the request" in screen.getvalue()
    assert "2 of 3 proved equal" in screen.getvalue()


def test_views_that_are_not_loaded_yet_are_named_and_fail_nothing(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    live = [replace(EQUAL, view="v")]
    monkeypatch.setattr(proving, "live_named_views", lambda *_: [Spec("v", "t")])
    monkeypatch.setattr(proving, "declared_otherwise", lambda *_: [])
    monkeypatch.setattr(proving, "publish_proofs", lambda *_: None)
    monkeypatch.setattr(proving, "prove_views", lambda *_: live)
    monkeypatch.setattr(proving, "views_to_come", lambda _, known: sorted({"v", "new", "new__body"} - set(known)))
    assert proving.run_prove(settings, [], Wanted()) == 0
    assert screen.getvalue().count("not proved yet: ") == 2
    assert "not proved yet: new__body" in screen.getvalue()
    assert "1 of 1 proved equal" in screen.getvalue()
    screen.truncate(screen.seek(0))
    assert proving.run_prove(settings, ["v"], Wanted(as_json=True)) == 0
    assert [proof["view"] for proof in json.loads(screen.getvalue())] == ["v"]
    screen.truncate(screen.seek(0))
    assert proving.run_prove(settings, [], Wanted(as_json=True)) == 0
    told = json.loads(screen.getvalue())
    assert [(each["view"], each["holds"]) for each in told] == [("v", True), ("new", None), ("new__body", None)]
    assert told[1] == {"view": "new", "sink": None, "holds": None, "problem": "not loaded yet"}

    screen.truncate(screen.seek(0))
    repairs = Repairs(monkeypatch, [EQUAL, OTHER])
    repairs.to_come = ["new"]
    assert repairing.run_repair(settings, [], Wanted()) == 0
    assert "not proved yet: new" in screen.getvalue()


def test_what_was_found_has_no_remedy_once_it_holds(
    settings: Settings, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
):
    Repairs(monkeypatch, [WRONG], [BELOW], [EQUAL])
    assert repairing.run_repair(settings, ["v"], Wanted()) == 0
    assert screen.getvalue().count("different id=1") == 1
    assert screen.getvalue().count("mended, 1 keys written") == 1
    assert "remedy" not in screen.getvalue()
    proving.show([WRONG])
    assert "remedy afterimage prove --repair v" in screen.getvalue()
