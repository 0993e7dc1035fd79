"""The snapshot with which a pipeline begins, or begins again: a new slot, empty topics, every table.

In: settings and what was decided. Out: the progress record to stream from. Keeps true: nothing is dropped or deleted
by a process that another one has taken over from.
"""

from __future__ import annotations

from cdc.cli.facts import look_at_source
from cdc.errors import OperatorError
from cdc.log import get
from cdc.progress import Progress
from cdc.publisher import Publisher
from cdc.replication import ReplicationConnection
from cdc.resume import SlotState, Start
from cdc.settings import Settings
from cdc.topics import Topics, table_topic
from snapshot.run import InitialSnapshot, Report

_log = get(__name__)


def first_snapshot(  # noqa: PLR0913  the pieces of one session
    settings: Settings,
    start: Start,
    topics: Topics,
    slot: SlotState | None,
    publisher: Publisher,
    previous: Progress | None,
    report: Report,
) -> Progress:
    """Take it; what an interrupted one has left is removed first."""
    tables, sizes = look_at_source(settings)
    plans = [table_topic(topic, tables.partitions) for topic in tables.topics]
    # Dropping and deleting can't be fenced: a process that stood still since it took over asks right before.
    if slot is not None:
        publisher.require_newest()
        _drop_leftover(settings, slot)
    if start is Start.SNAPSHOT_AGAIN:
        _log.warning("an interrupted snapshot is taken again from the start")
        publisher.require_newest()
        topics.recreate(plans)
    else:
        topics.ensure(plans)
    ends = topics.ends({plan.name: plan.partitions for plan in plans})
    if any(end for partition_ends in ends.values() for end in partition_ends):
        raise OperatorError(
            "the pipeline's topics hold records, but its progress topic is empty",
            "delete the pipeline's topics, or capture under another pipeline name",
            code="TOPICS_NOT_EMPTY",
        )
    return InitialSnapshot(settings, tables, publisher, ends, previous, sizes).run(report)


def _drop_leftover(settings: Settings, slot: SlotState) -> None:
    """A slot without a complete snapshot is of no use: its exported snapshot died with the process that made it."""
    source = settings.source
    replication = ReplicationConnection(source, source.stream, application="afterimage snapshot")
    try:
        replication.drop_slot(slot.name)
    finally:
        replication.close()
