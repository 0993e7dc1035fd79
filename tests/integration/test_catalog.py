"""The catalogue reader on a real server: columns as the log carries them, keys, types, and which tables are meant."""

from __future__ import annotations

import pytest
from psycopg import sql

from cdc.catalog import Unfit, load_relations, match_tables, relation_by_oid
from cdc.errors import ConfigError
from tests.support.postgres_version import MAJOR
from tests.support.source import HOSTILE_SCHEMA, HOSTILE_TABLE

TYPES = """
CREATE DOMAIN public.price AS numeric(10,2);
CREATE DOMAIN public.fine AS public.price CHECK (VALUE > 0);
CREATE TYPE public.mood AS ENUM ('sad', 'happy');
CREATE TABLE public.typed (
    gone int, a int NOT NULL, b public.fine, c public.fine[], d numeric(5,1), e varchar(7), f public.mood, g int[],
    h timestamptz(3), twice int GENERATED ALWAYS AS (2 * a) STORED, PRIMARY KEY (d, a)
);
ALTER TABLE public.typed DROP COLUMN gone;
"""


@pytest.fixture
def typed(admin):
    admin.execute(TYPES)
    [relation] = load_relations(admin, ["public.typed"])
    return relation


def test_columns_are_those_that_the_log_carries(typed):
    stored = ["twice"] if MAJOR >= 18 else []
    assert [column.name for column in typed.columns] == ["a", "b", "c", "d", "e", "f", "g", "h", *stored]
    assert [column.name for column in typed.key] == ["a", "d"]
    assert [column.name for column in typed.columns if not column.is_nullable] == ["a", "d"]


def test_types_are_seen_through_domains(typed):
    columns = {column.name: column for column in typed.columns}
    numeric, numeric_array, mod_10_2 = 1700, 1231, (10 << 16 | 2) + 4
    assert (columns["b"].base_oid, columns["b"].type_mod, columns["b"].type_name) == (numeric, mod_10_2, "public.fine")
    assert (columns["c"].base_oid, columns["c"].type_mod) == (numeric_array, mod_10_2)
    assert columns["d"].type_name == "numeric(5,1)"
    assert columns["e"].type_name == "character varying(7)"
    assert columns["h"].type_name == "timestamp(3) with time zone"
    assert columns["f"].base_oid == columns["f"].type_oid
    assert columns["g"].base_oid == 1007


def test_a_relation_can_be_asked_for_again(admin, typed):
    assert relation_by_oid(admin, typed.oid) == typed
    admin.execute("ALTER TABLE public.typed ADD later text; ALTER TABLE public.typed REPLICA IDENTITY FULL")
    again = relation_by_oid(admin, typed.oid)
    assert again.columns == (*typed.columns, again.columns[-1])
    assert again.identity == "f"
    admin.execute("DROP TABLE public.typed")
    assert relation_by_oid(admin, typed.oid) is None


def test_a_deferrable_key_is_no_key(admin):
    admin.execute("CREATE TABLE public.later (id int PRIMARY KEY DEFERRABLE)")
    [relation] = load_relations(admin, ["public.later"])
    assert relation.key == ()


def test_hostile_names_are_found_by_exactly_their_pattern(admin):
    name = HOSTILE_TABLE.replace('"', '""')
    [relation] = load_relations(admin, [f'"{HOSTILE_SCHEMA}"."{name}"'])
    assert (relation.schema, relation.name) == (HOSTILE_SCHEMA, HOSTILE_TABLE)
    assert [column.name for column in relation.key] == ['Key " 1', "select"]
    assert load_relations(admin, [f'"{HOSTILE_SCHEMA}".*']) == [relation]


def test_patterns_take_tables_in_and_out(admin):
    names = [
        relation.name for relation in load_relations(admin, ["public.order*", "public.secret?"], ["public.*items"])
    ]
    assert names == ["orders", "secrets"]


def test_roots_stand_for_their_partitions(admin):
    wanted, besides = match_tables(admin, ["public.events*"])
    assert [table.name for table in wanted] == ["events"]
    assert {(table.name, table.unfit) for table in besides} == {
        ("events_2025", Unfit.PARTITION),
        ("events_later", Unfit.PARTITION),
    }


def test_system_tables_are_never_meant(admin):
    schemas = {relation.schema for relation in load_relations(admin, ["*.*"])}
    assert schemas == {"public", HOSTILE_SCHEMA}


@pytest.mark.parametrize(
    ("pattern", "code", "hint"),
    [
        ("public.oders", "UNKNOWN_TABLE", "public.orders"),
        ("publc.orders", "UNKNOWN_TABLE", "public.orders"),
        ("public.Orders", "UNKNOWN_TABLE", "public.orders"),
        ("public.zzz*", "UNKNOWN_TABLE", "public.documents"),
        ("public.events_2025", "NOT_A_TABLE", "roots"),
        ("public.events_*", "NOT_A_TABLE", "roots"),
        ("public.open", "NOT_A_TABLE", "ordinary tables"),
        ("orders", "TABLE_PATTERN", "public.orders"),
    ],
)
def test_a_pattern_without_a_table_is_refused(admin, pattern, code, hint):
    admin.execute("CREATE VIEW public.open AS SELECT * FROM public.orders WHERE NOT paid")
    with pytest.raises(ConfigError) as refused:
        load_relations(admin, [pattern])
    assert refused.value.code == code
    assert hint in refused.value.hint


def test_a_table_of_many_columns_and_a_table_of_none(admin):
    columns = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(f"c{number}")) for number in range(1500))
    admin.execute(sql.SQL("CREATE TABLE public.wide (id int PRIMARY KEY, {})").format(columns))
    admin.execute("CREATE TABLE public.bare ()")
    bare, wide = load_relations(admin, ["public.wide", "public.bare"])
    assert len(wide.columns) == 1501
    assert bare.columns == ()
