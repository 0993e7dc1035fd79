"""What `check` finds in Kafka, on real brokers: topics of another shape, refusals; and that it makes nothing."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cdc.changes import Column, Relation
from cdc.check.broker import look_at_broker
from cdc.check.finding import Level
from cdc.names import progress_topic, topic_name
from cdc.progress import Kind, Progress
from cdc.publisher import Publisher
from cdc.settings import Kafka as KafkaSection
from cdc.settings import Settings, Source
from cdc.stack.kafka import Kafka
from cdc.topics import Topics, pipeline_topics, table_topic
from tests.support.wait import wait_until

ORDERS = Relation(1, "public", "orders", "d", (Column("id", 23, -1, "integer", 23, True, False),))


def settings_for(address, pipeline, **kafka):
    return Settings(
        pipeline=pipeline,
        source=Source(database="unused", tables=("public.*",)),
        kafka=KafkaSection(bootstrap=address, **kafka),
    )


@pytest.fixture
def settings(kafka, pipeline_name):
    return settings_for(kafka.address, pipeline_name)


@pytest.fixture
def plans(settings):
    """The pipeline's topics, made as capture makes them."""
    plans = [*pipeline_topics(settings.pipeline), table_topic(topic_name(settings.pipeline, "public", "orders"), 2)]
    Topics(settings.kafka).ensure(plans)
    return plans


def codes(settings):
    return [found.code for found in look_at_broker(settings, [ORDERS])]


def in_time(settings, found):
    """A broker learns of changes from its controller a moment after they were made: look until this is found."""
    last: list = []

    def look():
        last[:] = look_at_broker(settings, [ORDERS])
        return found(last)

    wait_until(look, what="the broker to know what was changed")
    return last


def alter(settings, topic, name, value):
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap})
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result()


def test_before_the_first_capture_all_is_right_and_nothing_is_made(settings):
    [found] = look_at_broker(settings, [ORDERS])
    assert (found.level, found.code) == (Level.OK, "KAFKA")
    assert not any(name.startswith(settings.pipeline) for name in Topics(settings.kafka).existing())


@pytest.mark.usefixtures("plans")
def test_topics_made_by_capture_are_right(settings):
    [found] = look_at_broker(settings, [ORDERS])
    had = "Kafka has 1 broker(s), 7 of 7 topics, and takes rows of up to"
    assert found.message == f"{had} 64.0 MiB (requests of up to 128.0 MiB)"


def test_a_topic_that_takes_more_is_right_and_told(settings, plans):
    alter(settings, plans[-1].name, "max.message.bytes", str(80 << 20))
    [found] = in_time(settings, lambda found: "80.0 MiB" in found[0].message)
    assert found.level is Level.OK
    alter(settings, plans[-1].name, "max.message.bytes", str(130 << 20))
    [found] = in_time(settings, lambda found: found[0].code == "REQUEST_SIZE")
    assert "records of 136314880" in found.message


@pytest.mark.usefixtures("plans")
def test_another_partition_count_is_named(settings):
    [found] = look_at_broker(settings_for(settings.kafka.bootstrap, settings.pipeline, partitions=3), [ORDERS])
    assert (found.code, found.level) == ("PARTITIONS_CHANGED", Level.CRITICAL)
    assert found.remedy.startswith("set kafka.partitions to 2")


def test_a_topic_that_is_not_compacted_is_named(settings):
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap})
    topic = topic_name(settings.pipeline, "public", "orders")
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    [found] = in_time(settings, lambda found: found[0].code == "TOPIC_SETTINGS")
    assert found.level is Level.CRITICAL
    assert "cleanup.policy=compact" in found.remedy


def test_a_setting_changed_since_is_a_warning(settings, plans):
    alter(settings, plans[-1].name, "max.message.bytes", "1000")
    [found] = in_time(settings, lambda found: found[0].code == "TOPIC_SETTINGS")
    assert found.level is Level.WARNING
    assert "max.message.bytes=67108864" in found.remedy


def test_too_few_brokers_for_the_replication_factor(settings):
    wanted = settings_for(settings.kafka.bootstrap, settings.pipeline, replication_factor=3)
    assert codes(wanted) == ["REPLICATION_FACTOR"]


def test_a_running_capture_is_not_fenced(settings, plans):
    publisher = Publisher(settings.kafka, settings.pipeline, 30)
    publisher.start()
    try:
        assert codes(settings) == ["KAFKA"]
        publisher.seal()
        publisher.commit(Progress(1, Kind.IDLE, 0, 8, 0, 0, 0, {}, "1", None))
    finally:
        publisher.close()
    assert progress_topic(settings.pipeline) in {plan.name for plan in plans}


def test_a_broker_that_is_away(pipeline_name):
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        settings = settings_for(f"127.0.0.1:{unused.getsockname()[1]}", pipeline_name)
        assert codes(settings) == ["KAFKA_UNAVAILABLE"]


def test_credentials_that_the_broker_does_not_know(kafka, pipeline_name):
    secret = "canary-91bd"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "afterimage",
        "sasl.password": secret,
    }
    found = look_at_broker(settings_for(kafka.address, pipeline_name, properties=properties), [ORDERS])
    assert [each.level for each in found] == [Level.CRITICAL]
    assert secret not in repr(found)


@pytest.fixture
def guarded(private_server):
    """A broker with access control, and little room in a request."""
    return private_server(
        Kafka,
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "socket.request.max.bytes": "10000000",
        },
    )


def test_what_acls_and_limits_forbid_is_named(guarded, pipeline_name):
    settings = settings_for(guarded.endpoint.address, pipeline_name)
    assert codes(settings) == ["REQUEST_SIZE"]
    topic = topic_name(pipeline_name, "public", "orders")
    Topics(settings.kafka).ensure([table_topic(topic, 2)])
    rule(guarded, AclPermissionType.ALLOW, (ResourceType.TOPIC, topic, AclOperation.ALL))
    in_time(settings, lambda found: [each.code for each in found] == ["REQUEST_SIZE"])
    rule(guarded, AclPermissionType.DENY, (ResourceType.TOPIC, topic, AclOperation.WRITE))
    in_time(settings, lambda found: f"WRITE on topic {topic}" in found[0].message)
    rule(guarded, AclPermissionType.DENY, (ResourceType.TOPIC, topic, AclOperation.DESCRIBE))
    in_time(settings, lambda found: f"DESCRIBE on topic {topic}" in found[0].message)
    # The broker itself is everybody too, so it must be let in before anything of the cluster is forbidden.
    rule(guarded, AclPermissionType.ALLOW, (ResourceType.BROKER, "kafka-cluster", AclOperation.ALL))
    rule(
        guarded,
        AclPermissionType.DENY,
        (ResourceType.TRANSACTIONAL_ID, f"afterimage-{pipeline_name}", AclOperation.ALL),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
        (ResourceType.TOPIC, pipeline_name, AclOperation.CREATE),
    )
    refused = ["KAFKA_UNAUTHORISED", "REQUEST_SIZE", "KAFKA_UNAUTHORISED"]
    in_time(settings, lambda found: [each.code for each in found] == refused)


def rule(server, permission, *rules):
    """Allow or deny something to everybody; what a rule is about is forbidden but for what a rule allows."""
    admin = AdminClient({"bootstrap.servers": server.endpoint.address, "log_level": 0})
    everybody = ("User:ANONYMOUS", "*")
    acls = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL if kind is ResourceType.BROKER else ResourcePatternType.PREFIXED,
            *everybody,
            operation,
            permission,
        )
        for kind, name, operation in rules
    ]
    for future in admin.create_acls(acls).values():
        future.result()
