"""Where a chunk begins and ends, as SQL."""

from __future__ import annotations

from snapshot.key_order import KeyColumn, KeyOrder

PLAIN = tuple(f"OPERATOR(pg_catalog.{sign})" for sign in ("<", "<=", "=", ">=", ">"))
OURS = tuple(f"OPERATOR(public.{sign})" for sign in ("<", "<=", "=", ">=", ">"))


def order(*operators: tuple[str, ...]) -> KeyOrder:
    return KeyOrder([KeyColumn(f'"{name}"', "text", ops) for name, ops in zip("abc", operators, strict=False)])


def test_keys_are_compared_as_rows():
    assert order(PLAIN, PLAIN).after(("x", "it's")) == """("a", "b") > ('x'::text, 'it''s'::text)"""
    assert order(PLAIN).until(("\\",)) == """("a") <= ( E'\\\\'::text)"""


def test_operators_of_extensions_are_named_column_by_column():
    assert order(OURS).after(("x",)) == """("a" OPERATOR(public.>=) 'x'::text AND "a" OPERATOR(public.>) 'x'::text)"""
    assert order(OURS, PLAIN).until(("x", "y")) == (
        """("a" OPERATOR(public.<=) 'x'::text AND ("a" OPERATOR(public.<) 'x'::text OR ("a" OPERATOR(public.=) """
        """'x'::text AND "b" OPERATOR(pg_catalog.<=) 'y'::text)))"""
    )
