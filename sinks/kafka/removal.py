"""A view that nothing declares any more, removed from Kafka.

In: a pipeline and a view's name. Out: whether its topic was there. Keeps true: a topic that does not hold a view's
position is somebody else's, and stays.
"""

from __future__ import annotations

from cdc.names import view_topic
from cdc.settings import Settings
from cdc.topics import Topics
from sinks.kafka.topic import ViewTopic


def remove(settings: Settings, view: str) -> bool:
    """Delete the topic."""
    name, topics = view_topic(settings.pipeline, view), Topics(settings.kafka)
    if name not in topics.existing() or not ViewTopic(settings.kafka, name, view, "").has_position():
        return False
    topics.delete([name])
    return True
