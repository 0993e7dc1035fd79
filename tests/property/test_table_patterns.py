"""Table patterns: a name written by us means that table alone, and wildcards mean what they say."""

from __future__ import annotations

import fnmatch

from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import ConfigError
from cdc.table_patterns import parse, written

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
plain = st.text("ab*?_é -;", min_size=1, max_size=8)


@given(names, names, names, names)
def test_a_written_name_means_itself_alone(schema, name, other_schema, other_name):
    pattern = parse(written(schema, name))
    assert pattern.is_literal
    assert pattern.matches(schema, name)
    assert pattern.matches(other_schema, other_name) == ((schema, name) == (other_schema, other_name))


@given(plain, plain, st.text("ab_é -;", max_size=8))
def test_wildcards_match_within_a_name(schema, name, candidate):
    pattern = parse(f"{schema}.{name}")
    assert pattern.is_literal == (not set("*?") & set(schema + name))
    assert pattern.matches(candidate, candidate) == (
        fnmatch.fnmatchcase(candidate, schema) and fnmatch.fnmatchcase(candidate, name)
    )


@given(st.text('ab."*?', max_size=12))
def test_any_text_is_a_pattern_or_a_configuration_error(text):
    try:
        pattern = parse(text)
    except ConfigError:
        return
    assert pattern.text == text
