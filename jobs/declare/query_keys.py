"""The key of a view over several tables: proved from the query, or declared and checked at every refresh.

In: a header, a plan, the outputs by name. Out: the key's attributes and why it is one. Keeps true: a key without a
proof is told as such; a view of which nothing is known to be unique is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.nearest import suggestion
from jobs.declare.facts import minimal
from jobs.declare.header import Header
from jobs.declare.relations import KEY
from jobs.declare.resolution import Resolution
from jobs.declare.uniqueness import facts
from jobs.plan.nodes import Attribute, Plan

_HINT: Final = (
    "select the primary keys of the joined tables, or the columns of GROUP BY; or say what is unique: -- key: a, b"
    " (checked at every refresh)"
)


def query_key(
    resolution: Resolution, header: Header, plan: Plan, outputs: Mapping[str, Attribute]
) -> tuple[tuple[Attribute, ...], str | None]:
    """The key, and its proof if there is one."""
    if header.key is None:
        return _inferred(resolution, plan, outputs)
    for name in header.key:
        if name not in outputs:
            entry = header.entries["key"]
            hint = suggestion(name, outputs, what="columns")
            raise resolution.source.error(
                entry.value_at, f"the view has no column {name}", hint, code=KEY, length=len(entry.value)
            )
    key = tuple(outputs[name] for name in header.key)
    found = facts(plan).key_within(key)
    return key, found.why if found is not None else None


def _inferred(
    resolution: Resolution, plan: Plan, outputs: Mapping[str, Attribute]
) -> tuple[tuple[Attribute, ...], str | None]:
    columns = tuple(outputs.values())
    found = minimal(facts(plan), columns)
    if found is None:
        message = "no key: nothing proves that any columns of the view are unique"
        raise resolution.source.error(0, message, _HINT, code=KEY)
    key, why = found
    # A single row has any column for a key.
    return key or columns[:1], why
