"""Which views keep a tally of their groups, and what is in it."""

from __future__ import annotations

import pytest

from jobs.upkeep.planning import Cost
from jobs.upkeep.tables import Tables
from jobs.upkeep.tallying import signed
from jobs.upkeep.verdict import Mode, verdict
from sinks.spec import HIDDEN
from tests.support.view_specs import declare


@pytest.mark.parametrize(
    ("sql", "kept"),
    [
        ("SELECT status, count(*) AS n FROM orders GROUP BY status", ["count"]),
        ("SELECT status, count(*) AS n, sum(id) AS ids FROM orders GROUP BY status", ["count"]),
        ("SELECT status, sum(id) AS ids FROM orders GROUP BY status", ["count", "count"]),
        ("SELECT status, sum(customer_id) AS s, count(customer_id) AS n FROM orders GROUP BY status", ["count"]),
        ("SELECT status, avg(id) AS mean FROM orders GROUP BY status", ["sum", "count", "count", "count"]),
        ("SELECT status, count(*) AS n, max(id) + 1 AS next FROM orders GROUP BY status", ["max", "count"]),
        ("SELECT status, bool_and(id > 3) AS late, min(id) AS first FROM orders GROUP BY status", ["count"]),
        ("SELECT status, count(*) FILTER (WHERE id > 3) AS late FROM orders GROUP BY status", ["count"]),
        ("SELECT count(*) AS n, sum(id) AS ids FROM orders WHERE status = 'paid'", ["count"]),
        ("SELECT DISTINCT status FROM orders", ["count"]),
        (
            "SELECT c.city, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.city",
            ["count"],
        ),
        ("SELECT left(status, 1) AS s, count(*) AS n FROM orders GROUP BY left(status, 1)", ["count"]),
    ],
)
def test_what_is_kept_beside_the_columns(sql: str, kept: list[str]):
    spec = declare(sql)
    assert [column.name for column in spec.plan.tally.hidden] == kept
    assert len(spec.hidden) == len(kept)
    assert all(name.startswith(HIDDEN) for name in spec.hidden)
    found = verdict(spec.plan)
    assert found.mode is Mode.TALLIED
    assert set(found.costs.values()) == {Cost.TALLIED}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT status, count(*) AS n FROM orders GROUP BY status HAVING count(*) > 1",
        "-- key: n\nSELECT count(*) AS n FROM orders GROUP BY status",
        "SELECT status, count(DISTINCT id) AS n FROM orders GROUP BY status",
        "SELECT status, string_agg(status, ',' ORDER BY id) AS all FROM orders GROUP BY status",
        "SELECT c.id, count(o.id) AS n FROM customers c LEFT JOIN orders o ON o.customer_id = c.id GROUP BY c.id",
        "SELECT status, count(*) AS n FROM orders WHERE customer_id IN (SELECT id FROM customers) GROUP BY status",
        "SELECT n, count(*) AS m FROM (SELECT status, count(*) AS n FROM orders GROUP BY status) s GROUP BY n",
        "-- refresh: full\nSELECT status, count(*) AS n FROM orders GROUP BY status",
        "-- key: status\nSELECT status, customer_id, count(*) AS n FROM orders GROUP BY status, customer_id",
        "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id",
    ],
)
def test_no_tally(sql: str):
    spec = declare(sql)
    assert spec.plan.tally is None
    assert spec.hidden == ()


def test_a_tally_makes_another_declaration():
    one, other = (declare(f"{header}SELECT status, sum(id) AS n FROM orders GROUP BY status") for header in ("", FULL))
    assert one.columns == other.columns
    assert one.fingerprint != other.fingerprint


FULL = "-- refresh: full\n"


def test_of_a_join_later_inputs_are_read_as_they_were():
    spec = declare(
        "SELECT c.city, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.city"
    )
    tables = Tables(spec.relations)
    one, both = (signed(spec.plan.tally, tables, changed) for changed in (["public.orders"], spec.relations))
    assert (one.is_exact, one.before) == (True, frozenset())
    assert (both.is_exact, both.before) == (False, frozenset({"public.customers"}))
