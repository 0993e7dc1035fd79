"""Postgres array literals: array_out's text to nested lists and back.

In: `{1,NULL,"a b"}` and the delimiter. Out: ["1", None, "a b"], nested as deep as the array; and the exact inverse.
Keeps true: print_array(parse_array(text)) == text, or parse_array raises ValueError.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Nested: TypeAlias = "list[str | Nested | None]"

_DEPTH_MAX: Final = 6  # Postgres's MAXDIM
_FLAT = re.compile(r'\{[^{}"\\\s]*\}', re.ASCII)  # nothing in it needs more than a split
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NEEDS_ESCAPE = re.compile(r'["\\]')
_TOKEN: Final = {
    delimiter: re.compile(rf'[{{}}]|"((?:[^"\\]|\\.)*)"|([^{{}}"{delimiter}]+)', re.DOTALL) for delimiter in ",;"
}
# What array_in would read as something else; its white space is C's isspace.
_NEEDS_QUOTES: Final = {delimiter: re.compile(rf'[{{}}"\\{delimiter}\s]', re.ASCII) for delimiter in ",;"}


def has_bounds(text: str) -> bool:
    """Whether the literal names its bounds (`[0:2]={..}`), which a JSON array cannot say."""
    return text.startswith("[")


def parse_array(text: str, delimiter: str = ",") -> Nested:
    """The elements' texts; ValueError for what array_out does not print."""
    if _FLAT.fullmatch(text) and "null" not in text.lower():
        elements: Nested = [*text[1:-1].split(delimiter)] if len(text) > 2 else []
        if "" in elements:
            raise ValueError("an array literal has an empty element without quotes")
        return elements
    parsed = _parse_nested(text, delimiter)
    # The tokens are read loosely; that they print back is the check.
    if print_array(parsed, delimiter) != text:
        raise ValueError("not an array literal as Postgres prints it")
    return parsed


def print_array(elements: Nested, delimiter: str = ",") -> str:
    """The literal of the elements' texts, as array_out prints it."""
    parts = [
        print_array(element, delimiter) if isinstance(element, list) else _print_element(element, delimiter)
        for element in elements
    ]
    return "{" + delimiter.join(parts) + "}"


def _parse_nested(text: str, delimiter: str) -> Nested:
    root: Nested = []
    open_levels = [root]
    for token in _TOKEN[delimiter].finditer(text):
        quoted, bare = token.groups()
        if bare is not None:
            open_levels[-1].append(None if bare == "NULL" else bare)
        elif quoted is not None:
            open_levels[-1].append(_ESCAPED.sub(r"\1", quoted))
        elif token[0] == "{":
            level: Nested = []
            open_levels[-1].append(level)
            open_levels.append(level)
        else:
            open_levels.pop()
        if not 1 <= len(open_levels) <= _DEPTH_MAX + 1:
            raise ValueError("an array literal has unbalanced braces or more than six dimensions")
    if len(root) != 1 or not isinstance(root[0], list):
        raise ValueError("an array literal is one pair of braces")
    return root[0]


def _print_element(element: str | None, delimiter: str) -> str:
    if element is None:
        return "NULL"
    if element and element.upper() != "NULL" and not _NEEDS_QUOTES[delimiter].search(element):
        return element
    return '"' + _NEEDS_ESCAPE.sub(r"\\\g<0>", element) + '"'
