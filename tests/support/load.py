"""Random transactions over every captured table, from a seed, in a thread: the weather in which faults are tested."""

from __future__ import annotations

import threading
from random import Random
from types import TracebackType
from typing import Any

import psycopg

from cdc.postgres import connect
from cdc.settings import Settings
from tests.support.servers import CANARY

HOSTILE = '"we.ird *Schema"."""; drop table x; --/../é"'


class Load:
    """Use in a `with`; an error of a statement is raised at its end."""

    def __init__(self, settings: Settings, seed: int, *, pause_s: float = 0.004) -> None:
        self._settings = settings
        self._random = Random(seed)
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        source = self._settings.source
        assert source.admin is not None
        try:
            with connect(source, source.admin) as connection:
                while not self._stop.wait(self._pause_s):
                    self._transaction(connection)
                    self.transactions += 1
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction() as transaction:
            for _ in range(self._random.randint(1, 6)):
                statement, values = self._statement(self._random.randint(1, 400))
                connection.execute(statement.encode(), values)
            if self._random.random() < 0.1:
                raise psycopg.Rollback(transaction)

    def _statement(self, key: int) -> tuple[str, list[Any]]:
        random = self._random
        match random.randint(0, 9):
            case 0 | 1 | 2:
                return (
                    "INSERT INTO public.orders VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id) DO UPDATE "
                    "SET amount = excluded.amount, paid = excluded.paid",
                    [
                        key,
                        f"{CANARY}{key} ‘é’\t\\",
                        random.randint(-999, 999) / 100,
                        random.choice([True, False, None]),
                    ],
                )
            case 3:
                return "DELETE FROM public.orders WHERE id = %s", [key]
            case 4:
                return (
                    "UPDATE public.orders SET id = %s WHERE id = %s AND NOT EXISTS "
                    "(SELECT 1 FROM public.orders WHERE id = %s)",
                    [key + 1000, key, key + 1000],
                )
            case 5 | 6:
                return (
                    "INSERT INTO public.order_items VALUES (%s, %s, %s, %s) ON CONFLICT (line, order_id) "
                    "DO UPDATE SET quantity = excluded.quantity",
                    [key, random.randint(1, 4), random.choice([None, "", "p"]), random.randint(0, 3)],
                )
            case 7:
                return (
                    "INSERT INTO public.events VALUES (%s, %s, %s) ON CONFLICT (id, day) DO UPDATE SET note = "
                    "excluded.note",
                    [key % 50, random.choice(["2025-06-01", "2026-06-01"]), random.choice(["n", None])],
                )
            case 8:
                return (
                    f'INSERT INTO {HOSTILE} VALUES (%s, %s, %s, %s) ON CONFLICT ("Key "" 1", "select") '
                    'DO UPDATE SET "a.b`c" = excluded."a.b`c"',
                    [f"k\t{key % 30}", key % 3, random.choice(["v", None, "\\N"]), "é"],
                )
            case _:
                return "DELETE FROM public.order_items WHERE order_id = %s", [key]
