"""The functions that Spark computes exactly as Postgres does.

In: function nodes. Out: Spark calls. Keeps true: counts and positions are in characters; arguments for which the two
differ (negative lengths, empty sets) are refused, so that what is left is exact; docs/VIEWS.md lists what is here.
"""

from __future__ import annotations

import string as ascii_letters
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from jobs.declare import documents
from jobs.declare.arithmetic import require_number
from jobs.declare.context import Context, Rule
from jobs.declare.literals import settle, string
from jobs.declare.operators import as_text, text
from jobs.declare.quotients import is_computed
from jobs.plan.types import BOOL, INT4, TEXT, Family, Typed, cast, decimal
from jobs.typemap import PRECISION_MAX


def constant(context: Context, node: exp.Expr, part: str, least: int) -> int:
    """An argument that must be a plain whole number, not below `least`."""
    value = node.args.get(part)
    if isinstance(value, exp.Literal) and not value.args.get("is_string") and str(value.this).isdigit():
        found = int(value.this)
        if least <= found < 2**31:
            return found
    hint = "for other values the engines differ"
    raise context.refuse(value or node, f"a whole number from {least} is expected here", hint)


def constant_text(context: Context, node: exp.Expr, part: str) -> str:
    """An argument that must be a non-empty string literal."""
    value = node.args.get(part)
    if isinstance(value, exp.Literal) and value.args.get("is_string") and value.this:
        return str(value.this)
    raise context.refuse(value or node, "a string literal that is not empty is expected here", "write '..'")


def cased(context: Context, node: exp.Expr) -> Typed:
    """lower() and upper() of the C collation, which know ASCII letters alone; other collations have their own rules."""
    value = text(context, node, "this")
    name = "lower" if isinstance(node, exp.Lower) else "upper"
    if not value.c_collated:
        hint = f'write {name}(column COLLATE "C"), which changes ASCII letters alone'
        raise context.refuse(node, f"{name} depends on the database's collation", hint)
    small, large = ascii_letters.ascii_lowercase, ascii_letters.ascii_uppercase
    before, after = (large, small) if name == "lower" else (small, large)
    return Typed(f"translate({value.sql}, '{before}', '{after}')", TEXT, c_collated=True)


def length(context: Context, node: exp.Expr) -> Typed:
    """Characters; of character(n) Postgres does not count the padding."""
    return Typed(f"length({text(context, node, 'this').sql})", INT4)


def octet_length(context: Context, node: exp.Expr) -> Typed:
    """Bytes in UTF-8."""
    arguments = node.expressions
    if len(arguments) != 1:
        raise context.refuse(node, "octet_length takes one argument", "write octet_length(column)")
    return Typed(f"octet_length({as_text(context, arguments[0], context.translate(arguments[0])).sql})", INT4)


def end_of(context: Context, node: exp.Expr) -> Typed:
    """left() and right() of a number of characters."""
    name = "left" if isinstance(node, exp.Left) else "right"
    return Typed(f"{name}({text(context, node, 'this').sql}, {constant(context, node, 'expression', 0)})", TEXT)


def substring(context: Context, node: exp.Expr) -> Typed:
    """substring() and substr() from a position."""
    value, start = text(context, node, "this"), constant(context, node, "start", 1)
    if not node.args.get("length"):
        return Typed(f"substring({value.sql}, {start})", TEXT)
    return Typed(f"substring({value.sql}, {start}, {constant(context, node, 'length', 0)})", TEXT)


def trim(context: Context, node: exp.Expr) -> Typed:
    """trim, btrim, ltrim, rtrim: of spaces, or of any character in a set."""
    value, side = text(context, node, "this"), str(node.args.get("position") or "BOTH")
    if side not in ("BOTH", "LEADING", "TRAILING"):
        raise context.refuse(node, "this form of trim is not supported in views", "write btrim(text, 'characters')")
    if node.args.get("collation"):
        raise context.refuse(node, "trim with a collation is not supported in views", "leave COLLATE out")
    characters = constant_text(context, node, "expression") if node.args.get("expression") else " "
    return Typed(f"trim({side} {string(characters)} FROM {value.sql})", TEXT)


def replace(context: Context, node: exp.Expr) -> Typed:
    """All occurrences, from the left."""
    if not node.args.get("replacement"):
        raise context.refuse(node, "replace() takes more arguments", "write replace(text, 'what', 'by what')")
    parts = [text(context, node, part).sql for part in ("this", "expression", "replacement")]
    return Typed(f"replace({', '.join(parts)})", TEXT)


def position(context: Context, node: exp.Expr) -> Typed:
    """strpos() and position(): 0 where there is none."""
    return Typed(f"instr({text(context, node, 'this').sql}, {text(context, node, 'substr').sql})", INT4)


def starts_with(context: Context, node: exp.Expr) -> Typed:
    """starts_with()."""
    return Typed(f"startswith({text(context, node, 'this').sql}, {text(context, node, 'expression').sql})", BOOL)


def concat(context: Context, node: exp.Expr) -> Typed:
    """concat() of texts, which skips NULLs where || would be NULL."""
    if not node.args.get("safe"):
        hint = "write one literal"
        raise context.refuse(node, "string literals side by side are not supported in views", hint)
    return _joined(context, "''", node.expressions)


def concat_ws(context: Context, node: exp.Expr) -> Typed:
    """concat_ws() of texts."""
    separator, *values = node.expressions
    return _joined(context, as_text(context, separator, context.translate(separator)).sql, values)


def _joined(context: Context, separator: str, nodes: list[exp.Expr]) -> Typed:
    values = [as_text(context, node, context.translate(node)).sql for node in nodes]
    return Typed(f"concat_ws({', '.join([separator, *values])})", TEXT)


def split_part(context: Context, node: exp.Expr) -> Typed:
    """The n-th field, from 1."""
    delimiter, index = constant_text(context, node, "delimiter"), constant(context, node, "part_index", 1)
    return Typed(f"split_part({text(context, node, 'this').sql}, {string(delimiter)}, {index})", TEXT)


def pad(context: Context, node: exp.Expr) -> Typed:
    """lpad() and rpad(), which also cut."""
    name = "lpad" if node.args.get("is_left") else "rpad"
    fill = constant_text(context, node, "fill_pattern") if node.args.get("fill_pattern") else " "
    width = constant(context, node, "expression", 0)
    return Typed(f"{name}({text(context, node, 'this').sql}, {width}, {string(fill)})", TEXT)


def repeat(context: Context, node: exp.Expr) -> Typed:
    """repeat()."""
    return Typed(f"repeat({text(context, node, 'this').sql}, {constant(context, node, 'times', 0)})", TEXT)


def one_text(context: Context, node: exp.Expr) -> Typed:
    """Functions from text to text that are called alike."""
    name = "md5" if isinstance(node, exp.MD5) else "reverse"
    return Typed(f"{name}({text(context, node, 'this').sql})", TEXT)


def absolute(context: Context, node: exp.Expr) -> Typed:
    """abs()."""
    value = settle(context.part(node))
    require_number(context, node, value)
    if is_computed(value.type):
        return Typed(f"replace({value.sql}, '-', '')", value.type)
    return Typed(f"abs({value.sql})", value.type)


def rounded(context: Context, node: exp.Expr) -> Typed:
    """round() of a numeric: half away from zero."""
    digits = constant(context, node, "decimals", 0) if node.args.get("decimals") else 0
    value = context.part(node)
    if is_computed(value.type) and digits <= PRECISION_MAX:
        return cast(value, decimal(PRECISION_MAX, digits))
    _require_decimal(context, node, value)
    precision = value.type.precision - value.type.scale + 1 + digits
    if precision > PRECISION_MAX:
        hint = "cast the argument to a smaller numeric(p,s) first"
        raise context.refuse(node, f"the result may need more than {PRECISION_MAX} digits", hint)
    type_ = decimal(precision, digits)
    return Typed(f"CAST({value.sql} AS {type_.spark})", type_)


def whole(context: Context, node: exp.Expr) -> Typed:
    """floor() and ceil() of a numeric."""
    value = _decimal(context, node)
    name = "floor" if isinstance(node, exp.Floor) else "ceil"
    type_ = decimal(min(PRECISION_MAX, value.type.precision - value.type.scale + 1), 0)
    return Typed(f"CAST({name}({value.sql}) AS {type_.spark})", type_)


def _decimal(context: Context, node: exp.Expr) -> Typed:
    value = context.part(node)
    _require_decimal(context, node, value)
    return value


def _require_decimal(context: Context, node: exp.Expr, value: Typed) -> None:
    if value.type.family is not Family.DECIMAL:
        hint = "supported: numeric(p,s); cast the argument"
        raise context.refuse(node, f"rounding {value.type.name} is not supported in views", hint)


_THIS: Final = frozenset({"this"})
_TWO: Final = frozenset({"this", "expression"})

RULES: Final[Mapping[type[exp.Expr], Rule]] = {
    exp.Lower: Rule(cased, _THIS, "lower()"),
    exp.Upper: Rule(cased, _THIS, "upper()"),
    exp.Length: Rule(length, _THIS, "length()"),
    exp.Left: Rule(end_of, _TWO, "left()"),
    exp.Right: Rule(end_of, _TWO, "right()"),
    exp.Substring: Rule(substring, frozenset({"this", "start", "length"}), "substring()"),
    exp.Trim: Rule(trim, frozenset({"this", "expression", "position"}), "trim()"),
    exp.Replace: Rule(replace, frozenset({"this", "expression", "replacement"}), "replace()"),
    exp.StrPosition: Rule(position, frozenset({"this", "substr"}), "strpos()"),
    exp.StartsWith: Rule(starts_with, _TWO, "starts_with()"),
    exp.Concat: Rule(concat, frozenset({"expressions", "safe", "coalesce"}), "concat()"),
    exp.ConcatWs: Rule(concat_ws, frozenset({"expressions", "safe", "coalesce"}), "concat_ws()"),
    exp.SplitPart: Rule(split_part, frozenset({"this", "delimiter", "part_index"}), "split_part()"),
    exp.Pad: Rule(pad, frozenset({"this", "expression", "fill_pattern", "is_left"}), "lpad()"),
    exp.Repeat: Rule(repeat, frozenset({"this", "times"}), "repeat()"),
    exp.MD5: Rule(one_text, _THIS, "md5()"),
    exp.Reverse: Rule(one_text, _THIS, "reverse()"),
    exp.Abs: Rule(absolute, _THIS, "abs()"),
    exp.Round: Rule(rounded, frozenset({"this", "decimals"}), "round()"),
    exp.Floor: Rule(whole, _THIS, "floor()"),
    exp.Ceil: Rule(whole, _THIS, "ceil()"),
}
FUNCTIONS: Final[Mapping[str, Rule]] = {
    "octet_length": Rule(octet_length, frozenset({"this", "expressions"}), "octet_length()"),
    **documents.FUNCTIONS,
}
