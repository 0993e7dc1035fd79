"""Which columns are known to be equal where all conditions hold.

In: conditions. Out: classes of attributes. Keeps true: equality is only followed between columns of one type, since
'01' = 1 = '1' says nothing of '01' and '1'.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobs.plan.nodes import Attribute, Equality, Expr


class Equalities:
    """Asks for a column's equals among others."""

    def __init__(self, conditions: Iterable[Expr]) -> None:
        self._class: dict[Attribute, frozenset[Attribute]] = {}
        for each in conditions:
            if isinstance(each, Equality) and each.left is not None and each.right is not None:
                self._unite(each.left, each.right)

    def of(self, column: Attribute) -> frozenset[Attribute]:
        """The columns equal to this one, itself among them."""
        return self._class.get(column, frozenset({column}))

    def known(self, column: Attribute, among: Iterable[Attribute]) -> Attribute | None:
        """The column itself or an equal one, if it is among these."""
        there = frozenset(among)
        if column in there:
            return column
        return min(self.of(column) & there, key=lambda each: each.id, default=None)

    def _unite(self, left: Attribute, right: Attribute) -> None:
        both = self.of(left) | self.of(right)
        self._class |= dict.fromkeys(both, both)
