"""A view file's text and the way to point into it.

In: the file's name and text, an offset in it. Out: a ConfigError that names file, line and column and shows the line
with a caret under the word. Keeps true: whatever is wrong with a view file is said this way, never by a traceback.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.errors import ConfigError

EXCERPT_MAX = 100
TAB = "    "


@dataclass(frozen=True, slots=True)
class Source:
    """One view file; `name` is how the user would call it."""

    name: str
    text: str

    def line_column(self, offset: int) -> tuple[int, int]:
        """Both from 1."""
        before = self.text[: min(offset, len(self.text))]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column, both from 1."""
        lines = self.text.split("\n")
        return sum(len(each) + 1 for each in lines[: line - 1]) + column - 1

    def error(self, offset: int, message: str, hint: str, *, code: str, length: int = 1) -> ConfigError:
        """`file:line:column: message`, and the line under it with the place marked."""
        line, column = self.line_column(offset)
        text = self.text.split("\n")[line - 1]
        excerpt, before = _excerpt(text, column - 1)
        marks = "^" * max(1, min(length, len(excerpt) - before))
        margin = f"{line:>5} | "
        shown = f"{margin}{excerpt.replace(chr(9), TAB)}"
        caret = " " * (len(margin) - 2) + "| " + " " * _width(excerpt[:before]) + marks
        return ConfigError(f"{self.name}:{line}:{column}: {message}\n{shown}\n{caret}", hint, code=code)


def _excerpt(line: str, at: int) -> tuple[str, int]:
    """The part of a long line around a place, and the place in it."""
    if len(line) <= EXCERPT_MAX:
        return line, at
    start = max(0, min(at - EXCERPT_MAX // 2, len(line) - EXCERPT_MAX))
    return line[start : start + EXCERPT_MAX], at - start


def _width(text: str) -> int:
    return len(text.replace("\t", TAB))
