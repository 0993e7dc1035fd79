"""The views of a soak, each of which its file can declare in two ways."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.pipelines import Pipeline
from tests.support.wait import wait_until

VIEWS: Final = {
    "paid_orders": "-- sinks: delta, search, cache\nSELECT id, customer, amount FROM orders WHERE paid",
    "basket": "-- sinks: search, cache\n"
    "SELECT o.id, o.amount, count(i.line) AS items, sum(i.quantity) AS pieces FROM orders o "
    "LEFT JOIN order_items i ON i.order_id = o.id GROUP BY o.id, o.amount",
    "large_baskets": "-- sinks: delta, cache\nSELECT id, pieces FROM basket WHERE pieces > 2",
    "totals": "SELECT paid, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY paid",
}
"""A view over two tables with followers, one on top of it, an aggregate, and one that is not a query."""
OTHERWISE: Final = {
    "paid_orders": ("amount FROM", "amount, paid FROM"),
    "basket": ("sum(i.quantity) AS pieces FROM", "sum(i.quantity) AS pieces, max(i.quantity) AS most FROM"),
    "large_baskets": ("pieces > 2", "pieces > 3"),
    "totals": ("count(*) AS orders", "count(*) AS orders, max(id) AS last"),
}
"""What their files have in one place, and what in its place when they are declared otherwise."""


def declare_otherwise(pipeline: Pipeline, view: str) -> None:
    """Its file says one thing, or the other."""
    file = pipeline.settings.views / f"{view}.sql"
    text, (one, other) = file.read_text(), OTHERWISE[view]
    written = file.with_suffix(".new")
    written.write_text(text.replace(other, one) if other in text else text.replace(one, other))
    written.rename(file)


def await_declared(pipeline: Pipeline, within_s: float) -> None:
    """Until every view is shown as its file says."""

    def waiting() -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(pipeline.run("status", "--json").stdout)["changed"]
        return changed

    wait_until(lambda: not waiting(), what="views as their files say", timeout_s=within_s)
