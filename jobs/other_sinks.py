"""Which sinks of a view are live where its file names other ones, or other options, than its rows were loaded into.

In: the view as its file declares it, and as the text that was kept of it does, with the same rows; the sinks, which
alone know what they hold. Out: those that are live. Keeps true: what lacks rows is loaded beside where the others can
go on meanwhile, and nothing of these is loaded again; else all are as the file says, and filled inside a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from jobs.batch import TABLE
from jobs.twins import SINKS
from sinks.spec import SinkOptions, ViewSpec

Holds = Callable[[ViewSpec, SinkOptions], bool]
"""Whether a sink of a view holds its rows."""


def with_other_sinks(live: Mapping[str, ViewSpec], former: Mapping[str, ViewSpec], holds: Holds) -> dict[str, ViewSpec]:
    """The views that are live with other sinks than their files say, where these declare the former rows."""
    found: dict[str, ViewSpec] = {}
    for name, was in former.items():
        spec = live.get(name)
        if spec is not None and spec is not was and spec.fingerprint == was.fingerprint:
            sinks = live_sinks(spec, was, holds)
            found |= {name: replace(spec, sinks=sinks)} if sinks != spec.sinks else {}
    return found


def live_sinks(filed: ViewSpec, former: ViewSpec, holds: Holds) -> tuple[SinkOptions, ...]:
    """The file's, but for those that are loaded beside first; till then what was shown instead of them goes on."""
    known = {option.name: option for option in former.sinks}
    lacking = [
        each for each in filed.sinks if each.name in SINKS and known.get(each.name) != each and not holds(filed, each)
    ]
    if not lacking:
        return filed.sinks
    kept = [each for each in filed.sinks if each not in lacking]
    names = {each.name for each in kept}
    shown = [each for name, each in known.items() if name in SINKS - names and holds(former, each)]
    live = (*kept, *shown)
    return live if _leads(live, former, holds) else filed.sinks


def _leads(live: tuple[SinkOptions, ...], former: ViewSpec, holds: Holds) -> bool:
    """Whether rows are there: in the view's table, if it had one."""
    tables = [each for each in former.sinks if each.name == TABLE]
    beside = [each for each in live if each.name in SINKS]
    return any(each in live and holds(former, each) for each in tables or beside)
