"""The view files that live views follow, kept on the control topic: what a view's file said when its rows were loaded.

In: texts, once the rows of these declarations are shown. Out: the same, in any process. Keeps true: a text is only a
candidate, since the sinks know whose rows they hold; without one a changed view is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.settings import Settings
from jobs.control.kept import Declared
from jobs.control.proved import kept_records
from jobs.control.server import ControlServer


class DeclaredViews:
    """What apply has kept of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept: dict[str, str] | None = None

    def former(self, texts: Mapping[str, str]) -> dict[str, str]:
        """What was kept of those that say something else now."""
        kept = self._known
        return {view: kept[view] for view, text in texts.items() if kept.get(view, text) != text}

    def tell(self, control: ControlServer, texts: Mapping[str, str]) -> None:
        """Write down those that are not what was kept; what nothing declares stays until it is dropped."""
        kept = self._known
        for view, text in texts.items():
            if kept.get(view) != text:
                control.keep(Declared(view, text))
                kept[view] = text

    def forget(self, view: str) -> None:
        """It was dropped, with all that was kept of it."""
        if self._kept is not None:
            self._kept.pop(view, None)

    @property
    def _known(self) -> dict[str, str]:
        if self._kept is None:
            self._kept = declared_texts(self._settings)
        return self._kept


def declared_texts(settings: Settings) -> dict[str, str]:
    """Each view's."""
    return {record.view: record.text for record in kept_records(settings) if isinstance(record, Declared)}
