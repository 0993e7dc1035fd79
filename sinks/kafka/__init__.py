"""A view's changes in a compacted Kafka topic."""

from sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
