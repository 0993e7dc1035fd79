"""`afterimage prove --repair`: what differs is put right where it stands, and proved again; else rebuilt and proved.

In: settings and views. Out: the last proofs, with what was found before and what was mended; also of what a view that
differs is computed from. Keeps true: only keys that differ are written; no row goes over the control topic: the running
apply compares once more by itself, and mends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.markup import escape

from cdc.cli.proving import NOBODY_APPLIES, Wanted, prove_views, show, sinks_of, unproved_json, watched
from cdc.cli.rebuilding import rebuild_view
from cdc.cli.screen import err, out
from cdc.cli.views import live_named_views, views_to_come
from cdc.errors import CdcError, ConfigError
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
        known, repaired = _mended(settings, specs, on_progress, wanted) if specs else ([], [])
    differ = {each.now.view for each in repaired if _differs(each.now)}
    if stuck := [spec for spec in known if spec.name in differ]:
        repaired = _rebuilt(settings, stuck, repaired, wanted)
    repaired += [Repaired(proof, proof) for proof in unproved(settings, left_out)]
    publish_proofs(settings, [proved(each.now) for each in repaired])
    to_come = [] if names else views_to_come(settings, [each.now.view for each in repaired])
    if wanted.as_json:
        out.print_json(json.dumps([*(each.to_json() for each in repaired), *map(unproved_json, to_come)]))
    else:
        show([each.now for each in repaired], [each.found for each in repaired if each.now is not each.found], to_come)
    return int(not all(each.now.holds for each in repaired))


def _rebuilt(
    settings: Settings, stuck: Sequence[ViewSpec], repaired: Sequence[Repaired], wanted: Wanted
) -> list[Repaired]:
    """What single keys do not mend, in the order given; what cannot be rebuilt keeps the others from nothing."""
    refused: dict[str, str] = {}
    for spec in stuck:
        err.print(f"{escape(spec.name)} differs in what single keys do not mend: it is rebuilt", soft_wrap=True)
        try:
            rebuild_view(settings, spec.name)
        except CdcError as error:
            refused[spec.name] = f"it was not rebuilt: {_reason(error)}"
    with watched() as on_progress:
        again = _by_sink(prove_views(settings, stuck, on_progress, wanted))
    return [
        Repaired(each.found, _told(again[_key(each.now)], each.now.mended, refused), each.now.view not in refused)
        if _key(each.now) in again
        else each
        for each in repaired
    ]


def _mended(
    settings: Settings, specs: Sequence[ViewSpec], on_progress: OnProgress, wanted: Wanted
) -> tuple[list[ViewSpec], list[Repaired]]:
    """The views that were looked at, what is read before what reads it; and what became of each."""
    if apply_owner(settings) is None:
        return _mended_here(settings, specs, on_progress, wanted)
    found = prove_views(settings, specs, on_progress, wanted)
    if below := _below(settings, _wrong(specs, found), specs):
        found += prove_views(settings, below, on_progress, wanted)
    known = lowest_first([*specs, *below])
    wrong = _wrong(known, found)
    counts: dict[tuple[str, str], Mended] = {}
    refused: dict[str, str] = {}
    for spec in wrong:
        try:
            mended = _mended_by_apply(settings, spec.name, on_progress)
        except CdcError as error:
            refused[spec.name] = f"it was not mended: {_reason(error)}"
            continue
        counts |= {(spec.name, sink): each for sink, each in mended.items()}
    again = _by_sink(prove_views(settings, wrong, on_progress, wanted)) if wrong else {}
    return known, [_repaired(proof, again.get(_key(proof)), counts.get(_key(proof)), refused) for proof in found]


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
) -> tuple[list[ViewSpec], list[Repaired]]:
    from cdc.cli.applying import local_apply

    on_progress(NOBODY_APPLIES)
    with local_apply(settings) as apply:

        def proofs(some: Sequence[ViewSpec], extras: Extras) -> list[ViewProof]:
            return prove(settings, some, sinks_of(settings), LocalHolder(apply.run_to), on_progress, extras)

        found = proofs(specs, wanted.extras(apply.mend))
        if below := _below(settings, _wrong(specs, found), specs):
            found += proofs(below, wanted.extras(apply.mend))
        known = lowest_first([*specs, *below])
        wrong = _wrong(known, found)
        again = _by_sink(proofs(wrong, wanted.extras())) if wrong else {}
    return known, [_repaired(proof, again.get(_key(proof)), proof.mended, {}) for proof in found]


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


def _repaired(found: ViewProof, again: ViewProof | None, mended: Mended | None, refused: Mapping[str, str]) -> Repaired:
    return Repaired(found, found if again is None else _told(again, mended, refused))


def _told(again: ViewProof, mended: Mended | None, refused: Mapping[str, str]) -> ViewProof:
    """The last proof with what was done before it; why nothing was done only where it still differs."""
    problem = again.problem if again.holds or again.problem else refused.get(again.view)
    return replace(again, mended=mended, problem=problem)


def _reason(error: CdcError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _differs(proof: ViewProof) -> bool:
    """Whether there is something to mend; a store that is away, for one, is another matter."""
    return not proof.holds and proof.problem is None and not proof.unfit


def _by_sink(proofs: Sequence[ViewProof]) -> dict[tuple[str, str], ViewProof]:
    return {_key(proof): proof for proof in proofs}


def _key(proof: ViewProof) -> tuple[str, str]:
    return proof.view, proof.sink
