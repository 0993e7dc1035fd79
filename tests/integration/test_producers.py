"""Two transactional producers take turns: whoever starts both has fenced an older pair, whichever one's turn it is."""

from __future__ import annotations

import pytest

from cdc.changes import Record
from cdc.cli.facts import newest_progress
from cdc.errors import OperatorError
from cdc.progress import Kind, Progress
from cdc.publisher import Publisher
from cdc.settings import Kafka, Settings, Source
from cdc.stack.server import Endpoint
from cdc.topics import Topics, pipeline_topics, table_topic

SOURCE = Source(database="none", tables=("public.*",))


def commit(publisher: Publisher, topic: str, number: int) -> None:
    publisher.produce([Record(topic, 0, b"k", b"%d" % number)])
    ends = publisher.seal()
    publisher.commit(Progress(number, Kind.IDLE, 0, 8 * number, 0, 1, 0, {topic: (ends[topic][0],)}, "1", None))


@pytest.mark.parametrize("commits", [1, 2, 3])
@pytest.mark.parametrize("is_open", [True, False], ids=["with a transaction open", "between two"])
def test_an_older_capture_is_fenced_whichever_turn_it_is(
    kafka: Endpoint, pipeline_name: str, commits: int, is_open: bool
) -> None:
    settings = Settings(pipeline=pipeline_name, source=SOURCE, kafka=Kafka(bootstrap=kafka.address))
    topic = f"{pipeline_name}.t"
    Topics(settings.kafka).ensure([*pipeline_topics(pipeline_name), table_topic(topic, 1)])
    old, new = (Publisher(settings.kafka, pipeline_name, 30) for _ in range(2))
    try:
        old.start()
        for number in range(1, commits + 1):
            commit(old, topic, number)
        if is_open:
            old.produce([Record(topic, 0, b"k", b"never to be seen")])
        new.start()
        with pytest.raises(OperatorError) as raised:
            commit(old, topic, 90)
        assert raised.value.code == "FENCED"
        commit(new, topic, commits + 1)
        newest = newest_progress(settings)
        assert newest is not None
        assert newest.seq == commits + 1
    finally:
        old.close()
        new.close()
