"""The captured tables as one session of capture sees them: their shapes, topics, encoders and schema records.

In: settings and the catalogue. Out: what is made of a table's rows and shape. Keeps true: a column's rule takes effect
in every record, since nothing else makes encoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.changes import Relation, Trouble
from cdc.envelope import TableEncoder
from cdc.names import topic_name
from cdc.privacy import Privacy
from cdc.schema_record import SchemaRecord


@dataclass(frozen=True, slots=True)
class Tables:
    """What is captured: relations by oid, as announced, the topics' partition count, which columns must not leave."""

    pipeline: str
    database: str
    partitions: int
    relations: Mapping[int, Relation]
    privacy: Privacy = field(default_factory=Privacy)
    stopped: Mapping[int, str] = field(default_factory=dict)
    """Topics of the tables that the progress record calls stopped, by oid."""
    seen: frozenset[int] = frozenset()
    """Every table that was there when the session began; others in the log are worth a look."""

    @property
    def topics(self) -> list[str]:
        """Of all tables."""
        return [self.topic(relation) for relation in self.relations.values()]

    def topic(self, relation: Relation) -> str:
        """The topic that holds a table."""
        return topic_name(self.pipeline, relation.schema, relation.name)

    def encoder(self, relation: Relation) -> TableEncoder:
        """The encoder for a relation's rows; the one place where a column's rule takes effect."""
        treatments = self.privacy.treatments(relation)
        return TableEncoder(self.pipeline, self.database, relation, self.partitions, treatments)

    def conceals_key(self, relation: Relation) -> bool:
        """Whether a column of the key is hashed or masked: how far a table is read can't be written down as a key."""
        return bool(self.privacy.treatments(relation).keys() & {column.name for column in relation.key})

    def schema_record(self, relation: Relation, lsn: int, stopped: Trouble | None = None) -> SchemaRecord:
        """The schema record for a relation, with the reason if it is not followed any more."""
        rules = self.privacy.fingerprint(relation.schema, relation.name)
        published = self.privacy.published(relation)
        return SchemaRecord(lsn, published, self.topic(relation), self.partitions, rules, stopped)
