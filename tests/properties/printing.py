"""Plans as the SQL that a user would write for them: `lower` reads the plan back from it.

A function is written as the signature of its registry entry shows, so that a new entry needs no word
here: its lower-case words are the arguments' places, but for the entry's own name.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Function,
    Literal,
    ReleasedColumn,
    Scalar,
    iterate_columns,
)
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Order,
    OuterQuery,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    SemiJoin,
    SetOperation,
    Source,
    Values,
)
from dpsql.plan.tables import Scan
from dpsql.plan.types import get_value_type
from dpsql.sql.compile.compiler import quote_identifier

CHAINS = frozenset({"and", "or"})
"""Functions of two or more arguments between which their name stands."""
_WORD = re.compile(r"'(?P<quoted>\w+)'|\b(?P<word>[a-z]\w*)\b")
_MORE = ", …"


@cache
def template(function: Function) -> tuple[str, int]:
    """The signature with {} in its arguments' places, and their number."""
    places = 0

    def place(found: re.Match[str]) -> str:
        nonlocal places
        # A quoted word is an argument where the entry takes a constant, else part of the name.
        if found["word"] == function.name or (found["quoted"] and places not in function.literals):
            return found[0]
        places += 1
        return "{}"

    text = _WORD.sub(place, function.signature)
    return text, places


def variadic(function: Function) -> bool:
    """Whether a function takes more arguments than its signature spells out."""
    return function.name in CHAINS or "…" in function.signature


Names = Callable[[Column | ReleasedColumn], str | None]
"""The texts of the columns that are written as what they stand for."""


def scalar(expr: Expr, names: Names = lambda _: None) -> str:
    """An expression over rows, or over what `names` knows."""
    match expr:
        case Column():
            return names(expr) or f"{quote_identifier(expr.source)}.{quote_identifier(expr.name)}"
        case Literal():
            return _constant(expr)
        case ReleasedColumn():
            text = names(expr)
            if text is None:
                raise TypeError("a released column is written as what the release computes")
            return text
        case Scalar():
            return f"({' '.join(_clauses(expr.outer))})"
        case Call():
            return _call(expr.function, [scalar(argument, names) for argument in expr.arguments])


def _call(function: Function, arguments: list[str]) -> str:
    if function.name in CHAINS:
        return f"({f' {function.name.upper()} '.join(arguments)})"
    if function.name == "case":
        branches, otherwise = split_case_branches(tuple(arguments))
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
        return f"CASE {whens} ELSE {otherwise} END"
    text, places = template(function)
    more = "".join(f", {argument}" for argument in arguments[places:])
    written = text.replace(_MORE, more).format(*arguments)
    return written if re.fullmatch(r"\w+\(.*\)", function.signature) else f"({written})"


def _constant(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case bool() as truth:
            return str(truth).upper()
        case int() | float() as number:
            # A constant with an exponent is a DOUBLE, one with a point alone a DECIMAL.
            double = isinstance(number, float) and not literal.exact and "e" not in str(number)
            mark = "e0" if double else ""
            return f"{number}{mark}" if str(number)[0] != "-" else f"({number}{mark})"
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case dt.datetime() as moment:
            return f"CAST('{moment.isoformat(sep=' ')}' AS TIMESTAMP)"
        case dt.date() as day:
            return f"CAST('{day.isoformat()}' AS DATE)"
        case dt.time() as time:
            return f"CAST('{time.isoformat()}' AS TIME)"
        case uuid.UUID() as known:
            return f"CAST('{known}' AS UUID)"
        case bytes() as content:
            return f"CAST('{''.join(f'{chr(92)}x{byte:02x}' for byte in content)}' AS BLOB)"


def _aggregate(signature: str, argument: Expr | None) -> str:
    if argument is None:
        return signature
    return re.sub(r"\b(unit|[a-z])\b", lambda _: scalar(argument), signature)


def unit_column(relation: Relation) -> Column | None:
    """A column that holds the unit's id in each row, as COUNT(DISTINCT unit) names it."""
    for source in _in_each_row(relation):
        known = (source.unit.column,) if isinstance(source, Scan) else source.columns
        for column in known:
            if column is not None and column.facts.is_unit:
                return column
    return None


def _in_each_row(relation: Relation) -> Iterator[Source]:
    """The sources that no LEFT JOIN leaves out."""
    match relation:
        case Join():
            yield from _in_each_row(relation.left)
            if relation.kind is not JoinKind.LEFT:
                yield relation.right
        case Filter() | SemiJoin():
            yield from _in_each_row(relation.input)
        case _:
            yield relation


def _source(source: Source) -> str:
    match source:
        case Scan():
            return f"{quote_identifier(source.table)} AS {quote_identifier(source.alias)}"
        case Values():
            rows = (
                ", ".join(scalar(Literal(value, get_value_type(value))) for value in row)
                for row in source.rows
            )
            return f"(VALUES {', '.join(f'({row})' for row in rows)}) AS {quote_identifier(source.alias)}"
        case _:
            return f"({_query(source)}) AS {quote_identifier(source.alias)}"


def _query(source: Source) -> str:
    match source:
        case SetOperation():
            return f" {source.kind.value} ".join(f"({_query(side)})" for side in (source.left, source.right))
        case Project():
            return _select(source)
        case PublicSubquery():
            return user_sql(source.outer)
    raise TypeError(f"{type(source).__name__} is no query of its own")


def _select(project: Project) -> str:
    having, grouped = _grouped(project.input)
    relation = project.input if grouped is None else grouped.input
    names = (lambda _: None) if grouped is None else _within(grouped)
    items = (
        f"{scalar(item, names)} AS {quote_identifier(column.name)}"
        for item, column in zip(project.items, project.columns, strict=True)
    )
    words = [f"SELECT {'DISTINCT ' * project.distinct}{', '.join(items)}", *_rows(relation)]
    if grouped is not None and grouped.keys:
        words.append(f"GROUP BY {', '.join(map(scalar, grouped.keys))}")
    if having is not None:
        words.append(f"HAVING {scalar(having, names)}")
    return " ".join(words)


def _grouped(relation: Relation) -> tuple[Expr | None, PerUnitGroupBy | None]:
    """The groups that a query selects from, if it does, and the condition on them."""
    match relation:
        case Filter(input=PerUnitGroupBy() as groups, predicate=having):
            return having, groups
        case PerUnitGroupBy():
            return None, relation
    return None, None


def _within(groups: PerUnitGroupBy) -> Names:
    texts = [scalar(key) for key in groups.keys]
    texts += [
        WITHIN[item.function].format_call(*map(scalar, item.arguments), rank=item.rank)
        for item in groups.aggregates
    ]
    return dict(zip(groups.columns, texts, strict=True)).get


def _rows(relation: Relation, also: Iterable[str] = ()) -> Iterator[str]:
    """FROM and WHERE."""
    source, conditions = _from(relation)
    yield f"FROM {source}"
    where = [*conditions, *also]
    if where:
        yield f"WHERE {' AND '.join(where)}"


def _from(relation: Relation) -> tuple[str, list[str]]:
    """The FROM text of a relation and the conditions of WHERE."""
    match relation:
        case Filter():
            text, conditions = _from(relation.input)
            return text, [*conditions, scalar(relation.predicate)]
        case SemiJoin():
            text, conditions = _from(relation.input)
            return text, [*conditions, f"{'NOT ' * relation.anti}EXISTS ({_matched(relation)})"]
        case Join():
            text, conditions = _from(relation.left)
            on = [f"{scalar(ours)} = {scalar(theirs)}" for ours, theirs in relation.on]
            on += [] if relation.condition is None else [scalar(relation.condition)]
            joined = _source(relation.right)
            if not on:
                return f"{text} CROSS JOIN {joined}", conditions
            return f"{text} {relation.kind.value} JOIN {joined} ON {' AND '.join(on)}", conditions
        case _:
            return _source(relation), []


def _matched(relation: SemiJoin) -> str:
    """The subquery that rows are matched with; its columns are written as what they stand for."""
    right = relation.right
    if not isinstance(right, Project):
        raise TypeError("rows are matched with those of a query")
    items = dict(zip(right.columns, map(scalar, right.items), strict=True))
    stated = any(iterate_columns(relation.on))
    return " ".join(["SELECT 1", *_rows(right.input, [scalar(relation.on, items.get)] if stated else [])])


def _clauses(outer: OuterQuery) -> Iterator[str]:
    release = outer.release
    unit = unit_column(release.input)
    texts = {key.name: scalar(key.expr) for key in release.keys}
    for item in release.aggregations:
        entry, of = AGGREGATES[item.function], item.argument or unit
        signature = (
            entry.signature if item.rank is None else entry.format_call("x", item.rank, item.interval_end)
        )
        texts[item.name] = _aggregate(signature, of)

    def names(column: Column | ReleasedColumn) -> str | None:
        return texts[column.name] if isinstance(column, ReleasedColumn) else None

    outputs = (f"{scalar(output.expr, names)} AS {quote_identifier(output.name)}" for output in outer.outputs)
    yield f"SELECT {', '.join(outputs)}"
    yield from _rows(release.input)
    if release.keys:
        yield f"GROUP BY {', '.join(scalar(key.expr) for key in release.keys)}"
    if outer.having is not None:
        yield f"HAVING {scalar(outer.having, names)}"
    if outer.order:
        yield f"ORDER BY {', '.join(_ordered(item, names) for item in outer.order)}"
    if outer.limit is not None:
        yield f"LIMIT {outer.limit}"
    if outer.offset:
        yield f"OFFSET {outer.offset}"


def _ordered(item: Order, names: Names) -> str:
    direction = "DESC" if item.descending else "ASC"
    return f"{scalar(item.expr, names)} {direction} NULLS {'FIRST' if item.nulls_first else 'LAST'}"


def user_sql(outer: OuterQuery) -> str:
    """The query that means a plan, but for its `max_groups`, which is no part of the text."""
    return " ".join(_clauses(outer))
