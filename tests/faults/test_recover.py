"""A slot lost under a whole pipeline: after `recover` every view in every sink equals the source again."""

from __future__ import annotations

from cdc.lsn import parse_lsn
from tests.support.load import HOSTILE
from tests.support.pipelines import Pipeline
from tests.support.processes import json_of


def test_views_go_on_after_a_lost_slot(pipeline: Pipeline) -> None:
    pipeline.capture.stop()
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
