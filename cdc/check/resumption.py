"""Whether the slot still is what the topics go on from: what neither Postgres nor Kafka can say alone.

In: settings. Out: a finding where capture would not start. The slot is looked at first: it confirms what Kafka has
committed, so a topic that is read later can only be further.
"""

from __future__ import annotations

from cdc.check.finding import Finding, of_error
from cdc.errors import CdcError, OperatorError
from cdc.postgres import connect
from cdc.progress_log import ProgressLog
from cdc.resume import obstacle
from cdc.settings import Settings
from cdc.slots import read_slot


def look_at_resumption(settings: Settings) -> list[Finding]:
    """Look, and look again before saying so: a first capture may just have made both."""
    try:
        error = _obstacle(settings) and _obstacle(settings)
    except CdcError:  # told where the servers themselves are looked at
        return []
    return [] if error is None else [of_error(error)]


def _obstacle(settings: Settings) -> OperatorError | None:
    with connect(settings.source, settings.source.read, application="afterimage check") as connection:
        slot = read_slot(connection, settings.slot)
    log = ProgressLog(settings.kafka, settings.pipeline)
    try:
        progress = log.newest()
    finally:
        log.close()
    return obstacle(progress, slot) if progress is not None else None
