"""Declared views: SQL files in, ViewSpecs out."""

from jobs.declare.load import OnError, declare_view, load_view, load_views, mirror_spec

__all__ = ["OnError", "declare_view", "load_view", "load_views", "mirror_spec"]
