"""`afterimage prove`: every view in every sink against Postgres, at one LSN, with what differs by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from cdc.cli.screen import err, out
from cdc.cli.views import live_named_views, views_to_come
from cdc.errors import ConfigError
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control import apply_owner, publish_proofs
from jobs.declarations import declared_otherwise
from jobs.left_out import unproved
from jobs.prove import (
    ControlHolder,
    Extras,
    Holder,
    LocalHolder,
    MakeSink,
    Mender,
    OnProgress,
    Progress,
    ViewProof,
    prove,
)
from jobs.prove.result import EXAMPLES_MAX
from jobs.proving import proved
from sinks.registry import make_sink
from sinks.spec import ViewSpec

NOBODY_APPLIES: Final = Progress("no apply process runs: starting Spark here")
_UNFIT_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command was asked for besides the views."""

    as_json: bool = False
    with_values: bool = False
    chunk_rows: int | None = None
    rows_per_s: int | None = None
    keys_max: int = EXAMPLES_MAX

    def extras(self, mender: Mender | None = None) -> Extras:
        """What the proof is to do besides counting."""
        return Extras(self.with_values, mender, keys_max=self.keys_max)

    def settings(self, settings: Settings) -> Settings:
        """The settings with what goes before them."""
        given = {"chunk_rows": self.chunk_rows, "rows_per_s": self.rows_per_s}
        paces = {name: value for name, value in given.items() if value is not None}
        return settings.model_copy(update={"prove": settings.prove.model_copy(update=paces)})


def run_prove(settings: Settings, names: Sequence[str], wanted: Wanted) -> int:
    """Prove and show; 1 on any difference."""
    settings = wanted.settings(settings)
    with watched() as on_progress:
        proofs = _proved(settings, names, on_progress, wanted)
    publish_proofs(settings, map(proved, proofs))
    to_come = [] if names else views_to_come(settings, [proof.view for proof in proofs])
    if wanted.as_json:
        out.print_json(json.dumps([*(proof.to_json() for proof in proofs), *map(unproved_json, to_come)]))
    else:
        show(proofs, to_come=to_come)
    return int(not all(proof.holds for proof in proofs))


def unproved_json(view: str) -> dict[str, Any]:
    """For `prove --json`: a view that is not there yet, so it neither holds nor differs."""
    return {"view": view, "sink": None, "holds": None, "problem": "not loaded yet"}


def _proved(settings: Settings, names: Sequence[str], on_progress: OnProgress, wanted: Wanted) -> list[ViewProof]:
    """What views were declared as until their changed files' rows were shown meanwhile is proved by no rows."""
    left_out: dict[str, ConfigError] = {}
    specs = live_named_views(settings, names, left_out.__setitem__)
    proofs = prove_views(settings, specs, on_progress, wanted) if specs else []
    while other := declared_otherwise(specs, live_named_views(settings, names, left_out.__setitem__)):
        changed = {spec.name for spec in other}
        proofs = [proof for proof in proofs if proof.view not in changed]
        proofs += prove_views(settings, other, on_progress, wanted)
        specs = other
    return proofs + unproved(settings, left_out)


def prove_views(
    settings: Settings, specs: Sequence[ViewSpec], on_progress: OnProgress, wanted: Wanted
) -> list[ViewProof]:
    """With the running apply, or where none runs with a batch of our own."""
    with _holder(settings, on_progress) as holder:
        return prove(settings, specs, sinks_of(settings), holder, on_progress, wanted.extras())


def sinks_of(settings: Settings) -> MakeSink:
    """How a view's sinks are made."""
    return lambda spec, option: make_sink(option, spec, settings)


@contextmanager
def _holder(settings: Settings, on_progress: OnProgress) -> Iterator[Holder]:
    if apply_owner(settings) is not None:
        yield ControlHolder(settings, on_progress=on_progress)
        return
    from cdc.cli.applying import local_apply

    on_progress(NOBODY_APPLIES)
    with local_apply(settings) as apply:
        yield LocalHolder(apply.run_to)


@contextmanager
def watched() -> Iterator[OnProgress]:
    """A line that says what is done now, for as long as it takes."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def on_progress(progress: Progress) -> None:
            of = f" {progress.view}" if progress.view else ""
            bar.update(task, description=escape(f"{progress.doing}{of}"), completed=progress.done, total=progress.total)

        yield on_progress


def show(proofs: Sequence[ViewProof], found: Sequence[ViewProof] = (), to_come: Sequence[str] = ()) -> None:
    """A line per view and sink; below, what differs, or was `found` before it was mended, and views `to_come`."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column("")
    table.add_column("view", no_wrap=True)
    table.add_column("sink")
    for name in ("rows", "missing", "extra", "wrong", "s"):
        table.add_column(name, justify="right")
    for proof in proofs:
        mark = "[green]✓[/]" if proof.holds else "[bold red]✗[/]"
        counts = [f"{count:,}" for count in (proof.rows, proof.missing, proof.extra, proof.different + proof.duplicate)]
        table.add_row(mark, escape(proof.view), proof.sink, *counts, f"{proof.seconds:.1f}")
    out.print(table)
    for proof in found:
        _show_examples(proof)
    for proof in proofs:
        _show_problem(proof)
    for view in to_come:
        out.print(f"[yellow]not proved yet[/]: {escape(view)}; `afterimage status` says how far it is", soft_wrap=True)
    held = sum(proof.holds for proof in proofs)
    compared = [proof for proof in proofs if proof.problem is None]
    style = "green" if held == len(proofs) else "bold red"
    out.print(f"[{style}]{held} of {len(proofs)} proved equal to Postgres {_where(compared)}[/]")


def _where(proofs: Sequence[ViewProof]) -> str:
    """At one LSN, or for views that were read in chunks the LSNs of the first and the last."""
    if not proofs:
        return "nowhere"
    smaller = [f"at {format_lsn(lsn)}" for lsn in sorted({proof.lsn for proof in proofs if proof.chunks == 1})]
    first = [proof.lsn if proof.first_lsn is None else proof.first_lsn for proof in proofs if proof.chunks > 1]
    last = [proof.lsn for proof in proofs if proof.chunks > 1]
    between = (
        [f"chunk by chunk, each at one LSN, from {format_lsn(min(first))} to {format_lsn(max(last))}"] if last else []
    )
    return "; ".join(smaller + between)


def _show_examples(proof: ViewProof) -> None:
    name = escape(f"{proof.view} in {proof.sink}")
    for example in proof.examples:
        key = ", ".join(f"{column}={value}" for column, value in example.key.items())
        out.print(f"[red]{name}[/]: {example.difference.value} {escape(key)}", soft_wrap=True)
        for side, values in (("Postgres", example.source), (proof.sink, example.sink)) if proof.with_values else ():
            out.print(f"    {side}: {escape(_row_text(values))}", soft_wrap=True)


def _show_problem(proof: ViewProof) -> None:
    name = escape(f"{proof.view} in {proof.sink}")
    if proof.problem is not None:
        out.print(f"[red]{name}[/]: {escape(proof.problem)}", soft_wrap=True)
    _show_examples(proof)
    if proof.mended is not None:
        mended = f"{proof.mended.written:,} keys written, {proof.mended.deleted:,} removed"
        out.print(f"{name}: mended, {mended}", soft_wrap=True)
    for row in proof.unfit[:_UNFIT_SHOWN]:
        columns = ", ".join(row.columns)
        out.print(f"[yellow]{name}[/]: dead letter {escape(row.at)}, column {escape(columns)}", soft_wrap=True)
    if len(proof.unfit) > _UNFIT_SHOWN:
        out.print(f"[yellow]{name}[/]: {len(proof.unfit):,} dead letters in all", soft_wrap=True)
    if proof.unfit:
        out.print("  [bold]remedy[/] correct these rows: a value of them has no counterpart in its Delta type")
    elif not proof.holds and proof.problem is None:
        out.print(f"  [bold]remedy[/] afterimage prove --repair {escape(proof.view)}", soft_wrap=True)


def _row_text(row: Mapping[str, str | None] | None) -> str:
    if row is None:
        return "no such row"
    return ", ".join(f"{column}={'NULL' if value is None else value}" for column, value in row.items())
