"""One request to the running apply, or where none runs to one that runs for as long as it takes, and its answer.

In: what is asked for. Out: the answer; what is waited for and how far it is, on the way. Interrupting the command
withdraws the request; an apply that goes away and does not come back is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc.settings import Settings
from jobs.control import Answer, ControlClient, Kind, State, apply_owner
from jobs.prove.holder import watch_apply

NOBODY_APPLIES: Final = "no apply process runs: starting Spark here"
_SILENCE_S: Final = 600.0


def _unwatched(_: object) -> None:
    """Nobody looks."""


def ask_apply(
    settings: Settings,
    kind: Kind,
    view: str,
    on_progress: Callable[[Answer], None] = _unwatched,
    on_wait: Callable[[str], None] = _unwatched,
    *,
    prove: bool = False,
) -> Answer:
    """Ask it of one view, and wait until it is done; `on_wait` is told several times a second what is waited for."""
    with ControlClient(settings) as client, client.keep(kind, view=view, prove=prove) as kept:
        if apply_owner(settings) is not None:
            watch = watch_apply(settings, "apply ends its batch", lambda progress: on_wait(progress.doing))
            return client.await_answer(kept.id, {State.DONE}, _SILENCE_S, on_progress, watch)
        from cdc.cli.applying import ApplyHere

        watch = watch_apply(settings, NOBODY_APPLIES, lambda progress: on_wait(progress.doing))
        with ApplyHere(settings) as here:

            def waiting() -> None:
                here.require()
                watch()

            return client.await_answer(kept.id, {State.DONE}, _SILENCE_S, on_progress, waiting)
