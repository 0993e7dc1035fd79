"""The names of a view's keys in the cache.

In: the pipeline, the view and a pattern such as `{pipeline}:{view}:{generation}:{key}`. Out: entry keys, the glob that
finds a generation's entries, and the view's own keys. Keeps true: two rows never share a key, nor two generations.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from sinks.values import json_text

DEFAULT_PATTERN: Final = "{pipeline}:{view}:{generation}:{key}"
RESERVED_PREFIX: Final = "afterimage:"

# What quoted values, generations and names are made of; a separator needs a character that is none of these.
_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "%_.-~")


_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_OWN_NAMES: Final = ("pipeline", "view", "generation", "key")


@dataclass(frozen=True, slots=True)
class KeyPattern:
    """A checked pattern: `texts` stand around `names`. `{key}` is the key's text, `{column}` is URL-quoted."""

    pipeline: str
    view: str
    key: tuple[str, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...]

    def entry_key(self, generation: int, key: Sequence[str]) -> str:
        """The key of one row's entry; a key of several columns is a JSON array in `{key}`."""
        whole = whole_key(key)
        quoted = {name: quote(text, safe="") for name, text in zip(self.key, key, strict=True)}
        return self._fill(self.texts, {**quoted, "key": whole, "generation": str(generation)})

    def glob(self, generation: int | str) -> str:
        """What SCAN matches to find the entries of a generation."""
        texts = tuple(re.sub(r"([\[\]*?\\])", r"\\\1", text) for text in self.texts)
        return self._fill(texts, {**dict.fromkeys(self.key, "*"), "key": "*", "generation": str(generation)})

    def list_prefix(self, generation: int | str) -> str:
        """What the keys of a generation's lists begin with; the parent's text follows, URL-quoted."""
        return f"{RESERVED_PREFIX}list:{self.pipeline}:{self.view}:{generation}:"

    def globs(self, generation: str) -> tuple[str, str]:
        """What finds all that a generation has: its entries, and its lists."""
        return self.glob(generation), self.list_prefix(generation) + "*"

    @property
    def generation_key(self) -> str:
        """Names the generation that readers use."""
        return f"{self.pipeline}:{self.view}:generation"

    @property
    def generations_key(self) -> str:
        """A hash: what each generation is, `loading`, `live` or `retired`."""
        return f"{self.pipeline}:{self.view}:generations"

    @property
    def position_key(self) -> str:
        """Where the view stands."""
        return f"{self.pipeline}:{self.view}:position"

    @property
    def globs_key(self) -> str:
        """What finds the entries of a generation, `{generation}` standing for it: for whoever drops the view."""
        return f"{self.pipeline}:{self.view}:globs"

    def _fill(self, texts: tuple[str, ...], values: dict[str, str]) -> str:
        known = {**values, "pipeline": self.pipeline, "view": self.view}
        filled = (known[name] + text for name, text in zip(self.names, texts[1:], strict=True))
        return texts[0] + "".join(filled)


def whole_key(key: Sequence[str]) -> str:
    """A key as one text: its only column's, else a JSON array."""
    return key[0] if len(key) == 1 else json_text(list(key))


def parse_pattern(pattern: str, pipeline: str, view: str, key: tuple[str, ...]) -> KeyPattern:
    """Check a pattern; every ConfigError names what is wrong with it."""
    pieces = _PLACEHOLDER.split(pattern)
    texts, names = tuple(pieces[::2]), tuple(pieces[1::2])
    why = _why_wrong_names(names, key) or _why_wrong_texts(texts, names)
    if why is None:
        return KeyPattern(pipeline, view, key, texts, names)
    message, hint = why
    raise ConfigError(f"view {view}: the cache key pattern {pattern!r} {message}", hint)


_Why = tuple[str, str] | None


def _why_wrong_names(names: tuple[str, ...], key: tuple[str, ...]) -> _Why:
    columns = [name for name in key if name not in _OWN_NAMES]
    known = (*_OWN_NAMES, *columns)
    for name in names:
        if name not in known:
            return f"has an unknown placeholder {{{name}}}", suggestion(name, known, what="placeholders")
    if len(set(names)) < len(names):
        return "uses a placeholder twice", f"the default is {DEFAULT_PATTERN}"
    if "generation" not in names:
        return "lacks {generation}", "a rebuild needs it, to stand beside the live entries until the switch"
    if "key" not in names and (len(columns) < len(key) or not set(columns) <= set(names)):
        return "names no whole key", "add {key}, or every key column: " + ", ".join(key)
    return None


def _why_wrong_texts(texts: tuple[str, ...], names: tuple[str, ...]) -> _Why:
    if any("{" in text or "}" in text for text in texts):
        return "has a brace without its other half", f"the default is {DEFAULT_PATTERN}"
    if not texts[0] and names[0] not in ("pipeline", "view", "generation"):
        return "begins with a value", "begin with a fixed text, {pipeline}, {view} or {generation}"
    if texts[0].startswith(RESERVED_PREFIX):
        return f"begins with {RESERVED_PREFIX}", "that prefix is Afterimage's own"
    if any(_ALPHABET.issuperset(text) for text in texts[1:-1]):
        return "has two values side by side", "put a separator between them, such as : or /"
    return None
