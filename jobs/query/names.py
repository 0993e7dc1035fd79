"""Which derived tables a query reads, and the query with their names replaced by what the engine knows them as.

In: SQL as the user wrote it, and the names of the ledger. Out: the SQL, text for text but for the table names, and what
each stands for. Keeps true: one statement that only reads; `schema.table`, `table` if only one fits, or a view's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from cdc.errors import CdcError, ConfigError
from cdc.names import path_name, quote_ident
from cdc.nearest import suggestion
from jobs.identifiers import identifier
from jobs.query.awaited import UNKNOWN
from jobs.query.resolved import REGISTERED, Resolved

SQL: Final = "QUERY_SQL"
Edit = tuple[int, int, str]
_READING: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "("})


Show = Callable[[str], Callable[[str], str] | None]
Absent = Callable[[str], CdcError | None]


def _all_of(_: str) -> None:
    return None


def resolve(text: str, known: Collection[str], show: Show = _all_of, absent: Absent = _all_of) -> Resolved:
    """The query as the engine can run it.

    `show` gives what a name stands for, where that is not a whole table; `absent` why a name is not known, where that
    is more than a wrong name.
    """
    sql = _statement(text)
    root = _parsed(sql)
    registered: dict[str, str] = {}
    plain: list[Edit] = []
    guarded: list[Edit] = []
    for table in root.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or _is_cte(table):
            continue
        name = _found(table, known, absent)
        engine = registered.setdefault(name, REGISTERED.format(len(registered)))
        select = show(name)
        shown = engine if select is None else f"({select(engine)})"
        alias = "" if table.args.get("alias") else f" AS {quote_ident(identifier(table.this))}"
        start, end = _place(table, "catalog", "db", "this")
        plain.append((start, end, f"{shown}{alias}"))
        guarded.append((start, end, f"(SELECT * FROM {shown} AS {engine} WHERE random() >= 0){alias}"))  # noqa: S608
    # After `public.orders AS orders`, public.orders.id is orders.id.
    for column in root.find_all(exp.Column):
        if column.args.get("db"):
            short = quote_ident(identifier(column.args["table"]))
            edit = (*_place(column, "catalog", "db", "table"), short)
            plain.append(edit)
            guarded.append(edit)
    tables = {engine: name for name, engine in registered.items()}
    return Resolved(_edited(sql, plain), _edited(sql, guarded), tables)


def _statement(text: str) -> str:
    """The text up to the semicolon or comment that ends it."""
    try:
        tokens = sqlglot.tokenize(text, read="postgres")
    except SqlglotError as error:
        raise _unreadable(error) from error
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    # Anything else never reaches the parser, which would take unknown statements as they are.
    if tokens and tokens[0].text.upper() not in _READING:
        raise _only_reads(tokens[0].text.upper())
    return text[: tokens[-1].end + 1] if tokens else ""


def _parsed(sql: str) -> exp.Expr:
    try:
        roots = [root for root in sqlglot.parse(sql, read="postgres") if root is not None]
    except SqlglotError as error:
        raise _unreadable(error) from error
    if len(roots) != 1:
        message = "the query is empty" if not roots else "the query holds more than one statement"
        raise ConfigError(message, "write one SELECT", code=SQL)
    for node in roots[0].walk():
        if isinstance(node, (exp.DML, exp.DDL, exp.Into, exp.Command, exp.Copy)) and not isinstance(node, exp.Query):
            raise _only_reads(type(node).__name__.upper())
    if not isinstance(roots[0], exp.Query):
        raise _only_reads(type(roots[0]).__name__.upper())
    return roots[0]


def _only_reads(word: str) -> ConfigError:
    return ConfigError(f"a query only reads: {word} is refused", "write one SELECT", code=SQL)


def _unreadable(error: SqlglotError) -> ConfigError:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    line, column, near = first.get("line"), first.get("col"), first.get("highlight")
    where = f" at line {line}, column {column}, near {near!r}" if line else ""
    return ConfigError(f"the query is not readable as SQL{where}", "is a quote or a parenthesis left open?", code=SQL)


def _found(table: exp.Table, known: Collection[str], absent: Absent) -> str:
    """The ledger's name for a table of the query."""
    name, db = identifier(table.this), table.args.get("db")
    if table.args.get("catalog"):
        raise (
            _unknown(f"{identifier(table.args['catalog'])}.{identifier(db)}.{name}", known)
            if db
            else _unknown(name, known)
        )
    if db:
        full = path_name(identifier(db), name)
        if full in known:
            return full
        raise _unknown(f"{identifier(db)}.{name}", known)
    if name in known:
        return name
    ending = path_name("", name)
    fitting = sorted(each for each in known if "." in each and each[each.index(".") :] == ending)
    if len(fitting) > 1:
        raise ConfigError(f"{name} is the name of several tables", f"write one of {', '.join(fitting)}", code=UNKNOWN)
    if not fitting:
        raise absent(name) or _unknown(name, known)
    return fitting[0]


def _unknown(written: str, known: Collection[str]) -> ConfigError:
    table = written.rpartition(".")[2]
    elsewhere = sorted(each for each in known if each.partition(".")[2] == table or each == table)
    if elsewhere:
        hint = f"did you mean {elsewhere[0]}?"
    else:
        short = {each.partition(".")[2] for each in known if "." in each} if "." not in written else set()
        hint = suggestion(written, {*known, *short}, what="tables")
    return ConfigError(f"there is no derived table {written}", hint, code=UNKNOWN)


def _is_cte(table: exp.Table) -> bool:
    """Whether a name is that of a WITH query which is visible where it stands."""
    if table.args.get("db"):
        return False
    name = identifier(table.this)
    return any(name == identifier(cte.args["alias"].this) for cte in _visible(table))


def _visible(node: exp.Expr) -> Iterator[exp.Expr]:
    inside: list[exp.Expr] = [node]
    while (parent := inside[-1].parent) is not None:
        inside.append(parent)
        found = parent.args.get("with_")
        if not isinstance(found, exp.With):
            continue
        within = [at for at, cte in enumerate(found.expressions) if any(cte is each for each in inside)]
        last = within[0] + bool(found.args.get("recursive")) if within else len(found.expressions)
        yield from found.expressions[:last]


def _place(node: exp.Expr, *parts: str) -> tuple[int, int]:
    present = [node.args[part] for part in parts if node.args.get(part)]
    return present[0].meta["start"], present[-1].meta["end"] + 1


def _edited(sql: str, edits: list[Edit]) -> str:
    for start, end, text in sorted(edits, reverse=True):
        sql = sql[:start] + text + sql[end:]
    return sql
