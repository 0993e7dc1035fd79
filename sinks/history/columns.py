"""The columns of changes on their way into a log, and of the log itself.

Keeps true: a table's own columns never have such names (cdc.names escapes a leading `__`).
"""

from __future__ import annotations

from typing import Final

from sinks.protocol import LSN, OP

HISTORY: Final = "history"
"""The sink's name."""
FOLDER: Final = "_history"
"""Where the logs lie, under the pipeline's folder: no mirror's or view's folder begins so."""

EVENT: Final = "__event"
"""What the change was at the source; OP says what is made of it."""
ORDINAL: Final = "__ordinal"
MOMENT: Final = "__ts"
"""The commit's time."""
PRODUCED: Final = "__produced"
"""When Kafka got the record, in milliseconds."""

READ, CREATE, UPDATE, DELETED, TRUNCATED = "r", "c", "u", "d", "t"
ENDS: Final = (DELETED, TRUNCATED)
"""A row with one of these says that its key is gone."""

KEPT: Final = (OP, LSN, ORDINAL, MOMENT)
"""What a row of the log has besides the table's columns."""
