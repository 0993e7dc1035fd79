"""Identifiers as Postgres reads them: ASCII letters fold to lower case unless quoted, others stay."""

from __future__ import annotations

from sqlglot import exp


def fold(name: str) -> str:
    """An unquoted identifier."""
    return "".join(char.lower() if char.isascii() else char for char in name)


def identifier(node: exp.Expr) -> str:
    """An identifier of a parsed statement."""
    return str(node.this) if node.args.get("quoted") else fold(str(node.this))
