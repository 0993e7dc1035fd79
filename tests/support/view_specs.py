"""What a view's text declares over the tables of a shop, or the error that refuses it."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from jobs.declare import declare_views
from jobs.declare.source import Source
from jobs.tables import ColumnInfo, TableInfo
from sinks.spec import ViewSpec


def table(schema: str, name: str, key: list[str], /, **columns: tuple[str, int]) -> TableInfo:
    infos = tuple(ColumnInfo(n, type_, oid, oid, -1, n in key, n not in key) for n, (type_, oid) in columns.items())
    return TableInfo(1, schema, name, 1, "d", tuple(n for n in columns if n in key), infos, f"shop.{schema}.{name}", 2)


INT, BIGINT, TEXT, MONEY = ("integer", 23), ("bigint", 20), ("text", 25), ("numeric(12,2)", 1700)
CUSTOMERS = table("public", "customers", ["id"], id=INT, name=TEXT, city=TEXT, vip=("boolean", 16))
ORDERS = table(
    "public",
    "orders",
    ["id"],
    id=BIGINT,
    customer_id=INT,
    status=TEXT,
    total=MONEY,
    price=("numeric", 1700),
    weight=("double precision", 701),
    mood=("public.mood", 99999),
    data=("jsonb", 3802),
)
ITEMS = table("public", "items", ["order_id", "line"], order_id=BIGINT, line=INT, sku=TEXT, qty=INT)
LOG = table("public", "log", [], line=TEXT)
PEOPLE = TableInfo(
    1,
    "public",
    "people",
    2,
    "d",
    ("id",),
    (ColumnInfo("id", "integer", 23, 23, key=True), ColumnInfo("mail", "text", 25, 25, rule="hash")),
    "shop.public.people",
    2,
)
RELATIONS = {(each.schema, each.table): each for each in (CUSTOMERS, ORDERS, ITEMS, LOG, PEOPLE)}
RELATIONS |= {("a", "twice"): ITEMS, ("b", "twice"): ITEMS}


def declare(text: str, **others: str) -> ViewSpec:
    """The spec of a text, which may read other views."""
    texts = {"view": text, **others}
    sources = {name: Source(f"config/views/{name}.sql", each) for name, each in texts.items()}
    specs = {spec.name: spec for spec in declare_views(sources, RELATIONS, queries=True)}
    return specs["view"]


def refused(text: str, **others: str) -> ConfigError:
    """Why this is no view."""
    with pytest.raises(ConfigError) as caught:
        declare(text, **others)
    return caught.value
