"""Views in Valkey or Redis."""

from sinks.cache.sink import CacheSink

__all__ = ["CacheSink"]
