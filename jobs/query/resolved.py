"""A query as the engine runs it, and the one that needs no parser: all of a table.

In: a name of the ledger. Out: SQL over registered names, and what each of these stands for. Keeps true: the engine
knows no other table than those that are named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.names import quote_ident

REGISTERED: Final = "afterimage_table_{}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """`tables` maps the engine's names to the ledger's; `guarded` is the same query for plans that lose a limit."""

    sql: str
    guarded: str
    tables: Mapping[str, str]


def whole_table(name: str, columns: Sequence[str] | None, where: str | None) -> Resolved:
    """These columns (or all) of a table that the ledger calls so, and the rows for which the condition holds."""
    engine = REGISTERED.format(0)
    sql = selected(f"{engine} AS {quote_ident(name.rpartition('.')[2])}", columns, where)
    return Resolved(sql, sql, {engine: name})


def selected(table: str, columns: Sequence[str] | None, where: str | None) -> str:
    """The SELECT."""
    listed = "*" if columns is None else ", ".join(map(quote_ident, columns))
    condition = "" if where is None else f" WHERE {where}"
    return f"SELECT {listed} FROM {table}{condition}"  # noqa: S608 - the caller's own SQL, and it only reads
