"""WITH: names for queries.

In: a query's WITH. Out: what its names stand for. Keeps true: a name is a query that each mention computes for itself,
which is the same rows, since no query here depends on anything but the tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlglot import exp

from jobs.declare.resolution import Around, Named, Resolution
from jobs.identifiers import identifier

_CTE: Final = frozenset({"this", "alias", "materialized"})


def with_names(resolution: Resolution, query: exp.Expr, around: Around) -> Around:
    """What the query stands in, with the names of its own WITH."""
    with_ = query.args.get("with_")
    if with_ is None:
        return around
    if with_.args.get("recursive"):
        raise resolution.refuse(with_, "WITH RECURSIVE is not supported in views", "follow the links when reading")
    for cte in with_.expressions:
        resolution.only(cte, _CTE, "WITH", "write name AS (SELECT ..)")
        alias = cte.args["alias"]
        if not isinstance(cte.this, exp.Query):
            raise resolution.refuse(cte, "WITH holds queries alone in views", "write name AS (SELECT ..)")
        columns = tuple(identifier(each) for each in alias.args.get("columns") or [])
        named = Named(cte.this, columns, around)
        # Also where nobody mentions it: it must be right, and Postgres's text names its tables with their schemas.
        resolution.block(resolution, cte.this, around)
        around = replace(around, named={**around.named, identifier(alias.this): named})
    return around
