"""Each server killed (SIGKILL) under load, Kafka away at the start: the pipeline waits, and goes on by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.stack.kafka import Kafka
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.valkey import Valkey
from tests.support.load import Load
from tests.support.pipelines import Pipeline, Stores, fill, pipeline_on
from tests.support.servers import POSTGRES_SETTINGS, PostgresServer, PrivateServer
from tests.support.wait import wait_until

SEED = 17


@pytest.mark.timeout(900)
def test_every_server_may_go_and_come_back(private_server: Callable[..., PrivateServer], tmp_path: Path) -> None:
    servers = {
        "postgres": private_server(Postgres, settings=POSTGRES_SETTINGS),
        "kafka": private_server(Kafka, short_lived=True),
        "opensearch": private_server(OpenSearch, short_lived=True),
        "valkey": private_server(Valkey),
    }
    stores = Stores(servers["kafka"].endpoint, servers["opensearch"].endpoint, servers["valkey"].endpoint)
    with pipeline_on(PostgresServer(servers["postgres"].endpoint), stores, tmp_path) as pipeline:
        fill(pipeline.admin)
        _start_while_kafka_is_away(pipeline, servers["kafka"])
        pipeline.catch_up()
        for name in ("kafka", "opensearch", "valkey"):
            with Load(pipeline.settings, SEED):
                servers[name].kill()
                _complains(pipeline, name)
                servers[name].start()
            pipeline.catch_up()
        servers["postgres"].kill()
        _complains(pipeline, "postgres")
        servers["postgres"].start()
        pipeline.reconnect()
        with Load(pipeline.settings, SEED + 1) as load:
            wait_until(lambda: load.transactions > 50, what="load after the crash of Postgres")
        pipeline.catch_up()
        pipeline.require_equal()


def _start_while_kafka_is_away(pipeline: Pipeline, kafka: PrivateServer) -> None:
    kafka.kill()
    pipeline.capture.start()
    wait_until(lambda: "KAFKA_UNAVAILABLE" in pipeline.capture.text(), what="capture to say what is away")
    kafka.start()
    pipeline.apply.start()


def _complains(pipeline: Pipeline, name: str) -> None:
    """The right process says so, and stays alive."""
    command, code = {
        "kafka": (pipeline.capture, "KAFKA_UNAVAILABLE"),
        "opensearch": (pipeline.apply, "SEARCH_UNAVAILABLE"),
        "valkey": (pipeline.apply, "CACHE_UNAVAILABLE"),
        "postgres": (pipeline.capture, "POSTGRES"),
    }[name]
    before = command.text().count(code)
    if name in ("opensearch", "valkey"):
        pipeline.admin.execute("UPDATE public.orders SET customer = %s, paid = true WHERE id = 10", [name])
        pipeline.admin.execute("UPDATE public.order_items SET quantity = quantity + 2")
    wait_until(lambda: command.text().count(code) > before, what=f"a word on {name}", timeout_s=90)
    assert command.alive, command.text()[-2000:]
