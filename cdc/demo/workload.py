"""A shop under load: a seeded stream of transactions over several tables, with updates, deletes and rollbacks.

In: the source and a seed. Out: committed transactions at a steady rate, counted, until stopped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, Final

import psycopg

from cdc.cli.screen import err
from cdc.demo.shop import admin_connection
from cdc.errors import CdcError
from cdc.settings import Settings

CUSTOMERS: Final = 8_000
PRODUCTS: Final = 500
FIRST_NEW_ORDER: Final = 100_000

Connection = psycopg.Connection[Any]


class Workload:
    """Writes in a thread of its own; `transactions` counts what was committed, `rolled_back` what was not."""

    def __init__(self, settings: Settings, *, seed: int = 7, per_second: float = 25.0) -> None:
        self._settings = settings
        self._random = Random(seed)  # noqa: S311  a workload, not a secret
        self._pause_s = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._next_order = FIRST_NEW_ORDER
        self._orders: list[int] = []
        self.counts: Counter[str] = Counter()
        self.error: CdcError | None = None

    def start(self) -> Workload:
        """Begin to write."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the current transaction; raises what ended it earlier."""
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def committed(self) -> int:
        """Transactions committed so far."""
        return sum(count for name, count in self.counts.items() if name != "rolled back")

    def _run(self) -> None:
        try:
            with admin_connection(self._settings.source) as connection:
                self._write(connection)
        except CdcError as error:
            self.error = error
            err.print(f"[red]the workload stopped[/] {error.message}")

    def _write(self, connection: Connection) -> None:
        actions: list[tuple[str, int, Callable[[Connection], None]]] = [
            ("order placed", 40, self._place_order),
            ("order moved on", 20, self._move_order),
            ("price changed", 12, self._change_price),
            ("customer changed", 12, self._change_customer),
            ("order deleted", 6, self._delete_order),
            ("order renumbered", 2, self._renumber_order),
            ("rolled back", 8, self._roll_back),
        ]
        names, weights, functions = zip(*actions, strict=True)
        due_s = time.monotonic()
        while not self._stop.is_set():
            chosen = self._random.choices(range(len(names)), weights)[0]
            functions[chosen](connection)
            self.counts[names[chosen]] += 1
            due_s += self._pause_s
            self._stop.wait(max(0.0, due_s - time.monotonic()))

    def _place_order(self, connection: Connection) -> None:
        """Four tables in one transaction."""
        order, self._next_order = self._next_order, self._next_order + 1
        lines = self._random.randint(1, 4)
        with connection.transaction():
            connection.execute(
                "INSERT INTO orders VALUES (%s, %s, 'placed', 0, %s, now(), NULL)",
                (order, self._random.randint(1, CUSTOMERS), self._random.choice([None, "ring twice", "gift – 🎁"])),
            )
            for line in range(1, lines + 1):
                product = self._random.randint(1, PRODUCTS)
                quantity = self._random.randint(1, 5)
                connection.execute("UPDATE products SET stock = stock - %s WHERE id = %s", (quantity, product))
                connection.execute(
                    "INSERT INTO order_items SELECT %s, %s, id, %s, price FROM products WHERE id = %s",
                    (order, line, quantity, product),
                )
            connection.execute(
                "UPDATE orders SET total = (SELECT sum(quantity * unit_price) FROM order_items WHERE order_id = id) "
                "WHERE id = %s",
                (order,),
            )
        self._orders.append(order)

    def _move_order(self, connection: Connection) -> None:
        order = self._some_order()
        with connection.transaction():
            connection.execute(
                "UPDATE orders SET status = CASE status WHEN 'placed' THEN 'paid' WHEN 'paid' THEN 'shipped' "
                "ELSE 'cancelled' END, ship_on = current_date WHERE id = %s",
                (order,),
            )
            connection.execute(
                "INSERT INTO payments SELECT gen_random_uuid(), id, 'card', total, now()::timestamp, '\\x00ff' "
                "FROM orders WHERE id = %s",
                (order,),
            )

    def _change_price(self, connection: Connection) -> None:
        factor = self._random.choice([Decimal("0.9"), Decimal("1.1")])
        connection.execute(
            "UPDATE products SET price = round(price * %s, 2), active = id %% 13 <> %s WHERE id = %s",
            (factor, self._random.randint(0, 12), self._random.randint(1, PRODUCTS)),
        )

    def _change_customer(self, connection: Connection) -> None:
        connection.execute(
            "UPDATE customers SET credit = credit + %s, newsletter = NOT newsletter WHERE id = %s",
            (self._random.randint(-50, 50), self._random.randint(1, CUSTOMERS)),
        )

    def _delete_order(self, connection: Connection) -> None:
        connection.execute("DELETE FROM orders WHERE id = %s", (self._forget_order(),))

    def _renumber_order(self, connection: Connection) -> None:
        """A change of the key: gone under the old one, there under the new."""
        new, self._next_order = self._next_order, self._next_order + 1
        connection.execute(
            "UPDATE orders SET id = %s WHERE id = %s AND NOT EXISTS (SELECT 1 FROM order_items WHERE order_id = %s)",
            (new, old := self._some_order(), old),
        )
        connection.execute("UPDATE payments SET id = gen_random_uuid() WHERE order_id = %s", (old,))

    def _roll_back(self, connection: Connection) -> None:
        with connection.transaction() as transaction:
            connection.execute("UPDATE customers SET credit = -1 WHERE id < 100")
            connection.execute("DELETE FROM payments WHERE order_id = %s", (self._some_order(),))
            raise psycopg.Rollback(transaction)

    def _some_order(self) -> int:
        return self._random.choice(self._orders) if self._orders else self._random.randint(1, 12_000)

    def _forget_order(self) -> int:
        if len(self._orders) < 20:
            return self._random.randint(1, 12_000)
        return self._orders.pop(self._random.randrange(len(self._orders)))
