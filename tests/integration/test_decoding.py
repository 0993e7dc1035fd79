"""The pure core against what real servers of several versions say: their messages, their printed values, their OIDs."""

from __future__ import annotations

import json
import random
import struct

import pytest
from psycopg import sql

from cdc import oids
from cdc.assembler import Assembler
from cdc.catalog import load_relations
from cdc.changes import UNCHANGED, Op
from cdc.envelope import TableEncoder
from cdc.names import quote_ident, quote_literal
from cdc.pgoutput import LogicalMessage, Origin, RelationMessage, TypeMessage, decode
from cdc.postgres import SESSION
from cdc.values import decode_json, encoder
from tests.support.assembling import row_changes, transactions
from tests.support.servers import fresh_database

VERSIONS = (14, 17, 18)
SETTINGS = "".join(f"SET {name} = {quote_literal(value)};" for name, value in SESSION.items() if name != "search_path")
# (type, expression): what tends to be printed in a way that somebody forgets.
PRINTED = [
    ("bool", "true"),
    ("int2", "-32768"),
    ("int8", "-9223372036854775808"),
    ("oid", "4294967295"),
    *[("float4", f"'{text}'") for text in ("0.1", "-0", "1e6", "999999", "1e-5", "0.0001", "NaN", "-Infinity")],
    *[
        ("float8", f"'{text}'")
        for text in ("0.1", "-0", "1e15", "999999999999999", "1e-5", "5e-324", "NaN", "Infinity")
    ],
    *[("numeric", f"'{text}'") for text in ("1.10", "NaN", "-0.00", "1e400", "1e-300")],
    ("bytea", "decode('00ff5c', 'hex')"),
    ("bytea", "''"),
    *[("timestamp", f"'{text}'") for text in ("2026-11-18 10:40:13.5", "infinity", "0044-03-15 BC", "294276-12-31")],
    *[("timestamptz", f"'{text}'") for text in ("2026-11-18 10:40:13.5+03", "-infinity", "4713-01-01 BC", "90000-1-1")],
    ("date", "'0044-03-15 BC'"),
    ("time", "'24:00:00'"),
    ("timetz", "'24:00:00-15:59'"),
    ("interval", "'-1 year 2 days -00:00:01.5'"),
    ("money", "'-1234567.89'"),
    ("jsonb", """'{"a": [1.00, "\\u00e9", null]}'"""),
    ("json", """'{"a":  1}'"""),
    ("xml", "'<a b=\"1\">é</a>'"),
    ("char(5)", "'ab'"),
    ('"char"', "'a'"),
    ("text", "E'\\\\ \" \\n \\x01 é \U0001f600'"),
    ("inet", "'::1/64'"),
    ("bit(3)", "B'101'"),
    ("int4range", "'[1,5)'"),
    ("point", "'1.5,-2'"),
    ("tsvector", "'a:1 ''b c'''"),
    ("uuid", "'8f14e45f-ceea-467f-a0e6-000000000000'"),
    ("pg_lsn", "'16/B374D848'"),
    ("int4[]", "'{}'"),
    ("int4[]", "'{{1,2},{NULL,4}}'"),
    ("int4[]", "'[-1:1]={1,2,3}'"),
    ("bool[]", "'{t,f,NULL}'"),
    ("float8[]", "'{-0,NaN,1e20,0.1}'"),
    ("bytea[]", "ARRAY['\\x00ff'::bytea, NULL, '']"),
    ("timestamptz[]", "'{2026-11-18 10:40:13.5+03,infinity,0044-03-15 BC}'"),
    ("text[]", "ARRAY['', 'null', 'NULL', NULL, 'a b', 'a,b', '{', '\"', '\\', E'\\v', 'é', ' ', '[1:1]={a}']"),
    ("text[]", "'[0:0]={\"a b\"}'"),
    ("box[]", "ARRAY[box '(1,1),(0,0)', box '(2,2),(1,1)']"),
    ("numeric[]", "'{1.10,NaN}'"),
    ("jsonb[]", 'ARRAY[\'{"a": "b,c"}\'::jsonb]'),
    ("money[]", "ARRAY['-1234.5'::money]"),
]


@pytest.fixture(params=VERSIONS)
def database(request, postgres_major):
    with fresh_database(postgres_major(request.param)) as made:
        yield made


@pytest.fixture
def connection(database):
    with database.connect() as connected:
        connected.execute(SETTINGS)
        yield connected


def round_trip(oid, text):
    return decode_json(oid, json.loads(encoder(oid)(text)))


def test_array_types_are_those_of_the_server(connection):
    found = connection.execute(
        "SELECT a.oid::int8, a.typelem::int8, e.typdelim::text FROM pg_type a JOIN pg_type e ON e.oid = a.typelem"
        " WHERE a.oid < 10000 AND e.typarray = a.oid AND e.typtype <> 'c' AND e.typtype <> 'p'"
    ).fetchall()
    known = oids.ELEMENT_OF
    assert {array: element for array, element, _ in found if array in known} == {
        array: known[array] for array, _, _ in found if array in known
    }
    assert [element for array, element, delimiter in found if delimiter != ","] == [oids.BOX]
    assert {array for array, _, _ in found} - known.keys() <= {3644}  # gtsvector has no input


def test_printed_values_round_trip(connection):
    for type_name, expression in PRINTED:
        query = f"SELECT pg_typeof(v)::oid::int8, format('%s', v) FROM (SELECT ({expression})::{type_name} AS v) q"
        ((oid, text),) = connection.execute(query).fetchall()
        assert round_trip(oid, text) == text, type_name


def test_random_floats_print_as_here(connection):
    seeded = random.Random(20261118)
    doubles = [struct.unpack(">d", seeded.randbytes(8))[0] for _ in range(3000)]
    doubles += [seeded.uniform(-1, 1) * 10 ** seeded.randint(-8, 20) for _ in range(3000)]
    doubles += [2.0**power for power in range(-1074, 1024)] + [float(5**power) for power in range(1, 440)]
    doubles += [float(seeded.randrange(2**53, 2**62)) for _ in range(20_000)]
    for type_name, oid in (("float8", oids.FLOAT8), ("float4", oids.FLOAT4)):
        fits = [value for value in doubles if value == value and (oid == oids.FLOAT8 or 1e-37 < abs(value) < 1e38)]
        texts = connection.execute(
            f"SELECT format('%%s', v::{type_name}) FROM unnest(%s::float8[]) AS v", [fits]
        ).fetchall()
        assert len(texts) > 2000
        assert [round_trip(oid, text) for (text,) in texts] == [text for (text,) in texts]


def test_random_text_arrays_print_as_here(connection):
    seeded = random.Random(20261118)
    alphabet = 'ab{}",\\ \t\n\v\fNULnul[]=é'
    for _ in range(300):
        values = [
            seeded.choice([None, "".join(seeded.choices(alphabet, k=seeded.randint(0, 6)))])
            for _ in range(seeded.randint(1, 6))
        ]
        ((text,),) = connection.execute("SELECT format('%%s', %s::text[])", [values]).fetchall()
        assert json.loads(encoder(1009)(text)) == values
        assert round_trip(1009, text) == text


def test_quoting_is_the_servers(connection):
    for text in ["it's", "a\\'b", '"; drop table x; --/../é', "\\", "é\n"]:
        ((back,),) = connection.execute(f"SELECT {quote_literal(text)}".encode()).fetchall()
        assert back == text
        cursor = connection.execute(f"SELECT 1 AS {quote_ident(text)}".encode())
        assert cursor.description[0].name == text


def peeked(connection, publication="p", slot="s"):
    """What the server's pgoutput wrote, as SQL hands it out: the very bytes of the replication stream."""
    rows = connection.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
        " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
        [slot, publication],
    )
    return [bytes(row[0]) for row in rows]


DDL = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN score AS int CHECK (VALUE >= 0);
CREATE TABLE plain (id int PRIMARY KEY, name text, feeling mood, points score, big text);
CREATE TABLE whole (id int PRIMARY KEY, name text, big text);
ALTER TABLE plain ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE plain, whole;
SELECT pg_create_logical_replication_slot('s', 'pgoutput');
"""
WORK = [
    "INSERT INTO plain VALUES (1, 'Ada', 'sad', 3, repeat('x', 9000)), (2, NULL, NULL, NULL, NULL)",
    "UPDATE plain SET name = 'Ada L.' WHERE id = 1",
    "UPDATE plain SET id = 3 WHERE id = 2",
    "DELETE FROM plain WHERE id = 3",
    "INSERT INTO whole VALUES (1, 'é', repeat('y', 9000))",
    "UPDATE whole SET name = 'è' WHERE id = 1",
    "UPDATE whole SET id = 2 WHERE id = 1",
    "BEGIN; SAVEPOINT a; INSERT INTO plain VALUES (9); ROLLBACK TO a; DELETE FROM whole; COMMIT",
    "BEGIN; INSERT INTO plain VALUES (10); ROLLBACK",
    "SELECT pg_logical_emit_message(true, 'p', 'within'), pg_logical_emit_message(false, 'p', 'without')",
    "TRUNCATE plain, whole RESTART IDENTITY CASCADE",
]


@pytest.fixture
def worked(connection):
    for statement in DDL.split(";\n"):
        connection.execute(statement)
    for statement in WORK:
        connection.execute(statement)
    return connection


def test_every_message_of_a_real_stream_decodes(worked):
    messages = [decode(payload) for payload in peeked(worked)]
    (first, *_) = [message for message in messages if isinstance(message, RelationMessage)]
    assert (first.schema, first.name, first.identity) == ("public", "plain", "d")
    assert [column.in_identity for column in first.columns] == [True, False, False, False, False]
    assert {message.name for message in messages if isinstance(message, TypeMessage)} == {"mood", "int4"}
    assert [message.content for message in messages if isinstance(message, LogicalMessage)] == [b"without", b"within"]
    assert not any(isinstance(message, Origin) for message in messages)


def test_a_real_stream_becomes_its_transactions(worked, tmp_path):
    relations = {relation.oid: relation for relation in load_relations(worked, ["public.*"])}
    assembler = Assembler(lambda message: relations[message.oid], spill_directory=tmp_path, spill_bytes=10_000)
    done = [each for payload in peeked(worked) if (each := assembler.feed(payload)) is not None]
    assert [each.content for each in done if isinstance(each, LogicalMessage)] == [b"without"]
    changes = []
    for transaction in done:
        if isinstance(transaction, LogicalMessage):
            continue
        assert transaction.end_lsn > transaction.commit_lsn
        with transaction:
            changes += [(transaction.origin, change) for change in row_changes(transaction)]
    assert not assembler.in_transaction
    told = [(change.op, change.relation.name, change.old_is_key, change.old, change.new) for _, change in changes]
    x, y = "x" * 9000, "y" * 9000
    assert told == [
        (Op.CREATE, "plain", False, None, ("1", "Ada", "sad", "3", x)),
        (Op.CREATE, "plain", False, None, ("2", None, None, None, None)),
        (Op.UPDATE, "plain", False, None, ("1", "Ada L.", "sad", "3", UNCHANGED)),
        (Op.UPDATE, "plain", True, ("2", None, None, None, None), ("3", None, None, None, None)),
        (Op.DELETE, "plain", True, ("3", None, None, None, None), None),
        (Op.CREATE, "whole", False, None, ("1", "é", y)),
        (Op.UPDATE, "whole", False, ("1", "é", y), ("1", "è", UNCHANGED)),
        (Op.UPDATE, "whole", False, ("1", "è", y), ("2", "è", UNCHANGED)),
        (Op.DELETE, "whole", False, ("2", "è", y), None),
        (Op.TRUNCATE, "plain", False, None, None),
        (Op.TRUNCATE, "whole", False, None, None),
    ]
    origin, key_change = changes[7]
    encoder_of_whole = TableEncoder("shop", "db", key_change.relation, 2)
    gone, tombstone, created = encoder_of_whole.change_records(key_change, origin, 3, 0)
    assert json.loads(gone.value)["before"] == {"id": 1, "name": "è", "big": y}
    assert (tombstone.key, tombstone.value) == (b'{"id":1}', None)
    assert json.loads(created.value)["after"] == {"id": 2, "name": "è", "big": y}


def test_a_real_hostile_table(connection, tmp_path):
    schema, table, column = "s\"'.", '"; drop table x; --/../é', "c'\"{}\\"
    names = [sql.Identifier(schema), sql.Identifier(schema, table), sql.Identifier(column)]
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(names[0]))
    connection.execute(sql.SQL("CREATE TABLE {} ({} text PRIMARY KEY)").format(names[1], names[2]))
    connection.execute(sql.SQL("CREATE PUBLICATION p FOR TABLE {}").format(names[1]))
    connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
    connection.execute(sql.SQL("INSERT INTO {} VALUES ('{{}}')").format(names[1]))
    ((oid,),) = connection.execute("SELECT %s::regclass::oid::int8", [names[1].as_string()]).fetchall()
    (relation,) = [each for each in load_relations(connection, ["*.*"]) if each.oid == oid]
    assembler = Assembler(lambda _: relation, spill_directory=tmp_path, spill_bytes=10_000)
    (transaction,) = transactions(assembler, peeked(connection))
    (change,) = row_changes(transaction)
    (record,) = TableEncoder("shop", "db", relation, 2).change_records(change, transaction.origin, 1, 0)
    assert json.loads(record.key) == {column: "{}"}
    assert json.loads(record.value)["source"]["table"] == table
