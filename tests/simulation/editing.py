"""Whoever edits view files: declarations that change, views that are new, sinks with other options, or none any more.

In: the world's chance, or changes that are wanted. Out: files, and the targets of views that came. Keeps true: a new
view reads what is there; no view is left without any sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jobs.batch import TABLE, Target
from tests.simulation.declaring import DECLARED, EDITABLE, Files
from tests.simulation.queries import RELATIONS
from tests.simulation.views import ADDED, ADDITIONS
from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Changes:
    """Of view files, all at once, after the first batch."""

    edited: str | None = None
    added: tuple[str, ...] = ()
    other: tuple[str, str] | None = None
    """A view's sink with another option."""


NONE: Final = Changes()


class Editor:
    """Of one pipeline's files; `targets` grow with what is added."""

    def __init__(self, world: World, files: Files, targets: list[Target]) -> None:
        self._world = world
        self._files = files
        self._targets = targets

    def draw(self) -> None:
        """What happens now and then."""
        world = self._world
        if world.happens("declaration edited"):
            self._files.edit(world.files.choice((*EDITABLE, *self._files.added)))
        if world.happens("view added"):
            self.change(Changes(added=world.news.choice(ADDITIONS)))
        if world.happens("options edited"):
            self._reform()

    def change(self, changes: Changes) -> None:
        """What is wanted; a new file whose view could read nothing is not written."""
        for view in changes.added:
            is_known = {target.view for target in self._targets}.issuperset(RELATIONS.get(view, ()))
            if view not in self._files.added and is_known:
                self._files.add(view)
                self._targets += [target for target in ADDED if target.view == view]
        if changes.edited is not None:
            self._files.edit(changes.edited)
        for target in self._targets:
            if (target.view, target.sink) == changes.other:
                self._files.reform(target, 1)

    def _reform(self) -> None:
        """Another option of a sink, a sink less, or again."""
        targets = [target for target in self._targets if target.view in DECLARED and target.sink != TABLE]
        if targets:
            target = self._world.news.choice(targets)
            has_table = any((each.view, each.sink) == (target.view, TABLE) for each in self._targets)
            self._files.reform(target, self._world.news.choice((0, 1, None) if has_table else (0, 1)))
