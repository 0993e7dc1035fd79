"""The table of docs/SCHEMA_CHANGES.md as code: what each change of a table leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.changes import Column, Part, Relation, Trouble
from cdc.evolution import Effect, verdict

INT, TEXT, VARCHAR, NUMERIC, DOMAIN = 23, 25, 1043, 1700, 20001


def column(name: str, number: int, type_oid: int = TEXT, mod: int = -1, **fields: object) -> Column:
    made = Column(name, type_oid, mod, f"t{type_oid}({mod})", type_oid, False, number=number, version=7)
    return replace(made, **fields)  # type: ignore[arg-type]


ID = column("id", 1, INT, is_key=True, is_nullable=False)
NAME = column("name", 2)
SUM = column("sum", 3, NUMERIC, (10 << 16 | 2) + 4)
BEFORE = Relation(5, "public", "t", "d", (ID, NAME, SUM), (Part(5, 100),))
ROOT = replace(BEFORE, parts=(Part(6, 100), Part(7, 101)))


def shaped(*columns: Column, file: int = 100, before: Relation = BEFORE) -> Relation:
    return replace(before, columns=columns, parts=(Part(5, file),))


NEW = column("new", 4)

FOLLOW = {
    "nothing": BEFORE,
    "a nullable column": shaped(ID, NAME, SUM, NEW),
    "a dropped column": shaped(ID, SUM),
    "one dropped, one added": shaped(ID, SUM, NEW),
    "NOT NULL dropped or set": shaped(ID, replace(NAME, is_nullable=False, version=8), SUM),
    "another replica identity": replace(BEFORE, identity="f"),
    "text to varchar": shaped(ID, replace(NAME, type_oid=VARCHAR, base_oid=VARCHAR, version=8), SUM),
    "a wider numeric": shaped(ID, NAME, replace(SUM, type_mod=(12 << 16 | 2) + 4, version=8)),
    "an unbounded numeric": shaped(ID, NAME, replace(SUM, type_mod=-1, version=8)),
    "VACUUM FULL": shaped(ID, NAME, SUM, file=101),
    "a catalogue that was not asked": replace(BEFORE, parts=()),
}
READ_AGAIN = {
    "a column with a default": shaped(ID, NAME, SUM, replace(NEW, is_filled=True)),
    "a column that is NOT NULL": shaped(ID, NAME, SUM, replace(NEW, is_nullable=False)),
    "a column with a volatile default": shaped(ID, NAME, SUM, NEW, file=101),
    "a column that is gone again": shaped(ID, NAME, SUM, replace(NEW, number=0)),
    "a renamed column": shaped(ID, replace(NAME, name="title"), SUM),
    "swapped names": shaped(ID, replace(SUM, number=2), replace(NAME, number=3)),
    "a column dropped and made again": shaped(ID, NAME, replace(SUM, number=4)),
    "another type": shaped(ID, replace(NAME, type_oid=INT, base_oid=INT, version=8), SUM, file=101),
    "another type by the same rows": shaped(ID, replace(NAME, type_oid=INT, base_oid=INT, version=8), SUM),
    "a narrower varchar": shaped(ID, replace(NAME, type_oid=VARCHAR, base_oid=VARCHAR, type_mod=9, version=8), SUM),
    "a numeric of another scale": shaped(ID, NAME, replace(SUM, type_mod=(12 << 16 | 3) + 4, version=8)),
    "text to varchar of rewritten rows": shaped(ID, replace(NAME, type_oid=VARCHAR, base_oid=VARCHAR), SUM, file=101),
    "a domain": shaped(ID, replace(NAME, type_oid=DOMAIN, version=8), SUM),
    "the same type by an expression": shaped(ID, replace(NAME, version=8), SUM, file=101),
    "another primary key": shaped(replace(ID, is_key=False), replace(NAME, is_key=True), SUM),
}
PARTITIONS = {
    "a new partition": ((*ROOT.parts, Part(8, 102)), Effect.FOLLOW),
    "an attached one": ((*ROOT.parts, Part(8, 102, is_attached=True)), Effect.READ_AGAIN),
    "one that was attached before": ((Part(6, 100, is_attached=True), Part(7, 101)), Effect.FOLLOW),
    "one that is gone": (ROOT.parts[:1], Effect.READ_AGAIN),
    "one that was truncated by itself": ((Part(6, 100), Part(7, 109)), Effect.READ_AGAIN),
}


@pytest.mark.parametrize("after", FOLLOW.values(), ids=FOLLOW)
def test_older_rows_still_say_what_postgres_shows(after: Relation):
    assert verdict(BEFORE, after).effect is Effect.FOLLOW


@pytest.mark.parametrize("after", READ_AGAIN.values(), ids=READ_AGAIN)
def test_older_rows_no_longer_say_what_postgres_shows(after: Relation):
    found = verdict(BEFORE, after)

    assert found.effect is Effect.READ_AGAIN
    assert found.trouble is not None
    assert found.trouble.code == "SCHEMA_CHANGED"
    assert "public.t" in found.trouble.message


@pytest.mark.parametrize(("parts", "effect"), PARTITIONS.values(), ids=PARTITIONS)
def test_partitions(parts: tuple[Part, ...], effect: Effect):
    assert verdict(ROOT, replace(ROOT, parts=parts)).effect is effect


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (replace(BEFORE, name="u"), "TABLE_RENAMED"),
        (replace(BEFORE, schema="other"), "TABLE_RENAMED"),
        (shaped(replace(ID, is_key=False), NAME, SUM), "NO_KEY"),
        (replace(BEFORE, trouble=Trouble("REPLICA_IDENTITY", "m", "r")), "REPLICA_IDENTITY"),
    ],
)
def test_what_needs_a_person(after: Relation, code: str):
    found = verdict(BEFORE, after)

    assert found.effect is Effect.STOP
    assert found.trouble is not None
    assert found.trouble.code == code
    assert found.trouble.remedy
