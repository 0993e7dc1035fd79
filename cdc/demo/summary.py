"""What the demo tells at its end: each chapter with what held and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

CHAPTERS: Final = 6


@dataclass(frozen=True, slots=True)
class Chapter:
    """One step that held."""

    title: str
    said: str
    seconds: float


@dataclass(slots=True)
class Summary:
    """Collects the chapters."""

    chapters: list[Chapter] = field(default_factory=list)
    written: Mapping[str, int] = field(default_factory=dict)

    def add(self, chapter: Chapter) -> None:
        """One more held."""
        self.chapters.append(chapter)

    def wrote(self, counts: Mapping[str, int]) -> None:
        """What the workload did meanwhile."""
        self.written = dict(counts)

    @property
    def held(self) -> bool:
        """Whether the story came to its end."""
        return len(self.chapters) == CHAPTERS

    def show(self, console: Console) -> None:
        """The last screen."""
        table = Table.grid(padding=(0, 2))
        for chapter in self.chapters:
            table.add_row("[green]✓[/]", escape(chapter.title), f"[dim]{chapter.seconds:5.1f} s[/]")
            table.add_row("", f"[dim]{escape(chapter.said)}[/]", "")
        written = ", ".join(f"{count:,} × {name}" for name, count in sorted(self.written.items()))
        if written:
            table.add_row("", f"[dim]meanwhile the shop saw: {escape(written)}[/]", "")
        title = "Every copy is true" if self.held else "The story broke off"
        console.print(Panel(table, title=title, border_style="green" if self.held else "red", padding=(1, 2)))
        if self.held:
            console.print("Next: [bold]make up[/] keeps it running; README.md shows how to capture your own database.")
