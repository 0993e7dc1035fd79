"""Random expressions over the columns of tests/integration/test_translate.py: nested, typed, mostly supported."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

AWKWARD_TEXTS = [
    "",
    " ",
    "a",
    "A",
    "b",
    "ab",
    "Ab",
    "ÀÉß",
    "İıſK",
    "😀x😀",
    "a%b",
    "a_b",
    "a\\b",
    "a\\",
    "%",
    "_",
    "it's",
    "\t",
    "a\nb",
    "  lead",
    "trail  ",
    "$",
    "${x}",
    "e\u0301",
    "ＡＢ",
    "\u00a0nbsp\u00a0",
    "ab,cd,,ef",
    ",",
    "x" * 300,
    "NULL",
    "0",
    "-1",
    "z",
    "\x01\x0b\x1f\b\f\r\\u000b",
    "\u2028",
    "ﬁ",
    "--",
    "xxabcxx",
    "AbCabc",
    "aXbX",
    "\U0010ffff",
    "\uffff",
]


T = TypeVar("T")

LITERALS = ("a", "b", "", "A", "x", "ab", "%", "_", "\\", "é", "😀", " ", ",", "aXb", "''")
TEXTS = ("s", "t", "v", "e::text", "c::text", "k4::text", "d::text", "u::text", "dt::text", "ts::text")
NUMBERS = (
    "k4",
    "n4",
    "i2::integer",
    "d",
    "d2",
    "1",
    "2",
    "0.5",
    "1.25",
    "-1",
    "k4::bigint",
    "0",
    "'3'::int",
    "k4 / n4",
)
TRUTHS = ("b", "TRUE", "b IS NULL", "i4 > 0", "s = t", "d < d2", "dt >= '1970-01-01'")
OPERATORS = ("=", "<>", "<", ">", "<=", ">=")
PATTERNS = ("'a%'", "'%x%'", "'_'", "'%_b'", "'\\%%'")


class Expressions:
    """A seeded source of expressions."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def any(self) -> str:
        """An expression of any type, up to three levels deep."""
        depth = self._dice.randrange(1, 4)
        makers: list[Callable[[int], str]] = [self._text, self._number, self._truth]
        return self._one(makers)(depth)

    def _one(self, among: Sequence[T]) -> T:
        return self._dice.choice(among)

    def _filled(self, templates: tuple[str, ...], depth: int) -> str:
        """{t}, {n}, {b} stand for an expression of text, number or truth; {0}..{9} for a number up to that."""
        makers: dict[str, Callable[[int], str]] = {"t": self._text, "n": self._number, "b": self._truth}
        pieces = self._one(templates).replace("{", "\0{").replace("}", "}\0").split("\0")
        for at, piece in enumerate(pieces):
            if piece.startswith("{"):
                word = piece[1:-1]
                if word in makers:
                    pieces[at] = makers[word](depth - 1)
                elif word.isdigit():
                    pieces[at] = str(self._dice.randint(0, int(word)))
                else:
                    pieces[at] = self._one(PATTERNS if word == "like" else OPERATORS)
        return "".join(pieces)

    def _text(self, depth: int) -> str:
        if depth <= 0:
            return self._one([*TEXTS, f"'{self._one(LITERALS)}'"])
        return self._filled(TEXT_FORMS, depth)

    def _number(self, depth: int) -> str:
        return self._filled(NUMBER_FORMS, depth) if depth > 0 else self._one(NUMBERS)

    def _truth(self, depth: int) -> str:
        return self._filled(TRUTH_FORMS, depth) if depth > 0 else self._one(TRUTHS)


TEXT_FORMS = (
    *("{t} || {t}", "({t} || {t})", "coalesce({t}, {t})", "nullif({t}, {t})", "left({t}, {4})", "right({t}, {4})"),
    *("substring({t}, 1, {4})", "substr({t}, 2, {4})", "trim(both 'a ' from {t})", "ltrim({t}, 'xX')", "rtrim({t})"),
    *("replace({t}, {t}, {t})", "CASE WHEN {b} THEN {t} ELSE {t} END", 'lower(({t}) COLLATE "C")', "md5({t})"),
    *('upper(({t}) COLLATE "C")', "concat({t}, {t})", "concat_ws({t}, {t}, {t})", "split_part({t}, ',', 2)"),
    *("split_part({t}, 'a', 1)", "lpad({t}, {5}, 'xy')", "rpad({t}, {5})", "reverse({t})", "repeat({t}, {2})"),
    *("({n})::text", "({b})::text", "CASE {n} WHEN {n} THEN {t} END", "({t})::varchar(3)"),
)
NUMBER_FORMS = (
    *("{n} + {n}", "{n} - {n}", "{n} * {n}", "({n} - {n})", "-({n})", "abs({n})", "length({t})", "strpos({t}, {t})"),
    *("coalesce({n}, {n})", "nullif({n}, {n})", "CASE WHEN {b} THEN {n} ELSE {n} END", "round({n}, {3})", "floor({n})"),
    *("ceil({n})", "({n})::numeric(30,{4})", "k4 % n4", "greatest({n}, {n})", "least({n}, {n})", "octet_length({t})"),
)
TRUTH_FORMS = (
    *("{b} AND {b}", "{b} OR {b}", "NOT {b}", "NOT ({b})", "({b}) IS TRUE", "({b}) IS NOT FALSE", "({b}) IS NULL"),
    *("{n} {op} {n}", "{t} = {t}", "{t} <> {t}", '({t}) COLLATE "C" {op} {t}', "{n} BETWEEN {n} AND {n}"),
    *("{n} IN ({n}, {n}, NULL)", "{t} NOT IN ({t}, {t})", "{n} IS DISTINCT FROM {n}", "{t} IS NOT DISTINCT FROM {t}"),
    *("{t} LIKE {like}", "{t} NOT LIKE {like}", "starts_with({t}, {t})", "coalesce({b}, {b})", "({b}) = ({b})"),
    *("{b} = {b}", "CASE WHEN {b} THEN {b} ELSE {b} END", "{n} {op} {n} = {b}"),
)
