"""Derived names are injective: the decoders that prove it live here and nowhere else."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from cdc import names

postgres_names = st.text(
    st.one_of(st.characters(exclude_characters="\0", codec="utf-8"), st.sampled_from("aAbB_-.%/\\\"'` ıİKſß")),
    min_size=1,
    max_size=24,
)
keys = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=2, max_size=4)


def unescape(text: str) -> str:
    return re.sub(rb"-([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode()).decode()


def unpercent(text: str) -> str:
    return re.sub(rb"%([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode()).decode()


def whole(text: str) -> bool:
    return "--" not in text


@given(postgres_names, postgres_names)
def test_topics_can_be_decoded_and_kafka_takes_them(schema, table):
    topic = names.topic_name("shop", schema, table)
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic)
    if whole(topic):
        pipeline, *parts = topic.split(".")
        assert [pipeline, *map(unescape, parts)] == ["shop", schema, table]
        # What Kafka compares, since it takes a dot for an underscore.
        assert topic.replace(".", "_").split("_", 2) == [pipeline, *parts]


@given(st.lists(st.tuples(postgres_names, st.text("é-a", min_size=35, max_size=63)), unique=True, max_size=8))
def test_cut_topics_stay_apart(tables):
    topics = [names.topic_name("shop", schema, table) for schema, table in tables]
    assert len(set(topics)) == len(tables)
    assert all(len(topic) <= names.TOPIC_BYTES_MAX for topic in topics)


@given(postgres_names, postgres_names)
def test_paths_are_one_component_and_can_be_decoded(schema, table):
    path = names.path_name(schema, table)
    assert "/" not in path
    assert path.count(".") == 1
    if whole(path):
        assert tuple(map(unescape, path.split("."))) == (schema, table)


@given(st.lists(postgres_names, unique=True, max_size=8))
def test_delta_columns_can_be_decoded_and_differ_without_case(columns):
    derived = names.delta_columns(columns)
    assert [unpercent(name) for name in derived] == columns
    assert len({name.lower() for name in derived}) == len({name.upper() for name in derived}) == len(columns)
    assert not any(re.search(r"[ ,;{}()\n\t=`.\x00-\x1f\x7f]", name) or name.startswith("__") for name in derived)


@given(keys)
def test_document_ids_of_several_columns_can_be_decoded(key):
    derived = names.document_id(key)
    assert 0 < len(derived.encode()) <= names.DOCUMENT_ID_BYTES_MAX
    if not derived.startswith("sha256:"):
        assert json.loads(derived) == key


@given(st.text(st.characters(codec="utf-8"), max_size=600))
def test_document_ids_of_one_column_can_be_decoded(text):
    derived = names.document_id([text])
    assert 0 < len(derived.encode()) <= names.DOCUMENT_ID_BYTES_MAX
    assert derived == text or (derived.startswith("sha256:") and len(derived) == 71)


@given(postgres_names)
def test_quoted_names_can_be_decoded(name):
    quoted = names.quote_ident(name)
    assert quoted[0] == quoted[-1] == '"'
    assert quoted[1:-1].replace('""', '"') == name
    assert '"' not in quoted[1:-1].replace('""', "")
