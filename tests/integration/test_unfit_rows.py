"""Rows with values that no Delta type holds, as dead letters: on a real capture, apply and stores, against Postgres."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection, sql
from pyspark.sql import SparkSession

from cdc.check.fix import fix
from cdc.cli.standing import Observer
from cdc.errors import OperatorError, TransientError
from cdc.postgres import connect
from cdc.settings import Apply, Cache, Delta, Kafka, Settings
from cdc.stack.server import Endpoint
from jobs.apply import ApplyRun
from jobs.control import ControlClient, ControlServer, Kind, State
from jobs.pipeline import load_pipeline
from jobs.prove import LocalHolder, ViewProof, prove
from jobs.query import run_query
from sinks.delta import DeltaSink
from sinks.protocol import Unfit
from sinks.registry import make_sink
from tests.support.capturing import RunningCapture, insert_lsn, read_topic, running_capture
from tests.support.postgres_version import MAJOR
from tests.support.servers import Database
from tests.support.source import prepared_source
from tests.support.type_corpus import corpus
from tests.support.wait import wait_until

CASES = [case for case in corpus(MAJOR) if case.unfit]
UNFIT = [(at, text) for at, case in enumerate(CASES) for text in case.unfit]
"""Columns by number, with values that their Delta types cannot hold."""
DAY = next(at for at, case in enumerate(CASES) if case.type == "date")
FIRST = 100
"""The id of the row that gets the first of these values; the next one gets the second, and so on."""
COLUMNS = ", ".join(f"v{at} {case.type}" for at, case in enumerate(CASES))
DDL = f"""
CREATE DOMAIN public.day AS date;
CREATE TABLE public.facts (id int PRIMARY KEY, name text, {COLUMNS});
CREATE TABLE public.moments (at timestamp PRIMARY KEY, note text);
"""
DAYS = f"-- sinks: cache\nSELECT id, v{DAY} AS day FROM public.facts"
FURTHER = {
    "names": "-- sinks: delta\nSELECT id, name || '!' AS name FROM public.facts WHERE id > 0",
    "lately": f"-- sinks: delta\nSELECT id FROM public.facts WHERE v{DAY} > '2000-01-01'",
}
BY_DAY = {FIRST + number for number, (at, _) in enumerate(UNFIT) if at == DAY}
ALL = {FIRST + number for number in range(len(UNFIT))}


@dataclass
class Bed:
    """A pipeline whose apply is run by hand."""

    settings: Settings
    admin: Connection[Any]
    capture: RunningCapture
    spark: SparkSession
    control: ControlServer

    def apply(self, settings: Settings | None = None) -> None:
        """Until everything that is committed is in the views."""
        self.capture.wait_for(insert_lsn(self.admin))
        never = threading.Event().wait
        ApplyRun(settings or self.settings, self.spark, self.control, never, once=True).run()

    def prove(self) -> dict[tuple[str, str], ViewProof]:
        def run_to(lsn: int) -> int:
            run = ApplyRun(self.settings, self.spark, self.control, threading.Event().wait, until_lsn=lsn)
            run.run()
            return run.lsn

        specs = list(load_pipeline(self.settings).specs.values())
        holder = LocalHolder(run_to)
        proofs = prove(self.settings, specs, lambda spec, each: make_sink(each, spec, self.settings), holder)
        return {(proof.view, proof.sink): proof for proof in proofs}

    def lacking(self) -> dict[tuple[str, str], tuple[Unfit, ...]]:
        """As `status` tells it."""
        observer = Observer(self.settings)
        try:
            report = observer.look()
        finally:
            observer.close()
        assert report.problems == ()
        return {(view.view, view.sink): view.unfit for view in report.views if view.unfit}

    def letters(self) -> list[dict[str, Any]]:
        messages = read_topic(self.settings, f"{self.settings.pipeline}._dead", 1)
        return [json.loads(message.value()) for message in messages]

    def ids(self, view: str) -> set[int]:
        sink = next(sink for target, sink in load_pipeline(self.settings).sinks.items() if target.view == view)
        rows = [row[0] for row in sink.rows()]
        assert len(rows) == len(set(rows))
        return set(rows)

    def insert(self) -> None:
        """Good rows, also those that are to get an unfit value."""
        self.admin.execute(
            "INSERT INTO public.facts (id, name) SELECT g, 'n' || g FROM generate_series(0, %s) g",
            [FIRST + len(UNFIT) - 1],
        )
        self.admin.execute(f"UPDATE public.facts SET v{DAY} = '2026-11-18' WHERE id % 2 = 0".encode())

    def spoil(self) -> None:
        """Each unfit value into a row of its own."""
        for number, (at, text) in enumerate(UNFIT):
            self.put(FIRST + number, at, text)

    def put(self, key: int, at: int, text: str | None) -> None:
        update = sql.SQL("UPDATE public.facts SET {} = {} WHERE id = {}")
        self.admin.execute(update.format(sql.Identifier(f"v{at}"), sql.Literal(text), sql.Literal(key)))

    def changed(self, **apply: Any) -> Settings:
        return self.settings.model_copy(update={"apply": self.settings.apply.model_copy(update=apply)})


@pytest.fixture
def bed(
    pg_database: Database, pipeline_name: str, tmp_path: Path, kafka: Endpoint, valkey: Endpoint, spark: SparkSession
) -> Iterator[Bed]:
    tables = ("public.facts", "public.moments")
    with prepared_source(pg_database, pipeline_name, tmp_path, ddl=DDL, tables=tables, exclude=()) as source:
        source.views.mkdir(parents=True)
        (source.views / "days.sql").write_text(DAYS)
        settings = source.model_copy(
            update={
                "kafka": Kafka(bootstrap=kafka.address),
                "cache": Cache(url=f"redis://{valkey.address}/0", password=valkey.password),
                "delta": Delta(path=str(tmp_path / "delta")),
                "apply": Apply(unfit_values="dead_letter", interval_s=0),
            }
        )
        fix(settings)
        assert settings.source.admin is not None
        with (
            connect(settings.source, settings.source.admin) as admin,
            running_capture(settings) as capture,
        ):
            capture.wait_for(insert_lsn(admin))
            with ControlServer(settings) as control:
                control.acquire(60)
                yield Bed(settings, admin, capture, spark, control)


LACKING = {("public.facts", "delta"): len(UNFIT), ("days", "cache"): len(BY_DAY)}


def test_every_such_row_is_absent_and_told_until_it_is_corrected(bed: Bed) -> None:
    for name, text in FURTHER.items():
        (bed.settings.views / f"{name}.sql").write_text(text)
    bed.insert()
    bed.apply()
    bed.spoil()
    bed.apply()

    assert bed.ids("public.facts") == set(range(FIRST))
    assert bed.ids("days") == set(range(FIRST)) | ALL - BY_DAY
    assert bed.ids("names") == (set(range(FIRST)) | ALL) - {0}
    lacking = bed.lacking()
    assert {target: len(rows) for target, rows in lacking.items()} == {**LACKING, ("lately", "delta"): len(BY_DAY)}
    require_letters(bed, lacking)
    require_told_by_prove(bed)
    answer = run_query(bed.settings, "SELECT count(*) AS n FROM facts")
    assert answer.lacking == {"public.facts": len(UNFIT)}

    # Gone, changed to another such value, corrected.
    bed.admin.execute("DELETE FROM public.facts WHERE id = %s", [FIRST])
    bed.put(FIRST + 1, UNFIT[1][0], UNFIT[1][1])
    for number, (at, _) in enumerate(UNFIT[2:], 2):
        bed.put(FIRST + number, at, None)
    bed.apply()
    bed.put(FIRST + 1, UNFIT[1][0], None)
    bed.apply()
    assert bed.ids("public.facts") == (set(range(FIRST)) | ALL) - {FIRST}
    assert bed.lacking() == {}
    assert all(proof.holds for proof in bed.prove().values())


def require_letters(bed: Bed, lacking: dict[tuple[str, str], tuple[Unfit, ...]]) -> None:
    """One for each row that a target lacks, which leads to its record and does not quote it."""
    letters = bed.letters()
    written = {
        (each["view"], each["sink"], f"{each['topic']}@{each['partition']}:{each['offset']}", *each["columns"])
        for each in letters
    }
    assert written == {(*target, row.at, *row.columns) for target, rows in lacking.items() for row in rows}
    assert len(letters) == len(written)
    assert not any(text in json.dumps(each) for each in letters for _, text in UNFIT)
    topic = f"{bed.settings.pipeline}.public.facts"
    records = {(m.partition(), m.offset()): m for m in read_topic(bed.settings, topic, bed.settings.kafka.partitions)}
    found = {json.loads(records[each["partition"], each["offset"]].key())["id"] for each in letters}
    assert found == ALL


def require_told_by_prove(bed: Bed) -> None:
    proofs = bed.prove()
    expected = {**LACKING, ("lately", "delta"): len(BY_DAY)}
    for target, proof in proofs.items():
        assert len(proof.unfit) == expected.get(target, 0)
        assert (proof.extra, proof.different, proof.duplicate, proof.problem) == (0, 0, 0, None)
    missing = {target: proof.missing for target, proof in proofs.items() if not proof.holds}
    # A date BC is not lately: there the view equals its source without the row.
    assert missing.pop(("lately", "delta")) == sum(UNFIT[key - FIRST][1] == "infinity" for key in BY_DAY)
    assert missing == {target: count for target, count in expected.items() if target[0] != "lately"}


def test_a_rebuild_lacks_the_same_rows_and_writes_no_letter_again(bed: Bed) -> None:
    bed.insert()
    bed.apply()
    bed.spoil()
    bed.apply()
    lacking, letters = bed.lacking(), bed.letters()
    facts = bed.ids("public.facts")

    sink = DeltaSink(bed.settings.delta, bed.settings.pipeline, load_pipeline(bed.settings).specs["public.facts"])
    version = sink.version()[0]
    rebuild(bed, "public.facts")
    rebuild(bed, "days")
    assert sink.version()[0] > version
    assert bed.lacking() == lacking
    assert bed.letters() == letters
    assert bed.ids("public.facts") == facts


def rebuild(bed: Bed, view: str) -> None:
    """As the command asks for it."""
    with ControlClient(bed.settings) as client, client.keep(Kind.REBUILD, view=view) as kept:
        wait_until(lambda: bed.control.poll() or bed.control.requests(), what="apply to hear of it")
        bed.apply()
        client.await_answer(kept.id, {State.DONE}, 30)


@pytest.mark.parametrize("moment", ["before the commit", "after it"])
def test_a_batch_cut_off_is_repeated_with_the_same_outcome(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    bed.insert()
    bed.apply()
    bed.spoil()
    cut: list[str] = []
    write = DeltaSink.write

    def cut_off(sink: DeltaSink, *arguments: Any) -> Any:
        if moment == "after it" or cut:
            written = write(sink, *arguments)
        if not cut:
            cut.append(moment)
            raise TransientError("cut off")
        return written

    monkeypatch.setattr(DeltaSink, "write", cut_off)
    bed.apply()

    assert cut == [moment]
    lacking = bed.lacking()
    assert {target: len(rows) for target, rows in lacking.items()} == LACKING
    assert bed.ids("public.facts") == set(range(FIRST))
    written = {(each["view"], each["sink"], each["partition"], each["offset"]) for each in bed.letters()}
    assert len(written) == sum(map(len, lacking.values()))


def test_an_unfit_key_was_never_in_the_view(bed: Bed) -> None:
    bed.admin.execute("INSERT INTO public.moments VALUES ('2026-11-18', 'fits'), ('infinity', 'does not')")
    bed.apply()
    bed.admin.execute("UPDATE public.moments SET note = 'still not' WHERE at = 'infinity'")
    bed.apply()
    [row] = bed.lacking()["public.moments", "delta"]
    assert row.columns == ("at",)
    proof = bed.prove()["public.moments", "delta"]
    assert (proof.holds, proof.missing, proof.rows) == (False, 1, 2)

    bed.admin.execute("DELETE FROM public.moments WHERE at = 'infinity'")
    bed.apply()
    assert bed.lacking() == {}
    assert bed.prove()["public.moments", "delta"].holds
    assert len([each for each in bed.letters() if each["view"] == "public.moments"]) == 2


def test_more_than_may_be_stop_apply_before_the_batch_and_a_correction_frees_it(bed: Bed) -> None:
    bed.insert()
    bed.apply()
    limit = len(UNFIT) - 1
    strict = bed.changed(dead_letters_max=limit)
    bed.spoil()
    with pytest.raises(OperatorError) as caught:
        bed.apply(strict)
    assert caught.value.code == "DEAD_LETTERS"
    assert "infinity" not in caught.value.message
    assert FIRST in bed.ids("public.facts")
    assert bed.lacking() == {}

    bed.put(FIRST, UNFIT[0][0], None)
    bed.apply(strict)
    assert len(bed.lacking()["public.facts", "delta"]) == limit
    # What was lacking before counts too.
    bed.put(1, *UNFIT[0])
    with pytest.raises(OperatorError) as caught:
        bed.apply(strict)
    assert caught.value.code == "DEAD_LETTERS"


def test_by_default_such_a_value_stops_apply_and_rows_that_are_lacking_heal_all_the_same(bed: Bed) -> None:
    bed.insert()
    bed.put(FIRST, *UNFIT[0])
    bed.apply()
    default = bed.changed(unfit_values=Apply().unfit_values)
    bed.put(FIRST, UNFIT[0][0], None)
    bed.apply(default)
    assert bed.lacking() == {}
    assert FIRST in bed.ids("public.facts")

    bed.put(FIRST, *UNFIT[0])
    with pytest.raises(OperatorError) as caught:
        bed.apply(default)
    assert caught.value.code == "VALUE_UNFIT"
    assert "unfit_values" in (caught.value.hint or "")
    assert FIRST in bed.ids("public.facts")
