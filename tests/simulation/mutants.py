"""Small breakages of the protocol's rules, one at a time, in the code under test or in the models' drivers.

Each replaces one piece of one function's text; the simulation has to notice. A mutant whose text is gone does not fit
the code any more and fails by name. `floor_lsn` has none: reading what is applied already changes nothing.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Edit:
    """In the function `name` of `owner`, `old` (which is there once) becomes `new`."""

    owner: Any
    name: str
    old: str
    new: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the edited function in the place of the real one."""
        held: Any = inspect.getattr_static(self.owner, self.name)
        function: Any = held.fget if isinstance(held, property) else held
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name} does not hold {self.old!r} once"
        made: dict[str, Any] = {}
        code = compile(source.replace(self.old, self.new), "<mutant>", "exec", __future__.annotations.compiler_flag)
        exec(code, function.__globals__, made)
        monkeypatch.setattr(self.owner, self.name, made[self.name])


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule; `faults` are made more likely where it shows only with them."""

    rule: str
    edit: Edit
    faults: Mapping[str, float] = field(default_factory=dict)


def broken(rule: str, owner: Any, name: str, old: str, new: str, **faults: float) -> Mutant:
    """A mutant of one edit; faults are given with _ for a space."""
    named = {kind.replace("_", " "): rate for kind, rate in faults.items()}
    return Mutant(rule, Edit(owner, name, old, new), named)
