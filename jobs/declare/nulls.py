"""Which columns are never NULL, as far as their texts tell.

In: conditions and expressions. Out: what is sure. Keeps true: under ANSI no operator here makes a NULL of values that
are none; what is not known is taken for one that may be NULL.
"""

from __future__ import annotations

import re
from typing import Final

from jobs.declare.facts import Attributes
from jobs.plan.nodes import Expr

# Atomic, so that no text can be taken apart in more than one way.
_PART: Final = (
    r"(?>c\d++|\d++(?:\.\d++)?|'[^'\\]*+'|CAST|AS|BIGINT|INT|SMALLINT|STRING|DECIMAL\(\d++,\s?\d++\)|\|\||[-+*/%()])"
)
_STRICT: Final = re.compile(rf"(?>(?:\s*+{_PART})++)\s*+")
_LITERAL: Final = r"(?:-?\d++(?:\.\d++)?|'[^'\\]*+')"
_OTHERWISE: Final = re.compile(
    rf"\(?coalesce\(c\d++, (?:{_LITERAL}|CAST\({_LITERAL} AS [A-Z]++(?:\([\d, ]*+\))?\))\)\)?", re.I
)


def never_null(condition: Expr) -> Attributes:
    """The column of `(c3 IS NOT NULL)`."""
    return frozenset(column for column in condition.reads if condition.sql == f"({column.sql} IS NOT NULL)")


def is_filled(expr: Expr, filled: Attributes) -> bool:
    """Whether an expression is NULL for no row, where `filled` columns are not."""
    if _OTHERWISE.fullmatch(expr.sql):
        return True
    return bool(expr.reads) and expr.reads <= filled and _STRICT.fullmatch(expr.sql) is not None
