"""`afterimage prove --repair`: what differs is put right where it stands, and proved again; else rebuilt and proved.

In: settings and views. Out: the last proofs, with what was found before and what was mended; also of what a view that
differs is computed from. Keeps true: only keys that differ are written; no row goes over the control topic: the running
apply compares once more by itself, and mends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.markup import escape

from cdc.cli.proving import NOBODY_APPLIES, Wanted, prove_views, show, sinks_of, watched
from cdc.cli.rebuilding import rebuild_view
from cdc.cli.screen import err, out
from cdc.cli.views import live_named_views
from cdc.errors import ConfigError
from cdc.settings import Settings
from jobs.control import ControlClient, Kind, State, apply_owner, publish_proofs
from jobs.left_out import unproved
from jobs.pipeline import lowest_first
from jobs.prove import Extras, LocalHolder, Mended, OnProgress, Progress, ViewProof, prove
from jobs.prove.holder import watch_apply
from jobs.proving import proved
from sinks.spec import ViewSpec

_SILENCE_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Repaired:
    """A view in one sink: what was found at first, how it stands now, whether it was rebuilt."""

    found: ViewProof
    now: ViewProof
    rebuilt: bool = False

    def to_json(self) -> dict[str, Any]:
        """The last proof, and the first one if that was another."""
        found = None if self.now is self.found else self.found.to_json()
        return {**self.now.to_json(), "found": found, "rebuilt": self.rebuilt}


def run_repair(settings: Settings, names: Sequence[str], wanted: Wanted) -> int:
    """Prove, mend, prove again and show; 1 if anything still differs."""
    settings = wanted.settings(settings)
    left_out: dict[str, ConfigError] = {}
    specs = live_named_views(settings, names, left_out.__setitem__)
    with watched() as on_progress:
        repaired = _mended(settings, specs, on_progress, wanted) if specs else []
    repaired += [Repaired(proof, proof) for proof in unproved(settings, left_out)]
    stuck = {each.now.view for each in repaired if _differs(each.now)}
    for view in sorted(stuck):
        err.print(f"{escape(view)} differs in what single keys do not mend: it is rebuilt", soft_wrap=True)
        rebuild_view(settings, view)
    if stuck:
        with watched() as on_progress:
            again = _by_sink(prove_views(settings, [spec for spec in specs if spec.name in stuck], on_progress, wanted))
        repaired = [
            Repaired(each.found, replace(again[_key(each.now)], mended=each.now.mended), rebuilt=True)
            if each.now.view in stuck
            else each
            for each in repaired
        ]
    publish_proofs(settings, [proved(each.now) for each in repaired])
    if wanted.as_json:
        out.print_json(json.dumps([each.to_json() for each in repaired]))
    else:
        show([each.now for each in repaired], [each.found for each in repaired if each.now is not each.found])
    return int(not all(each.now.holds for each in repaired))


def _mended(settings: Settings, specs: Sequence[ViewSpec], on_progress: OnProgress, wanted: Wanted) -> list[Repaired]:
    if apply_owner(settings) is None:
        return _mended_here(settings, specs, on_progress, wanted)
    found = prove_views(settings, specs, on_progress, wanted)
    if below := _below(settings, _wrong(specs, found), specs):
        found += prove_views(settings, below, on_progress, wanted)
    wrong = _wrong(lowest_first([*specs, *below]), found)
    counts: dict[tuple[str, str], Mended] = {}
    for spec in wrong:
        for sink, mended in _mended_by_apply(settings, spec.name, on_progress).items():
            counts[spec.name, sink] = mended
    again = _by_sink(prove_views(settings, wrong, on_progress, wanted)) if wrong else {}
    return [_repaired(proof, again.get(_key(proof)), counts.get(_key(proof))) for proof in found]


def _mended_by_apply(settings: Settings, view: str, on_progress: OnProgress) -> dict[str, Mended]:
    """Ask the running apply, and wait; by sink."""
    doing = f"apply mends {view}"
    with ControlClient(settings) as client, client.keep(Kind.REPAIR, view=view) as kept:
        watch = watch_apply(settings, doing, on_progress)
        answer = client.await_answer(
            kept.id, {State.DONE}, _SILENCE_S, on_progress=lambda _: on_progress(Progress(doing)), on_wait=watch
        )
    return {sink: Mended(*counts) for sink, counts in (answer.mended or {}).items()}


def _mended_here(
    settings: Settings, specs: Sequence[ViewSpec], on_progress: OnProgress, wanted: Wanted
) -> list[Repaired]:
    from cdc.cli.applying import local_apply

    on_progress(NOBODY_APPLIES)
    with local_apply(settings) as apply:

        def proofs(some: Sequence[ViewSpec], extras: Extras) -> list[ViewProof]:
            return prove(settings, some, sinks_of(settings), LocalHolder(apply.run_to), on_progress, extras)

        found = proofs(specs, wanted.extras(apply.mend))
        if below := _below(settings, _wrong(specs, found), specs):
            found += proofs(below, wanted.extras(apply.mend))
        wrong = _wrong([*specs, *below], found)
        again = _by_sink(proofs(wrong, wanted.extras())) if wrong else {}
    return [_repaired(proof, again.get(_key(proof)), proof.mended) for proof in found]


def _wrong(specs: Sequence[ViewSpec], found: Sequence[ViewProof]) -> list[ViewSpec]:
    views = {proof.view for proof in found if _differs(proof) or proof.mended is not None}
    return [spec for spec in specs if spec.name in views]


def _below(settings: Settings, wrong: Sequence[ViewSpec], asked: Sequence[ViewSpec]) -> list[ViewSpec]:
    """What views that differ are computed from, but for what was asked for anyway.

    Wrong rows there would come back with the next change of their keys.
    """
    met: dict[str, ViewSpec] = {}
    names = {name for spec in wrong for name in spec.relations}
    while names:
        found = {spec.name: spec for spec in live_named_views(settings, sorted(names))}
        met |= found
        names = {name for spec in found.values() for name in spec.relations} - met.keys()
    known = {spec.name for spec in asked}
    return [spec for spec in met.values() if spec.name not in known]


def _repaired(found: ViewProof, again: ViewProof | None, mended: Mended | None) -> Repaired:
    return Repaired(found, found if again is None else replace(again, mended=mended))


def _differs(proof: ViewProof) -> bool:
    """Whether there is something to mend; a store that is away, for one, is another matter."""
    return not proof.holds and proof.problem is None and not proof.unfit


def _by_sink(proofs: Sequence[ViewProof]) -> dict[tuple[str, str], ViewProof]:
    return {_key(proof): proof for proof in proofs}


def _key(proof: ViewProof) -> tuple[str, str]:
    return proof.view, proof.sink
