"""Declared views: SQL files in, ViewSpecs out."""

from jobs.declare.bodies import with_bodies
from jobs.declare.load import OnError, declare_views, load_views, view_texts
from jobs.declare.row_wise import declare_view, mirror_spec

__all__ = ["OnError", "declare_view", "declare_views", "load_views", "mirror_spec", "view_texts", "with_bodies"]
