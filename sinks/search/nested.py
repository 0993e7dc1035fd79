"""Columns that documents hold as what they are, where stores keep their text: json and jsonb, and arrays.

In: a view's columns and the types that Postgres says they have, values as printed. Out: real JSON beside the exact
texts, and the texts again. Keeps true: a text that no longer says what the document holds is not given back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cdc.arrays import has_bounds, parse_array
from sinks.spec import ViewSpec
from sinks.values import json_text

TEXTS: Final = "__texts"
"""The member with the exact texts; no column is called so, since a leading `__` is escaped (cdc.names)."""

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
_BARE: Final = frozenset({"smallint", "integer", "bigint", "real", "double precision"})
_BOOLEANS: Final = {"t": "true", "f": "false"}
_OTHER_DELIMITER: Final = "box"


class NotNestedError(Exception):
    """A value that is not of the form of its type; names the column alone."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


@dataclass(frozen=True, slots=True)
class Form:
    """What a column's texts are: JSON, or array literals of an `element` type."""

    element: str | None = None

    def real(self, text: str) -> str:
        """The JSON that a text says, on one line; ValueError if it says none."""
        if self.element is not None:
            literal = text.partition("=")[2] if has_bounds(text) else text
            return self._array(parse_array(literal))
        try:
            json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        # In JSON a line's end is white space between tokens: within strings it is escaped.
        return text.replace("\n", " ").replace("\r", " ")

    def _array(self, elements: Sequence[Any]) -> str:
        return "[" + ",".join(self._element(each) for each in elements) + "]"

    def _element(self, element: Any) -> str:
        if element is None:
            return "null"
        if isinstance(element, list):
            return self._array(element)
        if self.element == "boolean":
            return _BOOLEANS[element]
        if self.element in _BARE and _NUMBER.fullmatch(element):
            return str(element)
        return json_text(element)


@dataclass(frozen=True, slots=True)
class Nested:
    """A view's columns of this kind."""

    forms: Mapping[str, Form]

    def words(self) -> tuple[str, ...]:
        """What another form of them would change."""
        return tuple(f"{name} {form.element or 'json'}" for name, form in self.forms.items())

    def members(self, columns: Sequence[str], values: Sequence[str | None]) -> tuple[str | None, ...]:
        """The values of the columns as JSON, and one more: the exact texts."""
        made, texts = list(values), list[str]()
        for place, name in enumerate(columns):
            form, value = self.forms.get(name), values[place]
            if form is None or value is None or value == "null":
                continue
            try:
                made[place] = form.real(json.loads(value))
            except (ValueError, KeyError) as error:
                raise NotNestedError(name) from error
            texts.append(f"{json_text(name)}:{value}")
        return (*made, "{" + ",".join(texts) + "}")

    def texts(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The texts of a stored document's columns; where one is not what the document holds, what that prints as."""
        kept = document.get(TEXTS)
        found = kept if isinstance(kept, dict) else {}
        return {name: self._text(form, found.get(name), document.get(name)) for name, form in self.forms.items()}

    def _text(self, form: Form, text: Any, stored: Any) -> Any:
        if stored is None and text is None:
            return None
        try:
            if isinstance(text, str) and json_text(json.loads(form.real(text))) == json_text(stored):
                return text
        except (ValueError, KeyError):
            pass
        return json_text(stored)


def nested_of(spec: ViewSpec) -> Nested:
    """Those of the view."""
    found = {name: form for name in spec.columns if (form := _form(spec.printed.get(name, ""))) is not None}
    return Nested(found)


def _form(printed: str) -> Form | None:
    if printed in ("json", "jsonb"):
        return Form()
    # numeric(10,2)[] has elements of numeric.
    element = re.sub(r"\(.*\)", "", printed.removesuffix("[]"))
    return Form(element) if printed.endswith("[]") and element != _OTHER_DELIMITER else None
