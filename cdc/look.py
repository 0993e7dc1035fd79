"""What one look at the tables has found, beside what the topics say of them.

In: relations as the catalogue has them, schema records. Out: what must stop, what must be read. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cdc.changes import Relation, Trouble
from cdc.schema_record import SchemaRecord

Name = tuple[str, str]
Known = Mapping[Name, SchemaRecord]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found; tables by (schema, name)."""

    current: Mapping[Name, Relation]
    """The captured tables that are there and can be followed, whether or not they were captured before."""
    stuck: Mapping[Name, Trouble]
    """Captured tables that can't be followed until a person has acted."""
    changed: Mapping[Name, Trouble]
    """Captured tables that must be read again."""
    gone: frozenset[Name]
    """Captured tables that are neither there nor configured any more."""
    seen: frozenset[int]
    """Every table there is."""

    def summary(self) -> object:
        """What has to be acted on when it is another one than before."""
        codes = {name: trouble.code for name, trouble in self.stuck.items()}
        return codes, self.changed.keys(), self.current.keys(), self.gone


def followed(known: Known, stopped: Collection[str]) -> dict[int, Relation]:
    """The announced relations by oid; of two that had one oid under different names, the one that is followed."""
    records = sorted(known.values(), key=lambda record: record.topic not in stopped)
    return {record.shape.oid: record.shape for record in records}
