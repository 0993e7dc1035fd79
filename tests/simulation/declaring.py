"""View files that somebody edits or adds: each view has two declarations, and its file says one of them.

In: what files say, what is kept of live views, what sinks hold. Out: live and coming declarations, chosen by the real
rules (jobs.declarations). A declaration is told from others by its print: its own variant, and those below. A sink's
options are its form; a sink that a file does not name has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from jobs.batch import Target
from jobs.declarations import chosen, new_views
from jobs.other_sinks import with_other_sinks
from sinks.spec import Kind, SinkOptions, ViewSpec
from tests.simulation.queries import RELATIONS

Print = tuple[int, ...]
Forms = Mapping[Target, int | None]
EDITABLE: Final = ("known", "stock", "pieces", "rich")
DECLARED: Final = (*EDITABLE, "few", "most", "best")
"""All that files declare, those that come later as well; others are mirrors."""


@dataclass(slots=True)
class Files:
    """The folder of the views, and the texts that apply has kept; nothing before the first batch."""

    said: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    forms: Forms = field(default_factory=dict)
    kept_forms: Forms = field(default_factory=dict)

    def add(self, view: str) -> None:
        """A new file."""
        self.added.append(view)
        self.said[view] = 0

    def edit(self, view: str) -> None:
        """The other declaration."""
        self.said[view] = 1 - self.said.get(view, 0)

    def reform(self, target: Target, form: int | None) -> None:
        """Other options, or no such sink any more."""
        self.forms = {**self.forms, target: form}

    def state(self) -> tuple[object, ...]:
        """Another one after any edit."""
        return dict(self.said), self.forms


@dataclass(frozen=True, slots=True)
class Declared:
    """By view; `texts` are to be kept once a batch is recorded. `targets` are those of all views that there are.

    `sinks` are the forms of those that are live, `becomes` of those of what is coming.
    """

    targets: tuple[Target, ...]
    sinks: Forms
    becomes: Forms
    live: Mapping[str, Print]
    coming: Mapping[str, Print]
    groups: tuple[tuple[str, ...], ...]
    texts: dict[str, int]
    forms: Forms


def print_of(view: str, said: Mapping[str, int]) -> Print:
    """What the view is declared as."""
    below = (print_of(name, said) for name in RELATIONS.get(view, ()) if name in DECLARED)
    return said.get(view, 0), *(each for one in below for each in one)


def declared(
    targets: Iterable[Target], files: Files, stands: Callable[[Target, Print, int], bool], are_live: Callable[[], bool]
) -> Declared:
    """What a new session finds."""
    targets, kept = tuple(targets), files.kept
    filed = _specs(targets, files.said, files.forms)
    known = [at for at in targets if at.view not in DECLARED or at.view in kept]
    former = _specs(known, kept, files.kept_forms)
    of = {(target.view, target.sink): target for target in targets}

    def holds(spec: ViewSpec, option: SinkOptions) -> bool:
        said = files.said if spec.fingerprint == filed[spec.name].fingerprint else kept
        return stands(of[spec.name, option.name], print_of(spec.name, said), _form(option))

    def leads(spec: ViewSpec) -> bool:
        option = min(spec.sinks, key=lambda each: (each.name != "delta", each.name))
        return holds(spec, option)

    live, groups = chosen(filed, former, leads, new_views(filed, kept, leads, are_live))
    told = {name: spec for name, spec in former.items() if name in kept and spec.sinks != filed[name].sinks}
    others = with_other_sinks(live, told, holds)
    follow = {name: kept if live[name] is former.get(name) else files.said for name in live}
    live, groups = live | others, (*groups, *((name,) for name in others))
    coming = {name: print_of(name, files.said) for group in groups for name in group}
    old = {name for name in live if name in others or follow[name] is kept}
    return Declared(
        targets,
        {of[name, each.name]: _form(each) for name, spec in live.items() for each in spec.sinks},
        {of[name, each.name]: _form(each) for name in coming for each in filed[name].sinks},
        {name: print_of(name, said) for name, said in follow.items()},
        coming,
        groups,
        {name: said.get(name, 0) for name, said in follow.items() if name in DECLARED},
        {at: (files.kept_forms if at.view in old else files.forms).get(at, 0) for at in targets},
    )


def _specs(targets: Iterable[Target], said: Mapping[str, int], forms: Forms) -> dict[str, ViewSpec]:
    sinks: dict[str, list[SinkOptions]] = {}
    for target in targets:
        form = forms.get(target, 0)
        if form is not None:
            sinks.setdefault(target.view, []).append(SinkOptions(target.sink, {"form": str(form)}))
    return {view: _spec(view, tuple(options), said) for view, options in sinks.items()}


def _form(option: SinkOptions) -> int:
    return int(option.options["form"])


def _spec(view: str, sinks: tuple[SinkOptions, ...], said: Mapping[str, int]) -> ViewSpec:
    relations = RELATIONS.get(view, ())
    kind = Kind.QUERY if relations else Kind.ROWWISE if view in DECLARED else Kind.MIRROR
    fingerprint = repr(print_of(view, said))
    return ViewSpec(view, kind, "", "", ("id",), (), (), "", "", sinks, fingerprint, relations=relations)
