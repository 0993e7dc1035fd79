"""Every name that Afterimage derives from a Postgres name, as docs/FORMATS.md lists them.

In: names as the catalogue has them, hostile ones too. Out: topics, paths, columns, index names, document ids, SQL.
Keeps true: two different inputs never share a name (the tests hold the decoders), and no name escapes its place.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from cdc.errors import ConfigError

TOPIC_BYTES_MAX: Final = 249  # Kafka's limit; it also keeps a path component below the 255 bytes of file systems.
DOCUMENT_ID_BYTES_MAX: Final = 512  # OpenSearch's limit.
_DIGEST_PREFIX: Final = "sha256:"
_CUT_MARK: Final = "--"  # no escape looks like this, so a cut name never equals a whole one
_CUT_DIGITS: Final = 40

_REFUSED_BYTE = re.compile(rb"[^A-Za-z0-9_]")
_REFUSED_IN_COLUMN: Final = frozenset(" ,;{}()=%`.")
_FOLDED_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def topic_name(pipeline: str, schema: str, table: str) -> str:
    """The topic of a table."""
    return _cut(f"{pipeline}.{_schema_and_table(schema, table)}")


def progress_topic(pipeline: str) -> str:
    """The topic of the progress records."""
    return f"{pipeline}._progress"


def schema_topic(pipeline: str) -> str:
    """The topic of the relations' descriptions."""
    return f"{pipeline}._schema"


def control_topic(pipeline: str) -> str:
    """The topic through which commands talk to the running apply."""
    return f"{pipeline}._control"


def snapshots_topic(pipeline: str) -> str:
    """The topic of wishes for tables to be read again."""
    return f"{pipeline}._snapshots"


def dead_letter_topic(pipeline: str) -> str:
    """The topic of the rows that sinks refused."""
    return f"{pipeline}._dead"


def message_topic(pipeline: str) -> str:
    """The topic of the application's logical messages."""
    return f"{pipeline}._messages"


def view_topic(pipeline: str, view: str) -> str:
    """The topic of a view's changes; a table `view.<name>` would have the same, and then the view is refused."""
    return f"{pipeline}.view.{view}"


def path_name(schema: str, table: str) -> str:
    """The folder of a table's mirror, one path component; a view's folder is its name, which has no dot."""
    return _cut(_schema_and_table(schema, table))


def index_alias(pipeline: str, view: str) -> str:
    """What readers of a search view query."""
    return f"{pipeline}-{view}"


def index_name(pipeline: str, view: str, generation: int) -> str:
    """The index behind the alias."""
    return f"{pipeline}-{view}-g{generation}"


def document_id(key: Sequence[str]) -> str:
    """The id of a row's search document, from its key's texts. The empty text is digested: an id is never empty."""
    text = key[0] if len(key) == 1 else json.dumps(list(key), ensure_ascii=False, separators=(",", ":"))
    if text and not text.startswith(_DIGEST_PREFIX) and len(text.encode()) <= DOCUMENT_ID_BYTES_MAX:
        return text
    return _DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def delta_columns(names: Iterable[str]) -> tuple[str, ...]:
    """A table's columns as Delta names them, distinct for readers that ignore case as well."""
    originals = tuple(names)
    alike = Counter(map(_fold, originals))
    return tuple(_fold_safe(name) if alike[_fold(name)] > 1 else _delta_column(name) for name in originals)


def quote_ident(name: str) -> str:
    """A name as an SQL identifier, always quoted."""
    return '"' + _without_nul(name).replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text as an SQL literal, whatever standard_conforming_strings says."""
    quoted = "'" + _without_nul(text).replace("'", "''") + "'"
    return " E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ConfigError("a name or text holds the character NUL, which Postgres does not know")
    return text


def _schema_and_table(schema: str, table: str) -> str:
    # Kafka takes dot and underscore for the same in names, so `a_b.c` and `a.b_c` could not both exist.
    return f"{_escape(schema).replace('_', '-5f')}.{_escape(table)}"


def _escape(name: str) -> str:
    return _REFUSED_BYTE.sub(lambda match: b"-%02x" % match[0][0], name.encode()).decode("ascii")


def _cut(name: str) -> str:
    if len(name) <= TOPIC_BYTES_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_CUT_DIGITS]
    return name[: TOPIC_BYTES_MAX - len(_CUT_MARK) - _CUT_DIGITS] + _CUT_MARK + digest


def _delta_column(name: str) -> str:
    escaped = "".join(_percent(char) if _is_refused_in_column(char) else char for char in name)
    return "%5f" + escaped[1:] if escaped.startswith("__") else escaped


def _fold_safe(name: str) -> str:
    escaped = "".join(char if char in _FOLDED_SAFE else _percent(char) for char in name)
    return "%5f" + escaped[1:] if escaped.startswith("__") else escaped


def _is_refused_in_column(char: str) -> bool:
    return char in _REFUSED_IN_COLUMN or unicodedata.category(char) == "Cc"


def _percent(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode())


def _fold(name: str) -> str:
    """Wide enough for Java's equalsIgnoreCase, which goes through upper case: there, dotless i equals i."""
    return name.upper().casefold()
