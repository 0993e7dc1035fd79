"""Orders that change at a steady rate, and others that nobody touches, for what is planted into their copies."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

import psycopg

from cdc.postgres import connect
from cdc.settings import Settings
from tests.soak.bed import measured_elsewhere

STILL = range(1_000_002, 1_004_002, 2)
"""Even ones are paid; each has an odd neighbour, so that a transaction may change two rows."""
LIVE_ROWS = 4_000
# A transaction's 20 changes keep the tables' sizes.
CHANGES = 20
STATEMENTS = (
    "INSERT INTO public.orders SELECT g, 'customer ' || g, g / 8.0, g %% 2 = 0, clock_timestamp() "
    "FROM generate_series(%(head)s::bigint + 1, %(head)s + 3) g",
    "UPDATE public.orders SET amount = amount + 1, paid = NOT paid WHERE id BETWEEN %(middle)s AND %(middle)s + 8",
    "DELETE FROM public.orders WHERE id BETWEEN %(tail)s AND %(tail)s + 2",
    "INSERT INTO public.order_items VALUES (%(head)s, 1, 'product', 2)",
    "UPDATE public.order_items SET quantity = quantity %% 4 + 1 WHERE order_id >= %(head)s - 9 AND line = 1 "
    "AND order_id < %(head)s",
    "DELETE FROM public.order_items WHERE order_id = %(head)s - 3000",
)


def fill(admin: psycopg.Connection[Any]) -> None:
    """Both kinds."""
    orders = (
        "INSERT INTO public.orders SELECT g, 'customer ' || g, 0.25, g %% 2 = 0 FROM generate_series(%s::bigint, %s) g"
    )
    admin.execute(orders, (STILL.start, STILL.stop))
    admin.execute(orders, (1, LIVE_ROWS))
    admin.execute("INSERT INTO public.order_items SELECT 3 * g + 1, 1, 'product', 2 FROM generate_series(333, 1332) g")
    admin.execute("ANALYZE")


class Writes:
    """Use in a `with`; an error of a statement is raised at its end."""

    def __init__(self, settings: Settings, rate: float) -> None:
        self._settings = settings
        self._every_s = CHANGES / rate
        self._stop = threading.Event()
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._changes = 0
        self._running_s = 0.0
        self._error: BaseException | None = None

    def __enter__(self) -> Writes:
        self._go.set()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._go.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    @property
    def rate(self) -> float:
        """Changes a second while it was not paused."""
        return self._changes / max(self._running_s, 1e-9)

    def pace(self, rate: float) -> None:
        """From now on; what was counted before is forgotten."""
        self._every_s = CHANGES / rate
        self._changes, self._running_s = 0, 0.0

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    def await_quiet(self) -> None:
        """Neither write nor go on while others measure."""
        if measured_elsewhere():
            self.pause()
            while measured_elsewhere():
                time.sleep(1)
            self.resume()

    def _run(self) -> None:
        assert self._settings.source.admin is not None
        try:
            with connect(self._settings.source, self._settings.source.admin) as connection:
                head = LIVE_ROWS
                while not self._stop.is_set():
                    self._go.wait()
                    began_s = time.monotonic()
                    self._transaction(connection, head)
                    head += 3
                    # Whoever was late makes up for it, for a second at most.
                    late_s = min(1.0, time.monotonic() - began_s)
                    self._stop.wait(max(0.0, self._every_s - late_s))
                    self._running_s += time.monotonic() - began_s
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def _transaction(self, connection: psycopg.Connection[Any], head: int) -> None:
        at = {"head": head, "middle": head - LIVE_ROWS // 2, "tail": head - LIVE_ROWS}
        with connection.transaction():
            for statement in STATEMENTS:
                self._changes += connection.execute(statement.encode(), at).rowcount
