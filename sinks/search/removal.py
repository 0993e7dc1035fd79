"""A view that nothing declares any more, removed from OpenSearch.

In: a pipeline and a view's name. Out: whether anything of it was there: the index behind the alias, former ones, and
those that killed loads left. Keeps true: only indexes that say that they are of this view are deleted.
"""

from __future__ import annotations

from cdc.settings import Settings
from sinks.search.generations import Generations
from sinks.search.server import SearchServer


def remove(settings: Settings, view: str) -> bool:
    """Delete the indexes, with their positions and aliases."""
    search = settings.search
    server = SearchServer(search.url.rstrip("/"), search.user, search.secret(), search.ca_file)
    generations = Generations(settings.pipeline, view, "")
    with server.connection() as connection:
        found = generations.everything(connection)
        generations.drop(connection, found)
    return bool(found)
