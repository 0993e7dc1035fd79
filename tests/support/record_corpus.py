"""`make corpus`: runs one scenario on each Postgres version and records what its walsender sends.

The scenario has every kind of message, and every way in which a row is told; once as version 1 of the protocol, and
once as version 2, which streams large transactions before they commit.
"""

from __future__ import annotations

import select
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq

from cdc.lsn import parse_lsn
from cdc.stack import daemon
from cdc.stack.postgres import Postgres
from tests.support.frame_corpus import write
from tests.support.servers import PostgresServer

VERSIONS = (14, 15, 16, 17, 18)
MODES = {"plain": "proto_version '1'", "streamed": "proto_version '2', streaming 'on'"}
ODD = '"we.ird *Schema"."""; drop table x; --/../é"'
TABLES = {
    "public.plain": "id",
    "public.whole": "id",
    "public.indexed": "id",
    "public.keyless": "note",
    "public.parts": "id, day",
    ODD: '"Key "" 1"',
}
SETUP = f"""
CREATE TYPE public.mood AS ENUM ('fine', 'so so');
CREATE DOMAIN public.price AS numeric(10,2);
CREATE TABLE public.plain (id bigint PRIMARY KEY, note text, long text, m public.mood, p public.price);
CREATE TABLE public.whole (id int PRIMARY KEY, long text, at timestamptz, tags text[], js jsonb, raw bytea);
ALTER TABLE public.plain ALTER long SET STORAGE EXTERNAL;
ALTER TABLE public.whole ALTER long SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE public.indexed (id int PRIMARY KEY, code text NOT NULL, note text);
CREATE UNIQUE INDEX by_code ON public.indexed (code);
ALTER TABLE public.indexed REPLICA IDENTITY USING INDEX by_code;
CREATE TABLE public.keyless (note text);
ALTER TABLE public.keyless REPLICA IDENTITY NOTHING;
CREATE TABLE public.parts (id int, day date, note text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE public.parts_2025 PARTITION OF public.parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE public.parts_later PARTITION OF public.parts DEFAULT;
CREATE SCHEMA "we.ird *Schema";
CREATE TABLE {ODD} ("Key "" 1" text PRIMARY KEY, "é %s {{}}" text, twice int GENERATED ALWAYS AS (2 * 21) STORED);
CREATE PUBLICATION corpus FOR TABLE {", ".join(TABLES)} WITH (publish_via_partition_root = true);
SELECT pg_replication_origin_create('elsewhere');
"""
STATEMENTS = [
    "INSERT INTO public.plain VALUES (1, 'é', repeat('a', 3000), 'fine', 1.5), "
    "(2, NULL, NULL, NULL, NULL), (3, '', '', 'so so', 'NaN')",
    "UPDATE public.plain SET note = 'long is left out' WHERE id = 1",
    "UPDATE public.plain SET id = 20 WHERE id = 2",
    "DELETE FROM public.plain WHERE id = 3",
    "INSERT INTO public.whole VALUES "
    "(1, repeat('b', 3000), '2026-11-18 10:40:13.5+02', '{a,NULL,\"b c\"}', '{\"n\": 1e400}', '\\x00ff'), "
    "(2, NULL, NULL, NULL, NULL, NULL)",
    "UPDATE public.whole SET at = 'infinity' WHERE id = 1",
    "UPDATE public.whole SET id = 3, tags = '{{1,2},{3,4}}' WHERE id = 2",
    "DELETE FROM public.whole WHERE id = 1",
    "INSERT INTO public.indexed VALUES (1, 'one', 'x'), (2, 'two', NULL), (3, 'three', 'y')",
    "UPDATE public.indexed SET code = 'eins' WHERE id = 1",
    "UPDATE public.indexed SET note = 'z' WHERE id = 2",
    "DELETE FROM public.indexed WHERE id = 3",
    "INSERT INTO public.keyless VALUES ('only inserts')",
    "INSERT INTO public.parts VALUES (1, '2025-06-01', 'a'), (2, '2026-06-01', 'b')",
    "UPDATE public.parts SET day = '2026-01-01' WHERE id = 1",
    f"INSERT INTO {ODD} VALUES ('k\t1', 'v'), (E'\\\\N', NULL)",
    f"""UPDATE {ODD} SET "é %s {{}}" = '{{}}' WHERE "Key "" 1" = E'\\\\N'""",
    "SELECT pg_logical_emit_message(true, 'corpus', 'in é')",
    "SELECT pg_logical_emit_message(false, 'corpus', '')",
    "ALTER TABLE public.plain ADD later int DEFAULT 7",
    "UPDATE public.plain SET later = 8 WHERE id = 20",
    "BEGIN; INSERT INTO public.plain VALUES (50, 'never'); ROLLBACK",
    "BEGIN; INSERT INTO public.plain VALUES (60, 'kept'); SAVEPOINT a; INSERT INTO public.plain VALUES (61, 'never'); "
    "ROLLBACK TO a; INSERT INTO public.plain VALUES (62, 'kept'); COMMIT",
    "INSERT INTO public.indexed VALUES (9, 'nine', 'gone')",
    "TRUNCATE public.indexed, public.keyless RESTART IDENTITY CASCADE",
    "TRUNCATE public.keyless",
    # Beyond logical_decoding_work_mem: sent in pieces, one part of it rolled back after it was sent; then one that is
    # rolled back altogether.
    "BEGIN; INSERT INTO public.whole SELECT g, repeat('s', 1500) FROM generate_series(100, 160) g; SAVEPOINT b; "
    "INSERT INTO public.whole SELECT g, repeat('t', 1500) FROM generate_series(500, 560) g; ROLLBACK TO b; "
    "SELECT pg_logical_emit_message(true, 'corpus', 'streamed'); "
    "INSERT INTO public.whole SELECT g, repeat('u', 1500) FROM generate_series(900, 960) g; "
    "DELETE FROM public.whole WHERE id BETWEEN 110 AND 950; COMMIT",
    "BEGIN; INSERT INTO public.plain SELECT g, repeat('n', 1500) FROM generate_series(1000, 1060) g; ROLLBACK",
    "SELECT pg_replication_origin_session_setup('elsewhere'); INSERT INTO public.plain VALUES (70, 'from elsewhere')",
]


def main() -> int:
    """Record all versions."""
    folder = Path(tempfile.mkdtemp(prefix="afterimage-corpus-"))
    folder.chmod(0o755)
    for major in VERSIONS:
        server = Postgres(folder / str(major), major=major, port=0, settings={"logical_decoding_work_mem": "64kB"})
        database = PostgresServer(daemon.start(server)).database()
        try:
            for path in _record(database.conninfo, major):
                sys.stdout.write(f"{path} {path.stat().st_size} bytes\n")
        finally:
            daemon.halt(server)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _record(conninfo: str, major: int) -> list[Path]:
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(SETUP.encode())
        for mode in MODES:
            admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [mode])
    with psycopg.connect(conninfo, autocommit=True) as writer:
        for statement in STATEMENTS:
            writer.execute(statement.encode())
    with psycopg.connect(conninfo, autocommit=True) as admin:
        end = parse_lsn(admin.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0])
        tables = {name: _contents(admin, name, order) for name, order in TABLES.items()}
    return [write(f"{major}-{mode}", tables, _frames(conninfo, mode, end)) for mode in MODES]


def _contents(admin: psycopg.Connection[Any], name: str, order: str) -> list[list[str | None]]:
    columns = [
        row[0]
        for row in admin.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' ORDER BY attnum",
            [name],
        )
    ]
    texts = ", ".join(f"{psycopg.sql.Identifier(column).as_string()}::text" for column in columns)
    return [list(row) for row in admin.execute(f"SELECT {texts} FROM {name} ORDER BY {order}".encode())]


def _frames(conninfo: str, mode: str, end: int) -> list[bytes]:
    """Everything up to a keepalive that stands beyond `end`."""
    connection = pq.PGconn.connect(f"{conninfo} replication=database options='-c TimeZone=UTC'".encode())
    options = f"{MODES[mode]}, publication_names 'corpus', messages 'true'"
    result = connection.exec_(f"START_REPLICATION SLOT {mode} LOGICAL 0/0 ({options})".encode())
    assert result.status == pq.ExecStatus.COPY_BOTH, connection.error_message
    frames: list[bytes] = []
    while True:
        length, data = connection.get_copy_data(1)
        if length == 0:
            assert select.select([connection.socket], [], [], 30)[0], "the walsender is silent"
            connection.consume_input()
            continue
        assert length > 0, connection.error_message
        frames.append(bytes(data))
        if frames[-1][:1] == b"k" and struct.unpack_from(">Q", frames[-1], 1)[0] >= end:
            connection.finish()
            return frames


if __name__ == "__main__":
    sys.exit(main())
