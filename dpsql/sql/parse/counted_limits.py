"""Rewrite a LIMIT that depends on the number of rows or on ties as QUALIFY: LIMIT 40%, TOP 40 PERCENT, and WITH TIES.

Claim: the rewritten query keeps the rows of the original.
Why: in the order of ORDER BY, the first n rows are those numbered up to n, and the rows with the values of the last of them those
ranked up to n. A percentage of the rows is rounded down in DuckDB and up in T-SQL. LIMIT is applied after all windows, as QUALIFY is
if there is none yet.
Source: DuckDB's manual, "LIMIT and OFFSET"; Transact-SQL reference, "TOP"; PostgreSQL 17, "SELECT", LIMIT clause.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.policy.request.dialects import DUCKDB
from dpsql.sql.parse.dialect import find_number
from dpsql.sql.parse.rejection import QueryText

_WHOLE = 100
_MOST_COPIED = 1_000
"""The most nodes of ORDER BY, which a window repeats."""
_MOST_KEYS = 20
_ARGUMENTS: Mapping[type[exp.Expr], tuple[str, ...]] = MappingProxyType(
    {exp.Limit: ("expression", "limit_options"), exp.Fetch: ("count", "limit_options", "direction")}
)
"""The arguments of a limit that are read, its number first."""


def rewrite_counted_limits(source: QueryText, tree: exp.Expr, *, dialect: str) -> None:
    """Replace such limits in the tree of a statement, in place. Raises QueryRejected."""
    for limit in list(tree.find_all(exp.Limit, exp.Fetch)):
        options = limit.args.get("limit_options")
        percent = bool(options is not None and options.args.get("percent"))
        ties = bool(options is not None and options.args.get("with_ties"))
        if not percent and not (ties and dialect != DUCKDB):  # DuckDB itself has no WITH TIES
            continue
        select = limit.parent
        blocked = ("distinct", "qualify", "offset")
        if type(select) is not exp.Select or any(select.args.get(name) for name in blocked):
            source.refuse(
                limit,
                "qualify",
                "a percentage of rows and WITH TIES are only supported without UNION, DISTINCT, QUALIFY and OFFSET",
                "put the rest into a subquery: SELECT k, n FROM (SELECT …) AS q ORDER BY n LIMIT 40%",
            )
        number, *_ = source.take_arguments(limit, *_ARGUMENTS[type(limit)])
        source.take_arguments(options, "percent", "rows", "with_ties")
        condition = _build_condition(source, select, number, percent=percent, ties=ties, up=dialect == "tsql")
        select.set("limit", None)
        select.set("qualify", exp.Qualify(this=condition))


def _build_condition(
    source: QueryText, select: exp.Select, number: exp.Expr | None, *, percent: bool, ties: bool, up: bool
) -> exp.Expr:
    """Build the condition that keeps the first rows."""
    order = _copy_order(source, select)
    place: exp.Expr = exp.Window(this=exp.Rank() if ties else exp.RowNumber(), order=order, over="OVER")
    if not percent:
        return exp.LTE(this=place, expression=exp.Literal.number(1) if number is None else number.copy())
    for part in [] if number is None else number.walk():
        source.take_arguments(part, "this", "is_string")
    share = find_number(number)
    if number is None or share is None or not 0 <= share <= _WHOLE:
        source.refuse(
            number, "constant", "a percentage of rows must be a number from 0 to 100", "write LIMIT 40%"
        )
    rows = exp.Window(this=exp.Count(this=exp.Star(), big_int=True), over="OVER")
    if up:
        before = exp.Paren(this=exp.Sub(this=place, expression=exp.Literal.number(1)))
        part = exp.Mul(this=rows, expression=number.copy())  # in whole numbers where the percentage is one
        return exp.LT(this=exp.Mul(this=before, expression=exp.Literal.number(_WHOLE)), expression=part)
    double = exp.Cast(
        this=exp.Literal.number(repr(share / _WHOLE)), to=exp.DataType(this=exp.DType.DOUBLE, nested=False)
    )
    part = exp.Mul(this=rows, expression=double)  # rounded as DuckDB does: 29% of 100 rows are 28
    return exp.LTE(this=place, expression=exp.Anonymous(this="floor", expressions=[part]))


def _copy_order(source: QueryText, select: exp.Select) -> exp.Expr | None:
    """Return ORDER BY for a window, with items of SELECT in place of their numbers and names."""
    order = select.args.get("order")
    if order is None:
        return None
    copied: exp.Expr = order.copy()
    _name_expressions(source, select, order, copied)
    for item in copied.expressions:
        place = item.this
        if isinstance(place, exp.Literal) and not place.is_string and place.this.isdigit():
            if not 1 <= int(place.this) <= len(select.expressions):
                source.refuse(order, "ordinal", "there is no item of this number in SELECT")
            chosen = select.expressions[int(place.this) - 1]
            item.set("this", chosen.unalias().copy())
        if isinstance(place, exp.Var):
            source.refuse(
                order, "qualify", "ORDER BY ALL is not supported with a percentage", "name the columns"
            )
    return copied


def _name_expressions(source: QueryText, select: exp.Select, order: exp.Expr, copied: exp.Expr) -> None:
    """Replace the names of items of SELECT in a copy of ORDER BY by the items, in place. Raises QueryRejected within expressions."""
    if len(copied.expressions) > _MOST_KEYS:
        source.refuse(order, "too_long", f"ORDER BY takes up to {_MOST_KEYS} values here")
    named = {normalize_name(item.alias): item for item in select.expressions if type(item) is exp.Alias}
    for item in copied.expressions:
        name = item.this
        if type(name) is exp.Column and not name.table and normalize_name(name.name) in named:
            item.set("this", named[normalize_name(name.name)].this.copy())
        elif any(not part.table and normalize_name(part.name) in named for part in item.find_all(exp.Column)):
            source.refuse(
                order,
                "qualify",
                "ORDER BY cannot compute with an item of SELECT here, whose name could be a column, too",
                "put the query into a subquery: SELECT k, n FROM (SELECT …) AS q ORDER BY n + 1 LIMIT 40%",
            )
    if sum(1 for _ in copied.walk()) > _MOST_COPIED:
        source.refuse(order, "too_long", "this ORDER BY is too long for a percentage or WITH TIES")
