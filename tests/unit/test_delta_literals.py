"""Keys as Spark SQL literals; that Spark reads them back exactly is tested in tests/integration/test_delta_keys.py."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sinks.delta.literals import KeyColumn, keys_predicate, literal, quoted, range_predicate


@pytest.mark.parametrize(
    ("value", "kind", "sql"),
    [
        (True, "boolean", "TRUE"),
        (7, "int", "7"),
        (7, "bigint", "7L"),
        (-(2**63), "bigint", "CAST('-9223372036854775808' AS bigint)"),
        (Decimal("1.50"), "decimal(10,2)", "CAST('1.50' AS decimal(10,2))"),
        (Decimal("1E+3"), "decimal(10,0)", "CAST('1000' AS decimal(10,0))"),
        (float("nan"), "double", "CAST('NaN' AS double)"),
        (float("-inf"), "float", "CAST('-Infinity' AS float)"),
        ('it\'s \\ "x"', "string", "'it\\'s \\\\ \"x\"'"),
        (b"\x00\xff", "binary", "X'00ff'"),
        ("2026-11-18", "date", "DATE'2026-11-18'"),
        ("2026-11-18 10:00:00.5", "timestamp", "TIMESTAMP'2026-11-18 10:00:00.5Z'"),
        ("2026-11-18 10:00:00.5", "timestamp_ntz", "TIMESTAMP_NTZ'2026-11-18 10:00:00.5'"),
    ],
)
def test_literals(value, kind, sql):
    assert literal(value, kind) == sql


def test_one_key_column_is_a_list():
    assert keys_predicate([KeyColumn("id", "int")], [(1,), (2,), (1,)]) == "`id` IN (1, 2)"


def test_several_key_columns_are_tuples_and_lists_to_skip_files_by():
    columns = [KeyColumn("a", "int"), KeyColumn("b`", "string")]
    expected = "`a` IN (1, 2) AND `b``` IN ('x') AND (`a`, `b```) IN ((1, 'x'), (2, 'x'))"
    assert keys_predicate(columns, [(1, "x"), (2, "x")]) == expected


def test_a_range_names_its_column():
    assert range_predicate("t", KeyColumn("id", "bigint"), 1, 9) == "(t.`id` BETWEEN 1L AND 9L OR t.`id` IS NULL)"


def test_names_are_quoted():
    assert quoted("a`b") == "`a``b`"
