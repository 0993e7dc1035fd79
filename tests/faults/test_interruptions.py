"""A running pipeline disturbed: rebuilds cut off, stores emptied, rows refused, processes doubled. Nothing is lost."""

from __future__ import annotations

import json
import shutil
import signal
from typing import Any

import pytest
import redis
import requests

import afterimage
from cdc.lsn import parse_lsn
from cdc.names import index_alias
from tests.support.capturing import await_release, read_topic
from tests.support.load import HOSTILE
from tests.support.pipelines import Pipeline
from tests.support.processes import Command, json_of
from tests.support.wait import wait_until


def change(pipeline: Pipeline, customer: str) -> None:
    pipeline.admin.execute("UPDATE public.orders SET customer = %s WHERE id = 10", [customer])


def _await_rebuild(pipeline: Pipeline, begun: int) -> None:
    wait_until(lambda: pipeline.apply.text().count("rebuild begins") > begun, what="the rebuild", timeout_s=60)


@pytest.mark.parametrize("victim", ["command", "apply"])
def test_a_rebuild_cut_off_harms_nothing(pipeline: Pipeline, victim: str) -> None:
    begun = pipeline.apply.text().count("rebuild begins")
    rebuild = Command(pipeline.config, ("rebuild", "paid_orders"), pipeline.config.parent / "rebuild.log").start()
    try:
        _await_rebuild(pipeline, begun)
        if victim == "apply":
            pipeline.apply.kill()
            pipeline.start_apply()
    finally:
        rebuild.kill()
    change(pipeline, victim)
    pipeline.catch_up()
    pipeline.require_equal()


def test_lost_stores_are_filled_again_while_nothing_happens(pipeline: Pipeline) -> None:
    settings = pipeline.settings
    # With capture away nothing moves, so that nobody writes and finds it out by that.
    pipeline.catch_up()
    assert pipeline.capture.stop() == 0
    replaced = pipeline.apply.text().count("view replaced")
    assert settings.cache.password is not None
    client = redis.Redis.from_url(settings.cache.url, password=settings.cache.password.get_secret_value())
    for key in client.scan_iter(f"{settings.pipeline}:paid_orders:*"):
        client.delete(key)
    alias = index_alias(settings.pipeline, "paid_orders")
    (index,) = requests.get(f"{settings.search.url}/_alias/{alias}", timeout=30).json()
    requests.delete(f"{settings.search.url}/{index}", timeout=30).raise_for_status()
    shutil.rmtree(f"{settings.delta_root}/paid_orders")
    wait_until(
        lambda: pipeline.apply.text().count("view replaced") >= replaced + 3, what="three views replaced", timeout_s=90
    )
    pipeline.capture.start()
    pipeline.catch_up()
    pipeline.require_equal()


def test_ctrl_c_ends_both_in_good_order_and_they_go_on_afterwards(pipeline: Pipeline) -> None:
    for command in (pipeline.apply, pipeline.capture):
        assert command.process is not None
        command.process.send_signal(signal.SIGINT)
        assert command.process.wait(60) == 0, command.text()[-2000:]
        assert "Traceback" not in command.text()
    change(pipeline, "while they were away")
    pipeline.start()
    pipeline.catch_up()
    pipeline.require_equal()


def test_prove_runs_a_batch_itself_where_no_apply_runs(pipeline: Pipeline) -> None:
    pipeline.apply.stop()
    change(pipeline, "nobody applies")
    try:
        pipeline.require_equal()
    finally:
        pipeline.start_apply()
    pipeline.catch_up()


def test_a_second_capture_is_refused(pipeline: Pipeline) -> None:
    capture = pipeline.run("capture", timeout_s=180)
    assert capture.returncode == 3
    assert "SLOT_IN_USE" in capture.stderr or "FENCED" in capture.stderr
    # The first may have been fenced before the second met its slot; it says so and ends, or goes on.
    wait_until(lambda: pipeline.capture.alive or pipeline.capture.start(), what="one capture")
    change(pipeline, "two captures")
    pipeline.catch_up()
    pipeline.require_equal()


def test_a_refused_row_is_dead_lettered_without_its_values(pipeline: Pipeline) -> None:
    view = pipeline.settings.views / "strict.sql"
    view.write_text(
        "-- sinks: search\n"
        '-- search.mapping: {"customer": {"type": "integer"}}\n'
        "SELECT id, customer FROM public.orders WHERE id IN (10, 11, 12) OR id > 5000"
    )
    try:
        change(pipeline, "not a number")
        pipeline.apply.stop()
        pipeline.start_apply()
        topic = f"{pipeline.settings.pipeline}._dead"
        letters = wait_until(lambda: read_topic(pipeline.settings, topic, 1), what="dead letters", timeout_s=120)
        first: dict[str, Any] = json.loads(letters[0].value())
        assert (first["view"], first["sink"]) == ("strict", "search")
        assert first["topic"].endswith(".public.orders")
        assert {"partition", "offset", "reason", "commit_lsn"} <= first.keys()
        assert "not a number" not in letters[0].value().decode()
        read_back = read_topic(pipeline.settings, first["topic"], 2)
        assert any((m.partition(), m.offset()) == (first["partition"], first["offset"]) for m in read_back)
        pipeline.catch_up()
        _refuse_too_many(pipeline)
    finally:
        view.unlink()
        pipeline.apply.stop()
        pipeline.start_apply()
    pipeline.catch_up()
    pipeline.require_equal()


def _refuse_too_many(pipeline: Pipeline) -> None:
    """One more than may be: the sink stops, with what to do."""
    limit = pipeline.settings.apply.dead_letters_max
    pipeline.admin.execute(
        "INSERT INTO public.orders SELECT 5000 + g, 'no number', 1 FROM generate_series(1, %s) g", [limit]
    )
    assert pipeline.apply.process is not None
    assert pipeline.apply.process.wait(120) == 3
    said = pipeline.apply.text()
    assert "DEAD_LETTERS" in said
    assert "apply.dead_letters_max" in said
    assert "no number" not in said


@pytest.mark.parametrize(
    "words", [("status",), ("prove",), ("query", "SELECT count(*) FROM orders"), ("explain", "items")]
)
def test_commands_answer_programs_as_well(pipeline: Pipeline, words: tuple[str, ...]) -> None:
    option = ("--format", "json") if words[0] == "query" else ("--json",)
    completed = pipeline.run(*words, *option)
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout)


def test_own_writes_are_read_by_their_token(pipeline: Pipeline) -> None:
    """The token is taken after the commit, as docs/READING.md says; read from the command line and from Python."""
    shop = afterimage.open(pipeline.config)
    for turn in range(3):
        name = f"own write {turn}"
        change(pipeline, name)
        pipeline.admin.execute("UPDATE public.orders SET paid = true WHERE id = 10")
        token = pipeline.token()
        cut = shop.at(wait=token, timeout_s=60)
        assert parse_lsn(cut.lsn) >= parse_lsn(token)
        assert cut.table("paid_orders", ["customer"], "id = 10").arrow().to_pylist() == [{"customer": name}]
        joined = (
            "SELECT o.customer AS mirror, p.customer AS view FROM orders o JOIN paid_orders p ON p.id = o.id "
            "WHERE o.id = 10"
        )
        assert cut.query(joined).polars().rows() == [(name, name)]
        answer = pipeline.run("query", joined, "--wait", token, "--timeout", "60", "--format", "json")
        assert json.loads(answer.stdout) == [{"mirror": name, "view": name}], answer.stderr


def test_views_go_on_after_a_lost_slot(pipeline: Pipeline) -> None:
    pipeline.capture.stop()
    await_release(pipeline.admin, pipeline.settings.slot)
    pipeline.admin.execute("SELECT pg_drop_replication_slot(%s)", [pipeline.settings.slot])
    pipeline.admin.execute("DELETE FROM public.orders WHERE id % 7 = 0")
    pipeline.admin.execute("UPDATE public.orders SET paid = NOT paid, customer = 'x' || customer WHERE id % 5 = 0")
    pipeline.admin.execute("UPDATE public.order_items SET order_id = order_id + 5000 WHERE line = 2")
    pipeline.admin.execute("TRUNCATE public.events")
    pipeline.admin.execute(f'DELETE FROM {HOSTILE} WHERE "select" = 1')
    assert pipeline.capture.start().process.wait(60) == 3
    assert "SLOT_MISSING" in pipeline.capture.text()

    recovered = pipeline.run("recover", "--json")

    assert recovered.returncode == 0, recovered.stderr
    found = json_of(recovered)
    assert found["changed"] > 0 < found["gone"]
    waited = pipeline.run("wait", found["lsn"], "--timeout", "120")
    assert waited.returncode == 0, waited.stderr
    pipeline.capture.start()
    pipeline.admin.execute("UPDATE public.orders SET amount = 7 WHERE id < 20")
    pipeline.catch_up()
    proofs = pipeline.require_equal()
    assert all(parse_lsn(proof["lsn"]) > parse_lsn(found["lsn"]) for proof in proofs)
