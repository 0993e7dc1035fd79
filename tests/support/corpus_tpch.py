"""A tiny TPC-H: contents from a seed, its two refresh functions, and updates besides.

The names and dates that the queries ask for come often, so that their answers are seldom empty.
"""

from __future__ import annotations

import random
from typing import Any

import psycopg

NATIONS = ("FRANCE", "GERMANY", "RUSSIA", "KENYA", "JAPAN", "BRAZIL")
REGION_OF = {"FRANCE": 3, "GERMANY": 3, "RUSSIA": 3, "KENYA": 0, "JAPAN": 2, "BRAZIL": 1}
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
TYPES = ("ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED TIN", "ECONOMY BRUSHED BRASS")
CONTAINERS = ("SM CASE", "SM BOX", "MED BOX", "MED BAG", "LG JAR")
BRANDS = ("Brand#12", "Brand#23", "Brand#45")
SIZES = (3, 9, 14, 19, 23, 36, 45, 49)
SUPPLIERS, CUSTOMERS, PARTS, ORDERS = 8, 12, 16, 30


class TpchBatches:
    """The same two calls as random batches have."""

    def __init__(self, rng: random.Random, connection: psycopg.Connection[Any]) -> None:
        self._rng = rng
        self._connection = connection
        self._next_order = 1

    def fill(self) -> None:
        """A first content."""
        with self._connection.transaction():
            for at, name in enumerate(REGIONS):
                self._insert("region", at, name, None)
            for at, name in enumerate(NATIONS):
                self._insert("nation", at, name, REGION_OF[name], None)
            for key in range(1, SUPPLIERS + 1):
                self._supplier(key)
            for key in range(1, CUSTOMERS + 1):
                self._customer(key)
            for key in range(1, PARTS + 1):
                self._part(key)
            for _ in range(ORDERS):
                self._order()

    def batch(self) -> None:
        """A refresh function, or a few updates of anything."""
        with self._connection.transaction():
            for step in self._rng.sample((self._rf1, self._rf2, self._updates), self._rng.randint(1, 2)):
                step()

    def _rf1(self) -> None:
        """New orders with their lines."""
        for _ in range(self._rng.randint(1, 3)):
            self._order()

    def _rf2(self) -> None:
        """Old orders go, with their lines."""
        for (key,) in self._all("SELECT o_orderkey FROM orders ORDER BY o_orderkey LIMIT 2"):
            self._run("DELETE FROM lineitem WHERE l_orderkey = %s", key)
            self._run("DELETE FROM orders WHERE o_orderkey = %s", key)

    def _updates(self) -> None:
        rng = self._rng
        changes: list[tuple[str, list[Any]]] = [
            (
                "UPDATE lineitem SET l_quantity = %s, l_discount = %s WHERE l_orderkey % 5 = %s",
                [rng.randint(1, 50), _percent(rng), rng.randrange(5)],
            ),
            ("UPDATE lineitem SET l_suppkey = %s WHERE l_linenumber = 2 AND l_partkey = %s", [self._s(), self._p()]),
            ("UPDATE supplier SET s_nationkey = %s WHERE s_suppkey = %s", [self._n(), self._s()]),
            ("UPDATE supplier SET s_comment = %s WHERE s_suppkey = %s", [_complaint(rng), self._s()]),
            (
                "UPDATE customer SET c_acctbal = %s, c_nationkey = %s WHERE c_custkey = %s",
                [_money(rng), self._n(), self._c()],
            ),
            (
                "UPDATE part SET p_type = %s, p_size = %s WHERE p_partkey = %s",
                [rng.choice(TYPES), rng.choice(SIZES), self._p()],
            ),
            (
                "UPDATE partsupp SET ps_supplycost = %s, ps_availqty = %s WHERE ps_partkey = %s",
                [_money(rng), rng.randint(1, 99), self._p()],
            ),
            ("UPDATE orders SET o_orderdate = o_orderdate + 400 WHERE o_custkey = %s", [self._c()]),
            ("UPDATE orders SET o_custkey = %s WHERE o_orderkey % 7 = %s", [self._c(), rng.randrange(7)]),
            ("DELETE FROM partsupp WHERE ps_partkey = %s AND ps_suppkey = %s", [self._p(), self._s()]),
            ("UPDATE nation SET n_regionkey = 3 - n_regionkey WHERE n_nationkey = %s AND n_regionkey < 4", [self._n()]),
        ]
        for query, values in rng.sample(changes, rng.randint(1, 4)):
            self._run(query.replace("% 5", "%% 5").replace("% 7", "%% 7"), *values)

    def _supplier(self, key: int) -> None:
        rng = self._rng
        phone = f"{10 + key}-555"
        self._insert("supplier", key, f"Supplier#{key}", "here", self._n(), phone, _money(rng), _complaint(rng))

    def _customer(self, key: int) -> None:
        rng = self._rng
        phone = f"{rng.choice((13, 31, 23, 99))}-{key}"
        segment = rng.choice(("BUILDING", "MACHINERY"))
        self._insert("customer", key, f"Customer#{key}", "there", self._n(), phone, _money(rng), segment, "a customer")

    def _part(self, key: int) -> None:
        rng = self._rng
        name = f"{rng.choice(('green', 'dark green', 'red'))} {key}"
        price = _money(rng)
        brand, type_, size = rng.choice(BRANDS), rng.choice(TYPES), rng.choice(SIZES)
        self._insert("part", key, name, "Mfgr#1", brand, type_, size, rng.choice(CONTAINERS), price, "a part")
        for supplier in rng.sample(range(1, SUPPLIERS + 1), 3):
            self._insert("partsupp", key, supplier, rng.randint(1, 99), _money(rng), "a supply")

    def _order(self) -> None:
        rng, key = self._rng, self._next_order
        self._next_order += 1
        day = f"199{rng.randint(2, 5)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        priority = rng.choice(("1-URGENT", "2-HIGH", "5-LOW"))
        comment = rng.choice(("plain", "special wishes and requests"))
        self._insert("orders", key, self._c(), rng.choice("FFO"), _money(rng), day, priority, "Clerk#1", 0, comment)
        for line in range(1, rng.randint(2, 5)):
            self._line(key, line, day)

    def _line(self, order: int, line: int, day: str) -> None:
        rng = self._rng
        pairs = self._all("SELECT ps_partkey, ps_suppkey FROM partsupp ORDER BY 1, 2")
        part, supplier = rng.choice(pairs)
        quantity, price = rng.randint(1, 50), _money(rng)
        shipped, promised, received = rng.randint(1, 60), rng.randint(10, 70), rng.randint(20, 90)
        mode = rng.choice(("AIR", "AIR REG", "MAIL", "SHIP"))
        instruct = rng.choice(("DELIVER IN PERSON", "NONE"))
        self._run(
            "INSERT INTO lineitem VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::date + %s, %s::date + %s,"
            " %s::date + %s, %s, %s, %s)",
            *(order, part, supplier, line, quantity, price, _percent(rng), _percent(rng), rng.choice("RAN")),
            *(rng.choice("OF"), day, shipped, day, promised, day, received, instruct, mode, "a line"),
        )

    def _s(self) -> int:
        return self._rng.randint(1, SUPPLIERS)

    def _c(self) -> int:
        return self._rng.randint(1, CUSTOMERS)

    def _p(self) -> int:
        return self._rng.randint(1, PARTS)

    def _n(self) -> int:
        return self._rng.choice((0, 0, 1, 1, 2, 3, 4, 5))

    def _insert(self, table: str, *values: Any) -> None:
        self._run(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(values))})", *values)

    def _run(self, query: str, *values: Any) -> None:
        self._connection.execute(query.encode(), values)

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode()).fetchall()


def _money(rng: random.Random) -> str:
    return f"{rng.randint(-500, 500_000) / 100:.2f}"


def _percent(rng: random.Random) -> str:
    return rng.choice(("0.00", "0.05", "0.06", "0.07", "0.10"))


def _complaint(rng: random.Random) -> str:
    return rng.choice(("fine", "fine", "many Customer moans and Complaints"))
