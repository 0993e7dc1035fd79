"""The generations of a view in OpenSearch: the index behind the alias, its position, and what was left behind.

In: a connection. Out: the standing as stored, moves of it, switches to a loaded index. Keeps true: a position counts
for one index only, by its UUID, so the alias's switch is what moves rows and position together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from cdc.errors import OperatorError
from cdc.names import index_alias, index_name
from sinks.protocol import Position
from sinks.search.server import SearchConnection
from sinks.standing import Standing, lost, new_generation, overtaken, parse_standing

_OWNED_BY: Final = "afterimage"
_DESCRIBE: Final = "filter_path=*.aliases,*.settings.index.uuid,*.mappings._meta"
_CONFLICTS: Final = (404, 409)


@dataclass(frozen=True, slots=True)
class Stored:
    """A standing, the index that it counts for, and the position document's revision; `ended` is never moved again."""

    standing: Standing
    index: str
    index_uuid: str
    revision: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Generations:
    """One view's, as it is declared now."""

    pipeline: str
    view: str
    declaration: str

    @property
    def alias(self) -> str:
        """What readers search."""
        return index_alias(self.pipeline, self.view)

    def index(self, generation: int) -> str:
        """The index of a generation."""
        return index_name(self.pipeline, self.view, generation)

    def write_alias(self, generation: int) -> str:
        """What one generation is written through: it goes with its index, and no switch leads it elsewhere."""
        return self.index(generation) + "-write"

    @property
    def positions(self) -> str:
        """The index of the pipeline's positions; a document for each generation of each view."""
        return f"{self.pipeline}-{_OWNED_BY}"

    def stored(self, ask: SearchConnection) -> Stored | None:
        """The live generation's standing; None when any part of it is missing or another declaration's."""
        behind = ask.ask("GET", f"/{self.alias}?{_DESCRIBE}", accept=(404,))
        if behind.status == 404 or len(behind.body) != 1:
            return None
        ((index, described),) = behind.body.items()
        uuid = str(described["settings"]["index"]["uuid"])
        document = ask.ask("GET", f"/{self.positions}/_doc/{index}", accept=(404,))
        fields: dict[str, Any] = document.body.get("_source") or {}
        standing = parse_standing(fields, self.view, self.declaration)
        if standing is None or self.index(standing.generation) != index or fields.get("index_uuid") != uuid:
            return None
        return Stored(standing, index, uuid, _revision(document.body), bool(fields.get("ended")))

    def move(self, ask: SearchConnection, stored: Stored, position: Position) -> Stored:
        """Move the position, if nobody else did."""
        return self._put(ask, stored.standing.moved(position), stored.index_uuid, "?" + stored.revision)

    def refresh(self, ask: SearchConnection, index: str) -> None:
        """Show all writes of an index to searches at once."""
        answer = ask.ask("POST", f"/{index}/_refresh", accept=(404,))
        if answer.status == 404 or answer.body.get("_shards", {}).get("failed"):
            raise lost("OpenSearch", self.view)

    def begin(self, ask: SearchConnection, body: dict[str, Any]) -> int:
        """Make the index of a new generation, seen by no reader."""
        known = self._known(ask)
        self._make_positions(ask)
        generation = new_generation(known)
        mappings = {**body["mappings"], "_meta": {_OWNED_BY: {"pipeline": self.pipeline, "view": self.view}}}
        aliases: dict[str, Any] = {self.write_alias(generation): {"is_write_index": True}}
        whole = {**body, "mappings": mappings, "aliases": aliases}
        answer = ask.ask("PUT", f"/{self.index(generation)}", whole, accept=(400,))
        if answer.status == 400:
            message = f"view {self.view}: OpenSearch refuses the index's mapping: {answer.error_type}"
            raise OperatorError(message, "see the view's search option mapping", code="SEARCH_MAPPING")
        return generation

    def switch(self, ask: SearchConnection, standing: Standing, over: Stored | None) -> Stored:
        """Show a loaded generation to readers, at its position, instead of what they see."""
        index = self.index(standing.generation)
        self.refresh(ask, index)
        found = ask.ask("GET", f"/{index}?{_DESCRIBE}", accept=(404,))
        if found.status == 404:
            raise lost("OpenSearch", self.view)
        made = self._put(ask, standing, str(found.body[index]["settings"]["index"]["uuid"]), "")
        if over is not None:
            self._end(ask, over)
        olds = ask.ask("GET", f"/_alias/{self.alias}", accept=(404,))
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": self.alias}}]
        if olds.status != 404:
            actions += [{"remove": {"index": old, "alias": self.alias}} for old in olds.body]
        if ask.ask("POST", "/_aliases", {"actions": actions}, accept=(404,)).status == 404:
            raise lost("OpenSearch", self.view)
        return made

    def _end(self, ask: SearchConnection, stored: Stored) -> None:
        """From here on nobody moves it; whoever is killed before the alias is switched leaves a view to be replaced."""
        fields = {**stored.standing.fields(), "index_uuid": stored.index_uuid, "ended": True}
        path = f"/{self.positions}/_doc/{stored.index}?{stored.revision}"
        if ask.ask("PUT", path, fields, accept=_CONFLICTS).status in _CONFLICTS:
            raise overtaken("OpenSearch", self.view)

    def leftovers(self, ask: SearchConnection) -> list[str]:
        """Indexes of this view that no reader sees: former generations, and what killed loads left."""
        return [name for name, each in self._all(ask).items() if self.alias not in each.get("aliases", {})]

    def former(self, ask: SearchConnection, stored: Stored) -> list[str]:
        """Those of them that readers saw before this one; a later one may be loading."""
        live = stored.standing.generation
        return [name for name in self.leftovers(ask) if (self._number(name) or live) < live]

    def everything(self, ask: SearchConnection) -> list[str]:
        """All indexes of this view, the live one as well."""
        return [
            name
            for name, each in self._all(ask).items()
            if each["mappings"]["_meta"][_OWNED_BY] == {"pipeline": self.pipeline, "view": self.view}
        ]

    def drop(self, ask: SearchConnection, indexes: list[str]) -> None:
        """Delete these indexes with their positions."""
        for index in indexes:
            ask.ask("DELETE", f"/{index}", accept=(404,))
            ask.ask("DELETE", f"/{self.positions}/_doc/{index}", accept=(404,))

    def _all(self, ask: SearchConnection) -> dict[str, dict[str, Any]]:
        found = ask.ask("GET", f"/{self.alias}-g*?{_DESCRIBE}", accept=(404,))
        indexes = found.body if found.status != 404 else {}
        return {name: each for name, each in indexes.items() if self._number(name) is not None and _is_ours(each)}

    def _number(self, index: str) -> int | None:
        match = re.fullmatch(re.escape(self.alias) + r"-g(\d+)", index)
        return int(match[1]) if match else None

    def _known(self, ask: SearchConnection) -> list[int]:
        behind = ask.ask("GET", f"/{self.alias}?filter_path=*.settings.index.uuid", accept=(404,))
        if self.alias in behind.body:
            message = f"OpenSearch has an index called {self.alias}, where the view {self.view} needs an alias"
            raise OperatorError(message, "delete that index, or rename the view", code="SEARCH_NAME_TAKEN")
        return [number for index in behind.body if (number := self._number(index)) is not None]

    def _make_positions(self, ask: SearchConnection) -> None:
        if ask.ask("GET", f"/{self.positions}?filter_path=*.settings.index.uuid", accept=(404,)).status == 404:
            settings = {"index": {"number_of_shards": 1, "auto_expand_replicas": "0-1"}}
            body = {"settings": settings, "mappings": {"dynamic": False}}
            # 400: another sink of this pipeline made it just now.
            ask.ask("PUT", f"/{self.positions}", body, accept=(400,))

    def _put(self, ask: SearchConnection, standing: Standing, index_uuid: str, condition: str) -> Stored:
        index = self.index(standing.generation)
        path = f"/{self.positions}/_doc/{index}{condition}"
        answer = ask.ask("PUT", path, {**standing.fields(), "index_uuid": index_uuid}, accept=_CONFLICTS)
        if answer.status in _CONFLICTS:
            raise lost("OpenSearch", self.view)
        return Stored(standing, index, index_uuid, _revision(answer.body))


def _revision(document: dict[str, Any]) -> str:
    return f"if_seq_no={document['_seq_no']}&if_primary_term={document['_primary_term']}"


def _is_ours(described: dict[str, Any]) -> bool:
    return _OWNED_BY in described.get("mappings", {}).get("_meta", {})
