"""The user's SELECT as Postgres is asked: token by token, with tables qualified and `*` written out.

In: a file's tokens, and what to write instead of some of them. Out: the text, and where it names tables. Keeps true:
comments go, nothing else; so what the user wrote keeps its meaning whatever columns and search path there will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot.tokenizer_core import Token

from jobs.declare.relations import Text
from jobs.declare.source import Source
from sinks.spec import NamedTable


@dataclass(slots=True)
class Rewriting:
    """What stands in the place of the tokens from one offset to another."""

    source: Source
    tokens: Sequence[Token]
    _instead: dict[int, tuple[int, Text]] = field(default_factory=dict)

    def write(self, start: int, end: int, text: Text) -> None:
        """Let a text stand for what is between two offsets, the second included."""
        self._instead[start] = end, text

    def text(self) -> Text:
        """The whole."""
        pieces: list[str] = []
        named: list[NamedTable] = []
        length, until, end = 0, -1, None
        for token in self.tokens:
            if token.start <= until:
                end = token.end
                continue
            found = self._instead.get(token.start)
            written = Text(self.source.text[token.start : token.end + 1]) if found is None else found[1]
            if end is not None and token.start > end + 1:
                pieces.append(" ")
                length += 1
            named += [replace(table, at=table.at + length) for table in written.named]
            pieces.append(written.sql)
            length += len(written.sql)
            until, end = (-1 if found is None else found[0]), token.end
        return Text("".join(pieces), tuple(named))
