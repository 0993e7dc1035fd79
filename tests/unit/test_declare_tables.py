"""Table descriptions survive the schema topic; anything else is refused."""

from __future__ import annotations

import json

import pytest

from cdc.errors import ProtocolError
from cdc.nearest import nearest, suggestion
from jobs.tables import ColumnInfo, TableInfo

TABLE = TableInfo(
    lsn=0x16B3748,
    schema="Sho p",
    table='o"rders',
    oid=16400,
    identity="d",
    key=("id",),
    columns=(
        ColumnInfo("id", "bigint", 20, 20, -1, key=True, nullable=False),
        ColumnInfo("naïve", "numeric(10,2)", 1700, 1700, 655366),
    ),
    topic="shop.public.orders",
    partitions=2,
)


def test_a_table_survives_its_json():
    assert TableInfo.from_json(TABLE.to_json()) == TABLE


def test_the_position_may_be_a_number():
    value = json.loads(TABLE.to_json())
    assert TableInfo.from_json(json.dumps(value | {"lsn": TABLE.lsn})) == TABLE


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"lsn":"x"}', TABLE.to_json().replace('"key":["id"]', '"key":["naïve"]')]
)
def test_another_shape_is_a_protocol_error(text):
    with pytest.raises(ProtocolError):
        TableInfo.from_json(text)


def test_the_nearest_name():
    assert nearest("statsu", ["status", "total"]) == "status"
    assert nearest("STATUS", ["status"]) == "status"
    assert nearest("zzz", ["status"]) is None
    assert suggestion("statsu", ["status"]) == "did you mean status?"
    assert suggestion("zzz", ["b", "a"], what="columns") == "known columns: a, b"
    assert suggestion("zzz", [], what="columns") == "there are no columns"
    assert suggestion("q", [f"name{n:02}" for n in range(14)]).endswith("and 2 more")
