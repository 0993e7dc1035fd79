"""The index of a view: settings, and a mapping made from the columns' types.

In: Spark's type names and the header's overrides. Out: the body that creates an index. Keeps true: every field is
mapped on purpose, nothing is guessed from the first document, and a batch becomes searchable in one step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from sinks.search.nested import TEXTS, Nested
from sinks.spec import ViewSpec

# Names that OpenSearch keeps for itself within a document.
METADATA_FIELDS: Final = (
    *("_id", "_index", "_source", "_routing", "_version", "_seq_no", "_primary_term", "_field_names", "_ignored"),
    *("_nested_path", "_type", "_size", "_doc_count", "_data_stream_timestamp", "_feature", "_tier"),
)

KEYWORD_CHARS_MAX: Final = 8191
"""Lucene refuses terms over 32766 bytes, and a character may take four."""

# What a number cannot be (NaN, infinity) is kept in the document and left out of the field's index.
_FLOATING: Final = {"ignore_malformed": True}
_TIME: Final = {"type": "date", "format": "strict_date_optional_time_nanos"}
_TEXT: Final = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": KEYWORD_CHARS_MAX}}}

_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "boolean": {"type": "boolean"},
    "tinyint": {"type": "byte"},
    "smallint": {"type": "short"},
    "int": {"type": "integer"},
    "bigint": {"type": "long"},
    "float": {"type": "float", **_FLOATING},
    "double": {"type": "double", **_FLOATING},
    # Documents hold decimals as exact strings; the index sorts and sums them as doubles.
    "decimal": {"type": "double"},
    "date": _TIME,
    "timestamp": _TIME,
    "timestamp_ntz": _TIME,
    "binary": {"type": "binary"},
    "string": _TEXT,
}

_KEPT: Final[dict[str, Any]] = {"type": "object", "enabled": False}
_ELEMENTS: Final = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "numeric": "decimal",
    "date": "date",
}


def parse_overrides(text: str | None, spec: ViewSpec) -> dict[str, Any]:
    """The header's `mapping` option: a JSON object, column to OpenSearch mapping."""
    try:
        overrides = json.loads(text or "{}")
    except ValueError as error:
        raise _refused(spec, "is not JSON") from error
    if not isinstance(overrides, dict) or not all(isinstance(field, dict) for field in overrides.values()):
        raise _refused(spec, "is not an object of fields")
    for name in overrides:
        if name not in spec.columns:
            message = f"view {spec.name}: the search mapping names a column {name} that the view does not have"
            raise ConfigError(message, suggestion(name, spec.columns, what="columns"))
    return overrides


def index_body(
    types: Mapping[str, str], overrides: Mapping[str, Any], gc_deletes: str, nested: Nested = Nested({})
) -> dict[str, Any]:
    """What PUT <index> takes, without aliases and _meta."""
    fields = {
        name: overrides.get(name) or _nested_field(name, nested) or _FIELDS[kind.partition("(")[0]]
        for name, kind in types.items()
    }
    if nested.forms:
        fields[TEXTS] = _KEPT
    settings = {
        # One shard refreshes as a whole: no search ever sees half a batch.
        "number_of_shards": 1,
        "auto_expand_replicas": "0-1",
        # The sink refreshes after each batch, before it moves the position: what a position says can be searched.
        "refresh_interval": "-1",
        # A version of a deleted document is remembered this long, so that a late, older write cannot revive it.
        "gc_deletes": gc_deletes,
        "mapping.total_fields.limit": 1000 + 4 * len(fields),
    }
    return {"settings": {"index": settings}, "mappings": {"dynamic": "strict", "properties": fields}}


def _nested_field(name: str, nested: Nested) -> dict[str, Any] | None:
    """A document as it is, not searched unless the header says how; an array as its elements are."""
    form = nested.forms.get(name)
    if form is None:
        return None
    return _KEPT if form.element is None else _FIELDS[_ELEMENTS.get(form.element, "string")]


def _refused(spec: ViewSpec, why: str) -> ConfigError:
    example = '{"title": {"type": "text", "analyzer": "english"}}'
    return ConfigError(f"view {spec.name}: the search option mapping {why}", f"for example {example}")
