"""Corruptions of each kind planted in each sink: prove finds and names every one; --repair mends these rows alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.soak.planting import FED, MIRROR, PLACES, VIEW, Delta, change_before, one_of_each
from tests.support.pipelines import Pipeline, Stores, pipeline_on
from tests.support.servers import PostgresServer

VIEWS = {
    VIEW: "-- sinks: delta, search, cache\nSELECT id, customer, amount, at FROM orders WHERE paid",
    FED: "-- sinks: kafka\nSELECT id, customer, amount FROM orders WHERE paid",
}
KEYS = range(2, 200, 2)
"""Even ones are paid; each has an odd neighbour, so that a transaction may change two rows."""


@pytest.fixture(scope="module")
def shop(postgres: PostgresServer, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline with a sink of each kind."""
    folder = tmp_path_factory.mktemp("planted")
    with pipeline_on(postgres, stores, folder, VIEWS, history=(MIRROR,), tables=(MIRROR,), exclude=()) as made:
        rows = "INSERT INTO public.orders SELECT g, 'customer ' || g, 0.25, g %% 2 = 0 FROM generate_series(1, %s) g"
        made.admin.execute(rows, [KEYS.stop])
        made.start()
        made.catch_up()
        yield made


def repaired(shop: Pipeline) -> list[dict[str, Any]]:
    ended = shop.run("prove", "--repair", "--values", "--json", "--keys", "100")
    assert ended.returncode == 0, ended.stderr + ended.stdout + shop.apply.text()[-3000:]
    proofs: list[dict[str, Any]] = json.loads(ended.stdout)
    assert {(each["view"], each["sink"]) for each in proofs} == set(PLACES)
    assert all(each["holds"] for each in proofs)
    return proofs


def test_every_planted_corruption_is_found_named_and_mended(shop: Pipeline) -> None:
    corruptions = one_of_each(KEYS)
    assert len({(each.view, each.sink, each.kind) for each in corruptions}) == 7 * 5 + 6
    before = change_before(shop.admin, corruptions)
    shop.catch_up()
    for each in corruptions:
        each.plant(shop.settings, before[each.key])
    proofs = repaired(shop)
    named = {
        (proof["view"], proof["sink"], example["difference"], example["key"]["id"]): example
        for proof in proofs
        for example in proof["found"]["examples"]
    }
    assert named.keys() == {each.named for each in corruptions}
    for each in corruptions:
        if each.kind == "wrong value":
            shown = named[each.named]
            assert (shown["source"], shown["sink"]) == ({"amount": "0.25"}, {"amount": "0.26"})
    planted = Counter((each.view, each.sink) for each in corruptions)
    for proof in proofs:
        count = planted[proof["view"], proof["sink"]]
        assert proof["mended"] == {"written": count - 1, "deleted": 1, "left": 0}, "all but the extra row are written"
        assert not proof["rebuilt"]
    # What was mended goes on like any other row.
    shop.admin.execute("UPDATE public.orders SET amount = amount + 1 WHERE id = ANY(%s)", [list(before)])
    shop.catch_up()
    assert all(proof["holds"] for proof in shop.prove())


def test_a_column_of_another_type_is_found_and_its_view_rebuilt(shop: Pipeline) -> None:
    Delta(shop.settings).retype("amount")
    proofs = repaired(shop)
    wrong = [(each["view"], each["sink"]) for each in proofs if each["found"] and not each["found"]["holds"]]
    assert wrong == [(VIEW, "delta")]
    assert {each["view"] for each in proofs if each["rebuilt"]} == {VIEW}
