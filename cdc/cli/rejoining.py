"""What a session of capture does before it streams, carried out: cdc.rejoining's effects against Postgres and Kafka.

In: the effects. Out: the record to stream from, committed. An error ends the session, but for what is one table's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from cdc.effects import Commit, Produce, Seal
from cdc.evolution import joining
from cdc.log import get
from cdc.look import Look
from cdc.lsn import format_lsn
from cdc.progress import Progress
from cdc.publisher import Publisher
from cdc.rejoining import Copy, Effect, Make, Measure, Rejoining, Size, Tell
from cdc.settings import Settings
from cdc.tables import Tables
from cdc.topics import Topics, table_topic
from snapshot.sizes import fits_chunks, table_sizes
from snapshot.table import table_at_cut

_log = get(__name__)


@dataclass(frozen=True, slots=True)
class RejoiningDriver:
    """One session's."""

    settings: Settings
    tables: Tables
    topics: Topics
    publisher: Publisher
    before_commit: Callable[[], None]
    connection: psycopg.Connection[Any]

    def run(self, rejoining: Rejoining, look: Look) -> Progress:
        """All of it; the record to stream from."""
        effects = rejoining.run(look)
        answer: Any = None
        while True:
            try:
                effect = effects.send(answer)
            except StopIteration:
                return rejoining.progress
            answer = self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Measure():
                sizes = table_sizes(self.connection, effect.relations)
                return {
                    relation.oid: Size(size.rows, fits_chunks(self.tables, relation, size))
                    for relation in effect.relations
                    if (size := sizes[relation.oid])
                }
            case Tell():
                return self._tell(effect)
            case Make():
                return self._make(effect.topic)
            case Copy():
                _log.info("table is read", table=effect.relation.qualified)
                return table_at_cut(self.settings, effect.relation.oid, self.tables.privacy)
            case Produce():
                return self.publisher.produce(effect.records)
            case Seal():
                return self.publisher.seal()
            case Commit():
                self.before_commit()
                return self.publisher.commit(effect.progress)

    def _tell(self, effect: Tell) -> None:
        record = effect.record
        self.publisher.announce(record.key(), None if effect.is_gone else record.value())
        table, lsn, trouble = record.relation.qualified, format_lsn(record.lsn), record.stopped
        if effect.is_gone:
            _log.info("table given up", table=table)
        elif trouble is None:
            _log.info("table has joined", table=table, lsn=lsn)
        elif record.following is not None or trouble == joining(record.relation):
            _log.info("table joins", table=table, lsn=lsn)
        else:
            _log.warning("table stops alone", table=table, code=trouble.code, reason=trouble.message)

    def _make(self, topic: str) -> tuple[int, ...]:
        partitions = self.tables.partitions
        self.topics.ensure([table_topic(topic, partitions)])
        return tuple(self.topics.ends({topic: partitions})[topic])
