"""Words that the parser takes, being of other databases, and Postgres does not.

In: a statement's tokens. Out: nothing, or the error at the first such word. Keeps true: what is declared is what a
Postgres console would run, so that a proof can ask Postgres for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from cdc.errors import ConfigError
from jobs.declare.context import UNSUPPORTED
from jobs.declare.source import Source

_FUNCTIONS: Final[Mapping[str, str]] = {
    "len": "length",
    "lcase": "lower",
    "ucase": "upper",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "startswith": "starts_with",
    "booland_agg": "bool_and",
    "boolor_agg": "bool_or",
    "logical_and": "bool_and",
    "logical_or": "bool_or",
    "group_concat": "string_agg",
    "listagg": "string_agg",
    "instr": "strpos",
    "charindex": "strpos",
    "locate": "strpos",
    "str_position": "strpos",
    "leftpad": "lpad",
    "rightpad": "rpad",
    "timestamp_trunc": "date_trunc",
    "datetrunc": "date_trunc",
    "date_to_date_str": "to_char",
}
_OPERATORS: Final[Mapping[str, str]] = {
    "==": "=",
    "<=>": "IS NOT DISTINCT FROM",
    "RLIKE": "~",
    "REGEXP": "~",
    "GLOB": "LIKE",
    "DIV": "/",
}
_TYPES: Final[Mapping[str, str]] = {
    "string": "text",
    "number": "numeric",
    "long": "bigint",
    "int64": "bigint",
    "float64": "double precision",
    "tinyint": "smallint",
    "nvarchar": "varchar",
    "datetime": "timestamp",
}


def check_spelling(source: Source, tokens: Sequence[Token]) -> None:
    """Refuse the first word that is not Postgres's, with the one that is."""
    for at, (token, following) in enumerate(itertools.pairwise(tokens)):
        if following.token_type is TokenType.L_PAREN:
            _refuse(source, token, "function", _FUNCTIONS.get(token.text.lower()))
            if token.text.lower() == "position" and _has_comma(tokens[at + 2 :]):
                _refuse(source, token, "form of position()", "position('x' IN column), or strpos")
        if token.token_type not in (TokenType.IDENTIFIER, TokenType.STRING):
            _refuse(source, token, "operator", _OPERATORS.get(token.text.upper()) if _is_between(tokens, at) else None)
        if token.token_type is TokenType.LIMIT and [each.text for each in tokens[at + 2 : at + 3]] == [","]:
            _refuse(source, token, "LIMIT of two numbers", "LIMIT 3 OFFSET 5")
        if token.token_type is TokenType.DCOLON:
            _refuse(source, following, "type", _TYPES.get(following.text.lower()))
        if token.token_type is TokenType.NUMBER and token.end + 1 == following.start and following.text[0] in _WORD:
            _refuse(source, token, "number", "plain digits, and AS before a name")


_WORD: Final = frozenset("_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NAMED: Final = frozenset({TokenType.ALIAS, TokenType.DOT, TokenType.COMMA, TokenType.SELECT, TokenType.FROM})


def _is_between(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word stands where an operator does, and not as a column's or a table's name."""
    if not tokens[at].text[0].isalpha():
        return True
    before = tokens[at - 1].token_type if at else TokenType.SELECT
    return tokens[at].token_type is not TokenType.VAR and before not in _NAMED


def _has_comma(tokens: Sequence[Token]) -> bool:
    """Whether the arguments that begin here are several."""
    depth = 0
    for token in tokens:
        if token.token_type is TokenType.COMMA and depth == 0:
            return True
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0:
            break
    return False


def _refuse(source: Source, token: Token, what: str, instead: str | None) -> None:
    if instead is not None:
        raise _error(source, token, f"Postgres has no such {what}: {token.text}", f"write {instead}")


def _error(source: Source, token: Token, message: str, hint: str) -> ConfigError:
    return source.error(token.start, message, hint, code=UNSUPPORTED, length=token.end - token.start + 1)
