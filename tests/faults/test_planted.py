"""Corruptions planted in every sink: prove finds each of them and names the key; --repair mends these keys alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import redis
import requests
from deltalake import DeltaTable, write_deltalake

from cdc.names import index_alias
from tests.support.pipelines import Pipeline

Found = dict[str, Any]


def found(pipeline: Pipeline, view: str, sink: str) -> Found:
    return next(proof for proof in pipeline.prove(view) if proof["sink"] == sink)


def examples(proof: Found) -> set[tuple[str, str]]:
    return {(example["difference"], str(example["key"]["id"])) for example in proof["examples"]}


class Search:
    """The index, by the back door."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._at = f"{pipeline.settings.search.url}/{index_alias(pipeline.settings.pipeline, 'paid_orders')}"

    def wrong_number(self) -> None:
        self._call("POST", "_update/2", {"doc": {"amount": "0.26"}})

    def lost_row(self) -> None:
        self._call("DELETE", "_doc/4")

    def extra_row(self) -> None:
        source = self._call("GET", "_doc/6")["_source"]
        self._call("PUT", "_doc/70001", {**source, "id": 70001})

    def stale_row(self) -> None:
        self._call("POST", "_update/8", {"doc": {"customer": "as it was"}})

    def wrong_type(self) -> None:
        self._call("POST", "_update/10", {"doc": {"amount": 1.25}})

    def wrong_null(self) -> None:
        self._call("POST", "_update/12", {"doc": {"customer": None}})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = requests.request(method, f"{self._at}/{path}?refresh=true", json=body, timeout=30)
        answer.raise_for_status()
        return answer.json()


class Cache:
    """The cache, by the back door."""

    def __init__(self, pipeline: Pipeline) -> None:
        cache = pipeline.settings.cache
        assert cache.password is not None
        self._client = redis.Redis.from_url(
            cache.url, password=cache.password.get_secret_value(), decode_responses=True
        )
        prefix = f"{pipeline.settings.pipeline}:paid_orders"
        generation = str(self._client.get(f"{prefix}:generation"))
        self._prefix = f"{prefix}:{generation}"

    def wrong_number(self) -> None:
        self._change(2, amount="0.26")

    def lost_row(self) -> None:
        assert self._client.delete(f"{self._prefix}:4") == 1

    def extra_row(self) -> None:
        entry = json.loads(str(self._client.get(f"{self._prefix}:6")))
        self._client.set(f"{self._prefix}:70001", json.dumps({**entry, "id": 70001}))

    def stale_row(self) -> None:
        self._change(8, customer="as it was")

    def wrong_type(self) -> None:
        self._change(10, amount=1.25)

    def wrong_null(self) -> None:
        self._change(12, customer=None)

    def _change(self, key: int, **values: Any) -> None:
        entry = json.loads(str(self._client.get(f"{self._prefix}:{key}")))
        self._client.set(f"{self._prefix}:{key}", json.dumps({**entry, **values}))


class Delta:
    """The table's files, by the back door: a commit that says nothing of a position."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._table = DeltaTable(f"{pipeline.settings.delta_root}/paid_orders")

    def wrong_number(self) -> None:
        self._table.update(predicate="id = 2", updates={"amount": "0.26"})

    def lost_row(self) -> None:
        self._table.delete("id = 4")

    def extra_row(self) -> None:
        row = self._table.to_pandas().query("id == 6").assign(id=70001)
        write_deltalake(self._table, pa.Table.from_pandas(row, preserve_index=False), mode="append")

    def stale_row(self) -> None:
        self._table.update(predicate="id = 8", updates={"customer": "'as it was'"})

    def wrong_type(self) -> None:
        """A Delta column has one type for all rows; the same row twice is what only this sink can have."""
        row = self._table.to_pandas().query("id == 10")
        write_deltalake(self._table, pa.Table.from_pandas(row, preserve_index=False), mode="append")

    def wrong_null(self) -> None:
        self._table.update(predicate="id = 12", updates={"customer": "NULL"})


BACK_DOORS: dict[str, Callable[[Pipeline], Any]] = {"delta": Delta, "search": Search, "cache": Cache}


@pytest.mark.parametrize("sink", list(BACK_DOORS))
def test_every_planted_corruption_is_found_named_and_mended(pipeline: Pipeline, sink: str) -> None:
    assert found(pipeline, "paid_orders", sink)["holds"]
    back_door = BACK_DOORS[sink](pipeline)
    for plant in ("wrong_number", "lost_row", "extra_row", "stale_row", "wrong_type", "wrong_null"):
        getattr(back_door, plant)()
    proofs = {each["sink"]: each for each in pipeline.prove("paid_orders")}
    assert {name for name, each in proofs.items() if not each["holds"]} == {sink}
    proof = proofs[sink]
    tenth = "duplicate" if sink == "delta" else "different"
    different = {("different", "2"), ("different", "8"), (tenth, "10"), ("different", "12")}
    assert examples(proof) == {("missing", "4"), ("extra", "70001"), *different}
    assert proof["missing"] + proof["extra"] + proof["different"] + proof["duplicate"] == 6
    repaired = pipeline.run("prove", "--repair", "--values", "--json", "paid_orders")
    assert repaired.returncode == 0, repaired.stderr + repaired.stdout
    for each in json.loads(repaired.stdout):
        assert each["holds"]
        assert not each["rebuilt"]
        if each["sink"] == sink:
            assert each["mended"] == {"written": 5, "deleted": 1, "left": 0}
            assert examples(each["found"]) == examples(proof)
            [wrong] = [example for example in each["found"]["examples"] if example["key"]["id"] == "2"]
            assert (wrong["source"], wrong["sink"]) == ({"amount": "0.25"}, {"amount": "0.26"})
