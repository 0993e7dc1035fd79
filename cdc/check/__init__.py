"""Preflight: everything that would make capture or a view fail, found before it does, one line each with its remedy.

In: settings and which sinks the views use. Out: findings. Nothing is changed here; cdc.check.fix does that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from cdc.changes import Relation
from cdc.check.broker import look_at_broker
from cdc.check.finding import Finding, Level, of_error, ok
from cdc.check.fix import fix
from cdc.check.folders import look_at_folders
from cdc.check.resumption import look_at_resumption
from cdc.check.sinks import look_at_cache, look_at_search
from cdc.check.source import look_at_source
from cdc.settings import Settings

__all__ = ["Finding", "Level", "check", "fix", "of_error", "ok"]

Look = Callable[[Settings, Sequence[Relation]], list[Finding]]


def _at_no_views(_: Settings, __: Sequence[Relation]) -> list[Finding]:
    return []


def check(settings: Settings, views_need: Set[str], look_at_views: Look = _at_no_views) -> list[Finding]:
    """Look at everything; `views_need` holds "search" and "cache" where a view has that sink.

    What looks at the views' files is given the relations that can be captured.
    """
    found, relations = look_at_source(settings)
    found += look_at_broker(settings, relations)
    if not any(finding.code == "KAFKA_UNAVAILABLE" for finding in found):
        found = _with_resumption(found, look_at_resumption(settings))
    if "search" in views_need:
        found += look_at_search(settings)
    if "cache" in views_need:
        found += look_at_cache(settings)
    return found + look_at_views(settings, relations) + look_at_folders(settings)


def _with_resumption(found: list[Finding], more: list[Finding]) -> list[Finding]:
    """What the topics say of the slot comes in place of what the slot alone looks like."""
    told = {finding.code for finding in found}
    more = [finding for finding in more if finding.code not in told]
    return [finding for finding in found if not (more and finding.code == "SLOT")] + more
