"""A tally's new state from what changed: the results over rows that went and over rows that came, and the stored ones.

In: a Tally, the changed relations. Out: Spark SQL. Keeps true: what a group's rows were, without those that went, and
with those that came, is what they are: any of a join's inputs counts its own changes, those before it as they are now,
those after it as they were. A group whose result cannot be told from that is UNSURE, never wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from jobs.plan.nodes import Aggregate, Attribute, Expr, Filter, Join, Plan, Project, Scan
from jobs.plan.render import listed, quoted, render, table
from jobs.plan.tally import Fold, Tally, fold_of
from jobs.plan.view import ViewPlan
from jobs.plan.walk import walk
from jobs.upkeep.affected import same_image
from jobs.upkeep.near import Near
from jobs.upkeep.tables import NEW, OLD, State, Tables

UNSURE: Final = "unsure"
"""The column that says that a group has to be computed from its rows."""
CHANGED: Final = "changed "
WAS: Final = "was "
"""What a relation's name begins with where not its present rows are read."""
_SIGN: Final = "__sign"


@dataclass(frozen=True, slots=True)
class Signed:
    """`sql` has, of each touched group, the results over the rows that went (sign -1) and over those that came (1).

    `before` are the relations whose old state it reads. `is_exact` where all these rows went, or came, in truth: where
    several inputs of a join changed, a row may be among both that was never there.
    """

    sql: str
    before: frozenset[str]
    is_exact: bool


def signed(tally: Tally, tables: Tables, changed: Collection[str], near: Near | None = None) -> Signed:
    """What changed, by group."""
    scans = [each for each in walk(tally.aggregate.input) if isinstance(each, Scan)]
    before: set[str] = set()
    terms = []
    for at, start in enumerate(scans):
        if start.relation not in changed:
            continue
        was = [each for each in scans[at + 1 :] if each.relation in changed]
        before |= {each.relation for each in was}
        terms.append(_term(tally, tables, start, was, near))
    return Signed(" UNION ALL ".join(terms), frozenset(before), len(terms) == 1)


def _term(tally: Tally, tables: Tables, start: Scan, was: Collection[Scan], near: Near | None) -> str:
    own = replace(
        start,
        relation=f"{CHANGED}{start.relation}",
        columns=(*start.columns, tally.sign),
        sources=(*start.sources, _SIGN),
    )
    body = _placed(tally.aggregate.input, start, own, was, tally.sign)
    if near is not None:
        body = _met(body, own, near)

    def name_of(relation: str) -> str:
        if relation == own.relation:
            return _images(tables, start)
        if relation.startswith(WAS):
            return tables.name(relation.removeprefix(WAS), State.BEFORE)
        return tables.name(relation, State.NOW)

    groups = (*tally.aggregate.groups, tally.sign)
    names = listed(column.sql for column in (*groups, *(column for column, _ in tally.aggregate.calls)))
    sql = render(Aggregate(body, groups, tally.aggregate.calls), name_of)
    return f"SELECT {names} FROM {table(sql)}"


def _images(tables: Tables, scan: Scan) -> str:
    """Both images of each changed row, signed; not of those that are alike in all that is read."""
    pairs = zip(scan.columns, map(quoted, scan.sources), strict=True)
    same = " AND ".join(same_image(column, name) for column, name in pairs)
    sides = ", ".join(f"named_struct('s', {sign}, 'r', {side})" for sign, side in ((-1, OLD), (1, NEW)))
    changed = tables.name(scan.relation, State.CHANGED)
    where = f"{OLD} IS NULL OR {NEW} IS NULL OR NOT ({same})"
    images = f"SELECT explode(array({sides})) AS e FROM {changed} WHERE {where}"
    return table(f"SELECT e.r.*, e.s AS {_SIGN} FROM {table(images)} WHERE e.r IS NOT NULL")


def _placed(node: Plan, start: Scan, own: Scan, was: Collection[Scan], sign: Attribute) -> Plan:
    """The plan with a changed scan's images in its place, whose sign every projection passes on."""
    match node:
        case Scan():
            if node == start:
                return own
            return replace(node, relation=f"{WAS}{node.relation}") if node in was else node
        case Filter():
            return replace(node, input=_placed(node.input, start, own, was, sign))
        case Project():
            below = _placed(node.input, start, own, was, sign)
            passed = ((sign, Expr.of(sign)),) if sign in below.columns else ()
            return Project(below, (*node.items, *passed))
        case Join():
            return replace(node, inputs=tuple(_placed(each, start, own, was, sign) for each in node.inputs))
        case _:
            raise AssertionError("a tally is of filters, projections and inner joins")


def _met(node: Plan, own: Scan, near: Near) -> Plan:
    """Of the other inputs of a join, only what meets the images."""
    match node:
        case Filter() | Project():
            return replace(node, input=_met(node.input, own, near))
        case Join():
            first = next(each for each in node.inputs if own in walk(each))
            known = near.known(first, (column for column in first.columns if column != own.columns[-1]))
            return near.narrowing.narrow(node, known)[0] if known else node
        case _:
            return node


def stored_sql(view: ViewPlan, columns: Collection[str], rows: str) -> str:
    """The view's stored rows as results of sign 0; `columns` are what they are called there."""
    assert view.tally is not None
    kept = dict(zip(view.stored, columns, strict=True))
    groups, calls = (
        [f"{quoted(kept[column])} AS {column.sql}" for column in columns_]
        for columns_ in (view.tally.aggregate.groups, (column for column, _ in view.tally.aggregate.calls))
    )
    return f"SELECT {listed((*groups, f'0 AS {view.tally.sign.sql}', *calls))} FROM {rows}"


def folded_sql(tally: Tally, rows: str, *, is_exact: bool) -> str:
    """Each group's new results, of a relation that has the signed and the stored ones, and whether they are UNSURE."""
    sign, calls = tally.sign.sql, tally.aggregate.calls
    groups = [column.sql for column in tally.aggregate.groups]
    counts = dict.fromkeys((tally.rows, *tally.filled.values(), *_counted(tally)))
    unknown = f"{sign} = 0 AND ({' OR '.join(f'{column.sql} IS NULL' for column in counts)})"
    gathered = [item for column, expr in calls for item in _gathered(column, expr, sign)]
    items = listed((*groups, *gathered, f"coalesce(bool_or({unknown}), FALSE) AS unknown"))
    by = f" GROUP BY {listed(groups)}" if groups else ""
    results = [f"{_result(tally, column, expr, is_exact=is_exact)} AS {column.sql}" for column, expr in calls]
    shown = listed((*groups, *results, f"{_unsure(tally, is_exact=is_exact)} AS {UNSURE}"))
    return f"SELECT {shown} FROM {table(f'SELECT {items} FROM {rows}{by}')}"


def _counted(tally: Tally) -> Iterator[Attribute]:
    """The hidden counts: a row without them was put right by another hand."""
    calls = dict(tally.aggregate.calls)
    return (column for column in tally.hidden if fold_of(calls[column]) is Fold.COUNT)


def _gathered(column: Attribute, expr: Expr, sign: str) -> Iterator[str]:
    name = column.sql
    fold = fold_of(expr)
    if fold in (Fold.COUNT, Fold.SUM):
        yield f"sum(IF({sign} < 0, -{name}, {name})) AS {name}"
        return
    best = "min" if fold is Fold.LEAST else "max"
    for word, condition in (("was", "= 0"), ("gone", "< 0"), ("come", "> 0")):
        yield f"{best}(IF({sign} {condition}, {name}, NULL)) AS {name}_{word}"


def _result(tally: Tally, column: Attribute, expr: Expr, *, is_exact: bool) -> str:
    name = column.sql
    match fold_of(expr):
        case Fold.COUNT:
            return f"coalesce({name}, 0)"
        case Fold.SUM:
            return f"IF({tally.filled[column].sql} > 0, CAST({name} AS {column.type.spark}), NULL)"
        case _:
            come = _is_come(name, expr, is_exact=is_exact)
            return f"IF({tally.rows.sql} > 0, IF({come}, {name}_come, {name}_was), NULL)"


def _unsure(tally: Tally, *, is_exact: bool) -> str:
    """A group that lost all rows is sure, whatever its extremes were."""
    rows = tally.rows.sql
    counts = [column.sql for column in dict.fromkeys(tally.filled.values())]
    wrong = [f"{rows} IS NULL", f"{rows} < 0", *(f"NOT ({name} BETWEEN 0 AND {rows})" for name in counts)]
    for total, count in tally.filled.items():
        wrong.append(f"IF({count.sql} > 0, {total.sql} IS NULL, coalesce({total.sql} <> 0, FALSE))")
    wrong += [
        f"({rows} > 0 AND NOT {_is_told(column.sql, expr, is_exact=is_exact)})"
        for column, expr in tally.aggregate.calls
        if fold_of(expr) in (Fold.LEAST, Fold.GREATEST)
    ]
    return f"(unknown OR coalesce({' OR '.join(wrong)}, TRUE))"


def _is_come(name: str, expr: Expr, *, is_exact: bool) -> str:
    """Whether the extreme came: what is both among the rows that went and came may be among neither."""
    better = "<" if fold_of(expr) is Fold.LEAST else ">"
    there = "TRUE" if is_exact else f"({name}_gone IS NULL OR {name}_come {better} {name}_gone)"
    return f"({name}_come IS NOT NULL AND ({name}_was IS NULL OR {name}_come {better}= {name}_was) AND {there})"


def _is_told(name: str, expr: Expr, *, is_exact: bool) -> str:
    """Whether the extreme came, or is not among what went."""
    better = "<" if fold_of(expr) is Fold.LEAST else ">"
    stays = f"({name}_gone IS NULL OR coalesce({name}_was {better} {name}_gone, FALSE))"
    return f"({_is_come(name, expr, is_exact=is_exact)} OR {stays})"


def rows_sql(view: ViewPlan, folded: str) -> str:
    """The view's rows of the groups that are there, by the expressions that it has over its results."""
    assert view.tally is not None
    own = view.tally.aggregate
    alive = f" AND {view.tally.rows.sql} > 0" if own.groups else ""
    rows = table(f"SELECT * FROM {folded} WHERE NOT {UNSURE}{alive}")
    results = Scan(folded, own.columns, tuple(column.sql for column in own.columns), ())
    root = _over(view.root, results)
    return f"SELECT {listed(column.sql for column in view.stored)} FROM {table(render(root, lambda _: rows))}"


def _over(node: Plan, results: Scan) -> Plan:
    return Project(_over(node.input, results), node.items) if isinstance(node, Project) else results
