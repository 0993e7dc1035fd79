"""What capture and recovery begin from: the slot, the newest progress record, the lineage, the captured tables.

In: settings. Out: each as it is now, over a connection of its own that is closed again.
"""

from __future__ import annotations

from cdc.catalog import load_relations, require_keys
from cdc.check.publication import require_publication
from cdc.lineage import Lineage
from cdc.postgres import connect
from cdc.privacy import Privacy
from cdc.progress import Progress
from cdc.progress_log import ProgressLog
from cdc.replication import ReplicationConnection
from cdc.resume import SlotState
from cdc.settings import Settings
from cdc.slots import read_slot
from cdc.tables import Tables
from cdc.timeline import database_oid, read_lineage
from snapshot.sizes import TableSize, table_sizes


def newest_progress(settings: Settings) -> Progress | None:
    """The newest record of the chain."""
    log = ProgressLog(settings.kafka, settings.pipeline)
    try:
        return log.newest()
    finally:
        log.close()


def read_slot_now(settings: Settings) -> SlotState | None:
    """The pipeline's slot, if it is there."""
    source = settings.source
    with connect(source, source.read, application="afterimage slot") as connection:
        return read_slot(connection, settings.slot)


def read_lineage_now(settings: Settings) -> Lineage:
    """Which cluster, database and timeline this is."""
    source = settings.source
    with connect(source, source.read, application="afterimage lineage") as connection:
        oid = database_oid(connection)
    replication = ReplicationConnection(source, source.stream, application=f"afterimage {settings.pipeline}")
    try:
        return read_lineage(replication, oid)
    finally:
        replication.close()


def look_at_source(settings: Settings) -> tuple[Tables, dict[int, TableSize]]:
    """The tables that the configuration names, fit to be captured, and how large they are."""
    source = settings.source
    with connect(source, source.read, application=f"afterimage {settings.pipeline}") as connection:
        relations = load_relations(connection, source.tables, source.exclude)
        require_keys(relations)
        privacy = Privacy.of(source)
        privacy.require_fits(relations)
        require_publication(connection, settings.publication, relations)
        sizes = table_sizes(connection, relations)
    by_oid = {relation.oid: relation for relation in relations}
    return Tables(settings.pipeline, source.database, settings.kafka.partitions, by_oid, privacy), sizes
