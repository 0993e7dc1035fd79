"""ORDER BY, as Spark must be told so that it orders as Postgres does.

In: the items of an ORDER BY. Out: texts such as `c3 DESC NULLS FIRST`, and what they order by. Keeps true: NULLs stand
where Postgres puts them; a type whose order the engines do not share is refused.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from jobs.declare.literals import settle
from jobs.declare.operators import NUMBERS, ORDERED, REMEDIES
from jobs.declare.rows import Rows
from jobs.plan.types import Family, Typed

_SURE: Final = ORDERED | NUMBERS | {Family.FLOAT, Family.TEXT}


def direction(node: exp.Ordered) -> str:
    """ASC puts NULLs last and DESC first, unless it is said."""
    is_desc = bool(node.args.get("desc"))
    first = node.args.get("nulls_first")
    nulls = is_desc if first is None else bool(first)
    return f"{'DESC' if is_desc else 'ASC'} NULLS {'FIRST' if nulls else 'LAST'}"


def require_sure_order(rows: Rows, node: exp.Expr, typed: Typed) -> Typed:
    """A value that both engines order alike."""
    found = settle(typed)
    if found.type.family is Family.TEXT and not found.c_collated:
        hint = 'write ORDER BY column COLLATE "C"'
        raise rows.context.refuse(node, "the order of texts depends on the database's collation", hint)
    if found.type.family not in _SURE:
        hint = REMEDIES.get(found.type.family, "order by a number, a date or a timestamp")
        raise rows.context.refuse(node, f"the order of {found.type.name} is not supported in views", hint)
    return found
