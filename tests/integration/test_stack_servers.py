"""The servers that tests start are what the pipeline needs: logical WAL, transactions, passwords."""

from __future__ import annotations

import secrets

import psycopg
import pytest
import redis
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from opensearchpy import NotFoundError
from opensearchpy import OpenSearch as OpenSearchClient
from redis.backoff import NoBackoff
from redis.retry import Retry

from cdc.stack.kafka import Kafka
from cdc.stack.postgres import Postgres
from cdc.stack.server import Endpoint
from cdc.stack.valkey import Valkey
from tests.support.wait import wait_until


def test_postgres_decodes_its_log(pg_database):
    with pg_database.connect() as connection:
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [pg_database.dbname])


def test_postgres_asks_for_the_password(postgres):
    wrong = postgres.database().conninfo.replace(postgres.endpoint.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


@pytest.mark.parametrize("major", [14, 15, 16, 18])
def test_other_majors_start(postgres_major, major):
    with postgres_major(major).database().connect() as connection:
        assert connection.info.server_version // 10000 == major


def test_kafka_commits_transactions(kafka, pipeline_name):
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(pipeline_name, 2)])[pipeline_name].result()
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": pipeline_name})
    producer.init_transactions(30)
    for value, keep in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(pipeline_name, value, "key")
        producer.commit_transaction(30) if keep else producer.abort_transaction(30)
    consumer = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": pipeline_name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([pipeline_name])
    seen: list[bytes | None] = []

    def read() -> bool:
        seen.extend(message.value() for message in consumer.consume(10, 0.2) if not message.error())
        return len(seen) == 2

    wait_until(read, what="both committed records")
    consumer.close()
    assert seen == [b"a", b"c"]


def test_kafka_makes_no_topic_by_accident(kafka):
    name = f"never-{secrets.token_hex(4)}"
    producer = Producer({"bootstrap.servers": kafka.address, "message.timeout.ms": 2000})
    failures: list[str] = []
    producer.produce(name, b"x", on_delivery=lambda error, _: failures.append(error.name() if error else ""))
    producer.flush(10)
    assert failures == ["_MSG_TIMED_OUT"] or failures == ["_UNKNOWN_TOPIC"]


def test_valkey_asks_for_the_password(valkey):
    with (
        redis.Redis(valkey.host, valkey.port, retry=Retry(NoBackoff(), 0)) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    with redis.Redis(valkey.host, valkey.port, password=valkey.password) as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"


@pytest.mark.parametrize("kind", [Postgres, Kafka, Valkey])
def test_a_killed_server_comes_back_on_its_port(private_server, kind):
    server = private_server(kind)
    port = server.endpoint.port
    server.kill()
    assert server.start().port == port


def test_opensearch_keeps_the_newest_version(opensearch, pipeline_name):
    with client_of(opensearch) as client:
        client.indices.create(index=pipeline_name)
        for version, text in ((7, "new"), (3, "old")):
            put = {"index": {"_id": "1", "version": version, "version_type": "external_gte"}}
            client.bulk(index=pipeline_name, body=[put, {"text": text}], refresh=True)
        found = client.search(index=pipeline_name, body={"query": {"match": {"text": "new"}}})
        assert [hit["_source"] for hit in found["hits"]["hits"]] == [{"text": "new"}]
        # Scripts and reindexing come from modules whose descriptors are ours.
        client.update(index=pipeline_name, id="1", body={"script": "ctx._source.text = 'scripted'"}, refresh=True)
        client.indices.create(index=f"{pipeline_name}-copy")
        copied = client.reindex(body={"source": {"index": pipeline_name}, "dest": {"index": f"{pipeline_name}-copy"}})
        assert copied["created"] == 1


def test_opensearch_makes_no_index_by_accident(opensearch, pipeline_name):
    with client_of(opensearch) as client, pytest.raises(NotFoundError):
        client.index(index=pipeline_name, body={"a": 1})


def client_of(opensearch: Endpoint) -> OpenSearchClient:
    return OpenSearchClient(hosts=[{"host": opensearch.host, "port": opensearch.port}])
