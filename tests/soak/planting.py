"""Corruptions of every kind in every sink, planted by the back door: what each must be found as."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import redis
import requests
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

from cdc.kafka_clients import consumer, producer
from cdc.names import index_alias, view_topic
from cdc.settings import Settings

VIEW, MIRROR, FED = "paid_orders", "public.orders", "fed"
EXTRA = 9_000_000
COMMIT_ATTEMPTS = 50


def _rows(table: DeltaTable, condition: str) -> pa.Table:
    """By the reader that understands marks."""
    found = QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {condition}").read_all()
    rows = pa.table(found)
    plain: dict[Any, Any] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return rows.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in rows.schema]))


class Delta:
    """A table's files; a commit that says nothing of a position, in between those of apply."""

    def __init__(self, settings: Settings, view: str = VIEW) -> None:
        self._path = f"{settings.delta_root}/{view}"

    def change(self, key: int, column: str, value: str | None) -> None:
        literal = "NULL" if value is None else "'" + value.replace("'", "''") + "'"
        self._commit(lambda table: table.update(predicate=f"id = {key}", updates={column: literal}))

    def lose(self, key: int) -> None:
        self._commit(lambda table: table.delete(f"id = {key}"))

    def copy(self, key: int, as_key: int) -> None:
        def append(table: DeltaTable) -> None:
            row = _rows(table, f"id = {key}")
            copied = row.set_column(row.column_names.index("id"), "id", pa.array([as_key], pa.int64()))
            write_deltalake(table, copied, mode="append")

        self._commit(append)

    def retype(self, column: str) -> None:
        """All rows as they are, but for the type of one column."""

        def overwrite(table: DeltaTable) -> None:
            rows = _rows(table, "TRUE")
            place = rows.column_names.index(column)
            texts = rows.set_column(place, column, rows.column(column).cast(pa.string()))
            write_deltalake(table, texts, mode="overwrite", schema_mode="overwrite")

        self._commit(overwrite)

    def _commit(self, change: Callable[[DeltaTable], Any]) -> None:
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                change(DeltaTable(self._path))
                return
            except CommitFailedError:
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise


class Search:
    """An index."""

    def __init__(self, settings: Settings, view: str = VIEW) -> None:
        self._at = f"{settings.search.url}/{index_alias(settings.pipeline, view)}"

    def change(self, key: int, column: str, value: Any) -> None:
        self._call("POST", f"_update/{key}", {"doc": {column: value}})

    def lose(self, key: int) -> None:
        self._call("DELETE", f"_doc/{key}")

    def copy(self, key: int, as_key: int) -> None:
        source = self._call("GET", f"_doc/{key}")["_source"]
        self._call("PUT", f"_doc/{as_key}", {**source, "id": as_key})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = requests.request(method, f"{self._at}/{path}", json=body, timeout=30)
        answer.raise_for_status()
        return answer.json()


class Cache:
    """A cache's entries."""

    def __init__(self, settings: Settings, view: str = VIEW) -> None:
        cache = settings.cache
        assert cache.password is not None
        self._client = redis.Redis.from_url(
            cache.url, password=cache.password.get_secret_value(), decode_responses=True
        )
        self._prefix = f"{settings.pipeline}:{view}"

    def change(self, key: int, column: str, value: Any) -> None:
        self._client.set(self._name(key), json.dumps({**self._entry(key), column: value}))

    def lose(self, key: int) -> None:
        assert self._client.delete(self._name(key)) == 1

    def copy(self, key: int, as_key: int) -> None:
        self._client.set(self._name(as_key), json.dumps({**self._entry(key), "id": as_key}))

    def _entry(self, key: int) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads(str(self._client.get(self._name(key))))
        return entry

    def _name(self, key: int) -> str:
        generation = str(self._client.get(f"{self._prefix}:generation"))
        return f"{self._prefix}:{generation}:{key}"


class Feed:
    """A view's topic; another writer's records, behind the newest position."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = view_topic(settings.pipeline, FED)

    def change(self, key: int, column: str, value: Any) -> None:
        record = self._record(key)
        self._put(key, {**record, "after": {**record["after"], column: value}})

    def lose(self, key: int) -> None:
        self._put(key, None)

    def copy(self, key: int, as_key: int) -> None:
        record = self._record(key)
        self._put(as_key, {**record, "after": {**record["after"], "id": as_key}})

    def _record(self, key: int) -> dict[str, Any]:
        found: dict[str, Any] | None = None
        with closing(consumer(self._settings.kafka, "planting")) as client:
            client.assign([TopicPartition(self._name, 0, OFFSET_BEGINNING)])
            while (message := client.poll(10)) is not None and message.error() is None:
                if message.key() == _feed_key(key):
                    found = json.loads(message.value() or b"null")
        assert found is not None
        return found

    def _put(self, key: int, record: dict[str, Any] | None) -> None:
        writer = producer(self._settings.kafka, "planting")
        writer.produce(self._name, None if record is None else json.dumps(record), _feed_key(key), partition=0)
        assert writer.flush(30) == 0


def _feed_key(key: int) -> bytes:
    return b'{"id":%d}' % key


LOG = (MIRROR, "history")
"""Only where the pipeline keeps one; each key has so few changes that all of them may be planted into at once."""
PLACES: dict[tuple[str, str], Callable[[Settings], Any]] = {
    (VIEW, "delta"): Delta,
    (VIEW, "search"): Search,
    (VIEW, "cache"): Cache,
    (MIRROR, "delta"): lambda settings: Delta(settings, MIRROR),
    (FED, "kafka"): Feed,
    LOG: lambda settings: Delta(settings, f"_history/{MIRROR}"),
}
FOUND_AS = {
    "wrong value": "different",
    "wrong NULL": "different",
    "stale row": "different",
    "half a transaction": "different",
    "wrong type": "different",
    "lost row": "missing",
    "extra row": "extra",
    "repeated row": "duplicate",
}
CANNOT_HAVE = {"delta": {"wrong type"}, "history": {"wrong type", "repeated row"}}
"""A table's column has one type, and only a table can have a row twice; a log that says a change twice says it once."""
FROM_BEFORE = ("stale row", "half a transaction")
"""What the source has changed before, and the sink then takes back."""


@dataclass(frozen=True)
class Corruption:
    """One of them; `key` is the row's, and of an extra row that of the row that it copies."""

    view: str
    sink: str
    kind: str
    key: int

    @property
    def named(self) -> tuple[str, str, str, str]:
        """As a proof names it."""
        key = EXTRA + self.key if self.kind == "extra row" else self.key
        return self.view, self.sink, FOUND_AS[self.kind], str(key)

    def plant(self, settings: Settings, before: str) -> None:
        """Into the sink; `before` is what the customer was called before the last change."""
        place = PLACES[self.view, self.sink](settings)
        match self.kind:
            case "wrong value":
                place.change(self.key, "amount", "0.26")
            case "wrong NULL":
                place.change(self.key, "customer", None)
            case "wrong type":
                place.change(self.key, "amount", 0.25)
            case "lost row":
                place.lose(self.key)
            case "extra row":
                place.copy(self.key, EXTRA + self.key)
            case "repeated row":
                place.copy(self.key, self.key)
            case _:
                place.change(self.key, "customer", before)


def kinds(sink: str) -> list[str]:
    """Those that the place can have."""
    return [kind for kind in FOUND_AS if kind not in CANNOT_HAVE.get(sink, {"repeated row"})]


def chosen(random: Random, keys: list[int], count: int) -> list[Corruption]:
    """Of distinct rows, anywhere but in a history."""
    places = [place for place in PLACES if place != LOG]
    found = []
    for key in random.sample(keys, count):
        view, sink = random.choice(places)
        found.append(Corruption(view, sink, random.choice(kinds(sink)), key))
    return found


def one_of_each(keys: Iterable[int]) -> list[Corruption]:
    """Each kind in each place that can have it, of distinct rows."""
    wanted = [(view, sink, kind) for view, sink in PLACES for kind in kinds(sink)]
    return [Corruption(*each, key) for each, key in zip(wanted, keys, strict=False)]


def change_before(admin: psycopg.Connection[Any], corruptions: Iterable[Corruption]) -> dict[int, str]:
    """In one transaction, what some of the sinks are to take back; what the customers were called before."""
    before = {}
    with admin.transaction():
        for each in corruptions:
            found = admin.execute("SELECT customer FROM public.orders WHERE id = %s", (each.key,)).fetchone()
            assert found is not None
            before[each.key] = str(found[0])
            if each.kind in FROM_BEFORE:
                pair = [each.key, each.key + 1] if each.kind == "half a transaction" else [each.key]
                admin.execute("UPDATE public.orders SET customer = customer || '.' WHERE id = ANY(%s)", (pair,))
    return before
