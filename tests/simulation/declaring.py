"""View files that somebody edits or adds: each view has two declarations, and its file says one of them.

In: what files say, what is kept of live views, what sinks hold. Out: live and coming declarations, chosen by the real
rules (jobs.declarations). A declaration is told from others by its print: its own variant, and those below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.batch import Target
from jobs.declarations import chosen, new_views
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.simulation.queries import RELATIONS

Print = tuple[int, ...]
EDITABLE: Final = ("known", "stock", "pieces", "rich")
DECLARED: Final = (*EDITABLE, "few", "most", "best")
"""All that files declare, those that come later as well; others are mirrors."""


@dataclass(slots=True)
class Files:
    """The folder of the views, and the texts that apply has kept; nothing before the first batch."""

    said: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)

    def add(self, view: str) -> None:
        """A new file."""
        self.added.append(view)
        self.said[view] = 0

    def edit(self, view: str) -> None:
        """The other declaration."""
        self.said[view] = 1 - self.said.get(view, 0)


@dataclass(frozen=True, slots=True)
class Declared:
    """By view; `texts` are to be kept once a batch is recorded. `targets` are those of all views that there are."""

    targets: tuple[Target, ...]
    live: Mapping[str, Print]
    coming: Mapping[str, Print]
    groups: tuple[tuple[str, ...], ...]
    texts: dict[str, int]


def print_of(view: str, said: Mapping[str, int]) -> Print:
    """What the view is declared as."""
    below = (print_of(name, said) for name in RELATIONS.get(view, ()) if name in DECLARED)
    return said.get(view, 0), *(each for one in below for each in one)


def declared(
    targets: Iterable[Target], files: Files, stands: Callable[[Target, Print], bool], are_live: Callable[[], bool]
) -> Declared:
    """What a new session finds."""
    targets, kept = tuple(targets), files.kept
    filed = _specs(targets, files.said)
    former = _specs([at for at in targets if at.view not in DECLARED or at.view in kept], kept)
    leading = {
        target.view: target for target in sorted(targets, key=lambda each: (each.sink != "delta", each.sink))[::-1]
    }
    new = new_views(filed, kept, lambda spec: stands(leading[spec.name], print_of(spec.name, files.said)), are_live)
    live, groups = chosen(filed, former, lambda spec: stands(leading[spec.name], print_of(spec.name, kept)), new)
    follow = {name: kept if live[name] is former.get(name) else files.said for name in live}
    coming = {name: print_of(name, files.said) for group in groups for name in group}
    return Declared(
        targets,
        {name: print_of(name, said) for name, said in follow.items()},
        coming,
        groups,
        {name: said.get(name, 0) for name, said in follow.items() if name in DECLARED},
    )


def _specs(targets: Iterable[Target], said: Mapping[str, int]) -> dict[str, ViewSpec]:
    sinks: dict[str, list[SinkOptions]] = {}
    for target in targets:
        sinks.setdefault(target.view, []).append(SinkOptions(target.sink))
    return {view: _spec(view, tuple(options), said) for view, options in sinks.items()}


def _spec(view: str, sinks: tuple[SinkOptions, ...], said: Mapping[str, int]) -> ViewSpec:
    relations = RELATIONS.get(view, ())
    kind = Kind.QUERY if relations else Kind.ROWWISE if view in DECLARED else Kind.MIRROR
    fingerprint = repr(print_of(view, said))
    return ViewSpec(view, kind, "", "", ("id",), (), (), "", "", sinks, fingerprint, relations=relations)
