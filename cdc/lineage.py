"""Whether the server that answers is the one that filled the topics, or took over from it without losing any of it.

In: the newest progress record, and what the server says of itself. Out: nothing, or an OperatorError: another database,
or a timeline that parted before the topics' position. Keeps true: what one server had and its successor never got is
not passed over in silence. (Another cluster is refused in cdc.resume.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdc.errors import OperatorError, ProtocolError
from cdc.lsn import format_lsn, parse_lsn
from cdc.progress import Progress

_LINE = re.compile(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)")


@dataclass(frozen=True, slots=True)
class Lineage:
    """A server's identity; `switches` says where each earlier timeline ended, by the server's own history file."""

    system_id: str
    timeline: int
    database_oid: int
    switches: Mapping[int, int] = field(default_factory=dict)
    is_standby: bool = False

    def marked(self, progress: Progress) -> Progress:
        """The record that goes on from `progress` on this server."""
        return replace(progress, timeline=self.timeline, database_oid=self.database_oid)


def parse_history(text: str) -> dict[int, int]:
    """A timeline history file: timeline -> where it ended."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            match = _LINE.match(line)
            if match is None:
                raise ProtocolError("a timeline history file that cannot be read")
            found[int(match[1])] = parse_lsn(match[2])
    return found


def require_same_database(progress: Progress | None, lineage: Lineage) -> None:
    """Another database of the cluster is refused, also one that was dropped and made again."""
    if progress is not None and progress.database_oid not in (0, lineage.database_oid):
        raise OperatorError(
            "this is another database than the one that the topics were filled from",
            "point source.database back, or capture this one under another pipeline name",
            code="SOURCE_CHANGED",
        )


def require_same_history(progress: Progress | None, lineage: Lineage) -> None:
    """A server whose log parted from that of the topics before their position is refused."""
    if progress is None or progress.timeline in (0, lineage.timeline):
        return
    ended = lineage.switches.get(progress.timeline)
    if ended is None:
        raise _diverged(
            f"the server is on timeline {lineage.timeline}, which does not come from the topics' timeline "
            f"{progress.timeline}"
        )
    if progress.lsn > ended:
        raise _diverged(
            f"the server took over at {format_lsn(ended)} without the end of its predecessor's log, which the topics "
            f"have up to {format_lsn(progress.lsn)}"
        )


def has_diverged(progress: Progress | None, lineage: Lineage) -> bool:
    """Whether the topics have something that this server never had."""
    try:
        require_same_history(progress, lineage)
    except OperatorError:
        return True
    return False


def _diverged(message: str) -> OperatorError:
    return OperatorError(
        message,
        "is this the right server? then run `afterimage recover`: it takes back what was lost with the old one",
        code="DIVERGED",
    )
