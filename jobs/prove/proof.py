"""The proof: for each view and sink, the view's own SQL in Postgres against the stored rows, both at one LSN.

In: settings, views, their sinks and a holder of apply. Out: one ViewProof each. Keeps true: what is compared was read
at one and the same LSN: all smaller views at one for all of them, a large view chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc.errors import CdcError
from cdc.settings import Settings
from jobs.control.stopped import stopped_views
from jobs.ledger import Ledger
from jobs.prove.chunks import ChunkedProof, large_views
from jobs.prove.holder import Holder
from jobs.prove.prover import Asked, Extras, MakeSink, Prover
from jobs.prove.result import OnProgress, ViewProof, unwatched
from jobs.prove.rounds import Rounds
from jobs.prove.source import SourceCut
from sinks.spec import ViewSpec


def prove(
    settings: Settings,
    specs: Sequence[ViewSpec],
    make_sink: MakeSink,
    holder: Holder,
    on_progress: OnProgress = unwatched,
    extras: Extras | None = None,
) -> list[ViewProof]:
    """Compare every view in each of its sinks."""
    extras = extras or Extras()
    ledger = Ledger(settings.delta_root, settings.delta.storage_options)
    rounds = Rounds(settings, holder, on_progress, extras.rest)
    asked = {spec.name: Asked.of(spec, ledger, on_progress, extras) for spec in specs}
    large = large_views(settings, specs)
    proofs = _smaller([asked[spec.name] for spec in specs if spec.name not in large], rounds, make_sink)
    for name, view in large.items():
        proofs[name] = ChunkedProof(view, asked[name], rounds, make_sink, settings.prove.chunk_rows).run()
    return _explained(settings, [proof for spec in specs for proof in proofs[spec.name]])


def _explained(settings: Settings, proofs: list[ViewProof]) -> list[ViewProof]:
    """Why a view that stopped alone is not where the source was read."""
    if all(proof.problem is None for proof in proofs):
        return proofs
    try:
        alone = stopped_views(settings)
    except CdcError:
        # What was found counts, also where nobody can say why.
        return proofs
    return [
        proof
        if proof.problem is None or (trouble := alone.get(proof.view)) is None
        else replace(proof, problem=f"stopped alone: {trouble.message} ({trouble.remedy})")
        for proof in proofs
    ]


def _smaller(views: Sequence[Asked], rounds: Rounds, make_sink: MakeSink) -> dict[str, list[ViewProof]]:
    """All of them at one LSN."""

    def work(cut: SourceCut) -> dict[str, list[ViewProof]]:
        provers = {asked.spec.name: (Prover(cut, asked), asked.spec.sinks) for asked in views}
        return {name: list(prover.against(make_sink, sinks)) for name, (prover, sinks) in provers.items()}

    return rounds.run(work) if views else {}
