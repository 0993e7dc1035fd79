"""A query's outputs as a view's columns.

In: a resolved query. Out: their names. Keeps true: each has a name of its own, and prints in Delta as in Postgres.
"""

from __future__ import annotations

from jobs.declare.outputs import NAME_BYTES_MAX, OUTPUT
from jobs.declare.resolution import Block, Resolution
from jobs.plan.types import Family


def shown_names(resolution: Resolution, block: Block) -> tuple[str, ...]:
    """The names of the view's columns."""
    names: list[str] = []
    for field, node in zip(block.fields, block.nodes, strict=True):
        name, type_ = field.name, field.attribute.type
        if name is None:
            raise resolution.refuse(node, "this expression has no name", "name it: .. AS name", OUTPUT)
        if name in names:
            hint = "give one of them another name with AS"
            raise resolution.refuse(node, f"the view has two columns {name}", hint, OUTPUT)
        if len(name.encode()) > NAME_BYTES_MAX:
            message = f"Postgres cuts names over {NAME_BYTES_MAX} bytes"
            raise resolution.refuse(node, message, "choose a shorter name", OUTPUT)
        if type_.family is Family.DECIMAL and not type_.fixed:
            hint = f"write literals with the same digits (0.00 for 0), or cast the whole: (..)::{type_.name}"
            message = "Postgres would print these numbers with differing numbers of digits"
            raise resolution.refuse(node, message, hint)
        names.append(name)
    return tuple(names)
