"""Views in OpenSearch."""

from sinks.search.sink import SearchSink

__all__ = ["SearchSink"]
