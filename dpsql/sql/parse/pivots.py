"""Rewrite PIVOT and UNPIVOT as equivalent queries, before anything else reads the tree.

Claim: the rewritten query has the rows of the original, so that everything proven about the rewritten query holds for the
original.
Why: PIVOT of listed values is one aggregate for each value, or for each combination of values of several columns, of the rows
with these values. UNPIVOT is the union of one query for each column, of the rows where it is not NULL. Values that are not
listed would have to be read from the data, and would be columns: such a PIVOT is refused. Without GROUP BY it groups by every
other column; in a private table these are all columns of the database, the unit's id among them, so there it is refused.
Source: DuckDB's manual, "PIVOT statement" and "UNPIVOT statement".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import PIVOTS, QueryText

MOST_PARTS = 20_000
"""Names, constants and operators of the query that one PIVOT or UNPIVOT stands for."""
MOST_PIVOTS = 8
MOST_COLUMNS = 40
"""Columns of one UNPIVOT: each is a query of a chain of UNION ALL."""
NAME_OF = "name_of"
"""The key of the column that a text is the name of, so that it is spelled as declared."""
_AROUND = ("with_", "order", "limit", "offset")
"""Clauses around a statement of PIVOT or UNPIVOT."""
OTHERS = "pivot"
"""The mark of the * for the columns by which PIVOT groups."""
NAMES = "column_names"
"""The key of the names of the columns that a PIVOT of another dialect makes."""
_NAMED = (exp.PivotAlias, exp.Alias)
"""Nodes of a value with a name, in FROM and in a statement."""
_NUMBER = re.compile(r"(0|[1-9]\d*)(\.\d+)?")
"""Numbers that DuckDB uses as column names in the way they are written."""


def rewrite_pivots(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree of a statement, in which each PIVOT and UNPIVOT is a subquery. Raises QueryRejected."""
    if tree is None or tree.find(exp.Pivot) is None:
        return tree
    if sum(1 for _ in tree.find_all(exp.Pivot)) > MOST_PIVOTS:
        source.refuse(tree, "too_long", f"a query has at most {MOST_PIVOTS} PIVOT and UNPIVOT")
    for node in reversed(list(tree.find_all(exp.Table, exp.Subquery, exp.Values, exp.CTE))):
        for pivot in node.args.get("pivots") or ():
            if node.args.get("joins"):
                source.refuse(
                    pivot,
                    "join",
                    "PIVOT and UNPIVOT are not allowed together with a join in parentheses",
                    "write FROM (SELECT * FROM t PIVOT (…)) AS p JOIN …",
                )
            base = node.copy()
            base.set("pivots", None)
            alias = pivot.args.get("alias")
            node.replace(exp.Subquery(this=_rewrite_pivot(source, pivot, base), alias=alias and alias.copy()))
            break
        else:
            if type(node.this) is exp.Pivot:
                node.set("this", _rewrite_statement(source, node.this))
    return _rewrite_statement(source, tree) if type(tree) is exp.Pivot else tree


def prepare_foreign_pivots(source: QueryText, tree: exp.Expr, dialect: str) -> None:
    """Write the values of PIVOT in another dialect as DuckDB's constants, and name its columns as that dialect does, in place.

    Claim: the columns have the values that the dialect gives them.
    Why: all of them aggregate the rows with each listed value, by all other columns. T-SQL writes values as names, which are converted
    to the type of their column. Spark gives NULL for a count of no rows, where the others give 0, so it is refused there.
    Source: the manuals of GoogleSQL, Snowflake, Spark and Transact-SQL, "PIVOT".
    """
    for pivot in list(tree.find_all(exp.Pivot)):
        fields, columns = pivot.args.get("fields") or [], pivot.args.get("columns") or []
        if pivot.args.get("unpivot") or len(fields) != 1 or not columns or type(fields[0]) is not exp.In:
            source.refuse(
                pivot, "clause", "only PIVOT of listed values of one column is read from this dialect", PIVOTS
            )
        if dialect == "spark" and any(
            part.find(exp.Count, exp.CountIf, exp.ApproxDistinct) for part in pivot.expressions
        ):
            source.refuse(pivot, "clause", "PIVOT of Spark gives NULL for a count of no rows", PIVOTS)
        for value in list(fields[0].expressions):
            constant = value.this if type(value) in _NAMED else value
            if dialect == "tsql" and type(constant) is exp.Column and not constant.table:
                constant.replace(exp.Literal.string(constant.name))
        pivot.meta[NAMES] = [column.name for column in columns]


def _rewrite_statement(source: QueryText, pivot: exp.Pivot) -> exp.Query:
    """Return the query of a statement, with the clauses around it."""
    query = _rewrite_pivot(source, pivot, pivot.this)
    for name in _AROUND:
        if pivot.args.get(name) is not None:
            query.set(name, pivot.args[name])
    return query


def _rewrite_pivot(source: QueryText, pivot: exp.Pivot, base: exp.Expr) -> exp.Query:
    several = pivot.parent is not None and len(pivot.parent.args.get("pivots") or ()) > 1
    if several:
        source.refuse(
            pivot,
            "clause",
            "a table may be followed by only one PIVOT or UNPIVOT",
            "put the first into a subquery",
        )
    if pivot.args.get("unpivot"):
        return _build_unpivot_query(source, pivot, base)
    return _build_pivot_query(source, pivot, base)


# PIVOT.


def _build_pivot_query(source: QueryText, pivot: exp.Pivot, base: exp.Expr) -> exp.Select:
    if pivot.args.get("this") is None:
        aggregates, keys, group, *_ = source.take_arguments(
            pivot,
            "expressions",
            "fields",
            "group",
            "alias",
            "columns",
            "pivot_column_naming",
            "identify_pivot_strings",
            "prefixed_pivot_columns",
        )
    else:
        keys, aggregates, group, *_ = source.take_arguments(
            pivot, "expressions", "using", "group", "this", *_AROUND
        )
    aggregates = aggregates or [exp.Count(this=exp.Star(), big_int=True)]
    found = [_parse_pivot_key(source, key) for key in keys or [pivot]]
    if len(aggregates) > 1 and any(type(item) is not exp.Alias for item in aggregates):
        source.refuse(
            aggregates[0], "clause", "several aggregates in PIVOT need names", "write SUM(x) AS total"
        )
    _check_size(source, pivot, prod(len(values) for _, values in found), aggregates)
    rows = [
        list(zip([key for key, _ in found], row, strict=True))
        for row in product(*(values for _, values in found))
    ]
    columns = [
        _build_filtered_aggregate(source, row, item, named=len(aggregates) > 1)
        for row in rows
        for item in aggregates
    ]
    names = pivot.meta.get(NAMES, [])
    for column, name in zip(columns if names else [], names, strict=True):
        column.set("alias", exp.to_identifier(name, quoted=True))
    if group is None:
        others = _build_other_columns(pivot, [*(key for key, _ in found), *aggregates])
        return exp.Select(expressions=[others, *columns], group=exp.Group(all=True)).from_(base)
    (by,) = source.take_arguments(group, "expressions")
    for item in by:
        if type(item) is not exp.Column:
            source.refuse(
                item,
                "clause",
                "GROUP BY of PIVOT may only list columns",
                "compute the expression in a subquery",
            )
    select = exp.Select(expressions=[*(item.copy() for item in by), *columns]).from_(base)
    return select.group_by(*(item.copy() for item in by), copy=False)


def _build_other_columns(pivot: exp.Pivot, read: Sequence[exp.Expr]) -> exp.Star:
    """Build all columns that PIVOT does not read."""
    star = exp.Star(
        except_=_deduplicate_columns([column for part in read for column in part.find_all(exp.Column)])
    )
    starts = [part.meta["start"] for part in pivot.walk() if "start" in part.meta]
    star.meta.update({OTHERS: True, **({"start": min(starts)} if starts else {})})
    return star


def _parse_pivot_key(source: QueryText, found: exp.Expr) -> tuple[exp.Column, list[exp.Expr]]:
    """Return a column whose values are columns, and these values."""
    if type(found) is not exp.In or not found.expressions:
        key = found.name if type(found) is exp.Column else "k"
        source.refuse(
            found,
            "clause",
            "PIVOT needs a list of values: dpsql does not look them up in private rows",
            f"list them: ON {key} IN ('a', 'b')",
        )
    key, values = source.take_arguments(found, "this", "expressions")
    if type(key) is not exp.Column:
        source.refuse(key, "clause", "PIVOT ON takes a column", "compute the expression in a subquery")
    for value in values:
        if not _is_plain_constant(value.this if type(value) in _NAMED else value):
            source.refuse(
                value, "clause", "the values of PIVOT must be constants", "write ON k IN ('a', 'b')"
            )
    names = [_get_column_name(value) for value in values]
    for value, name in zip(values, names, strict=True):
        if names.count(name) > 1:
            source.refuse(
                value,
                "ambiguous",
                f"PIVOT would make two columns {name}",
                "rename one: ON k IN ('a', 'b' AS c)",
            )
    return key, values


def _is_plain_constant(constant: exp.Expr) -> bool:
    """Return whether a node is a constant whose text is the column name that DuckDB makes from it."""
    if type(constant) is exp.Neg:
        return (
            type(constant.this) is exp.Literal
            and not constant.this.is_string
            and _is_plain_constant(constant.this)
        )
    if type(constant) is exp.Literal:
        return constant.is_string or _NUMBER.fullmatch(constant.this) is not None
    return type(constant) in (exp.Null, exp.Boolean)


def _get_column_name(value: exp.Expr) -> str:
    """Return the name of the column of a value."""
    return str(value.alias) if type(value) in _NAMED else _format_constant(value)


def _build_filtered_aggregate(
    source: QueryText, row: Sequence[tuple[exp.Column, exp.Expr]], item: exp.Expr, *, named: bool
) -> exp.Alias:
    """Build the aggregate of the rows with a value of each key."""
    conditions = [
        exp.NullSafeEQ(this=key.copy(), expression=(value.this if type(value) in _NAMED else value).copy())
        for key, value in row
    ]
    name = "_".join(_get_column_name(value) for _, value in row)
    if named or type(item) is exp.Alias:
        name = f"{name}_{item.alias}"
    aggregate = item.this if type(item) is exp.Alias else item
    if not isinstance(aggregate, exp.AggFunc):
        source.refuse(
            item,
            "clause",
            "USING of PIVOT takes a single aggregate",
            "write USING SUM(x), where x may be a CASE",
        )
    return exp.Alias(
        this=exp.Filter(this=aggregate.copy(), expression=exp.Where(this=exp.and_(*conditions, copy=False))),
        alias=exp.to_identifier(name, quoted=True),
    )


def _format_constant(constant: exp.Expr) -> str:
    """Return the name of a column of a value."""
    if type(constant) is exp.Neg:
        return f"-{_format_constant(constant.this)}"
    if type(constant) is exp.Boolean:
        return "true" if constant.this else "false"
    return "NULL" if type(constant) is exp.Null else str(constant.this)


# UNPIVOT.


def _build_unpivot_query(source: QueryText, pivot: exp.Pivot, base: exp.Expr) -> exp.Query:
    if pivot.args.get("this") is None:
        (held, fields, nulls, *_) = source.take_arguments(
            pivot,
            "expressions",
            "fields",
            "include_nulls",
            "alias",
            "columns",
            "pivot_column_naming",
            "unpivot",
        )
        name, columns = source.take_arguments(fields[0] if fields else None, "this", "expressions")
        into = (name, held[0]) if fields and len(fields) == len(held or []) == 1 else None
    else:
        columns, places, *_ = source.take_arguments(pivot, "expressions", "into", "this", "unpivot", *_AROUND)
        nulls, into = False, (exp.to_identifier("name"), exp.to_identifier("value"))
        if places is not None:
            name, held = source.take_arguments(places, "this", "expressions")
            into = (name, held[0]) if held and len(held) == 1 else None
    if into is None:
        source.refuse(pivot, "clause", "UNPIVOT may only make one column of names and one of values")
    into = _require_identifier(source, pivot, into[0]), _require_identifier(source, pivot, into[1])
    if not columns:
        source.refuse(pivot, "clause", "UNPIVOT takes columns", "write UNPIVOT t ON a, b INTO NAME k VALUE v")
    if len(columns) > MOST_COLUMNS:
        source.refuse(pivot, "too_long", f"UNPIVOT takes at most {MOST_COLUMNS} columns")
    named = [_parse_unpivot_column(source, item) for item in columns]
    _check_size(source, pivot, len(named), [base])
    rest = exp.Star(except_=_deduplicate_columns([column for column, _ in named]))
    queries: list[exp.Query] = []
    for column, label in named:
        items = [
            rest.copy(),
            exp.Alias(this=_build_name_label(column, label), alias=into[0].copy()),
            exp.Alias(this=exp.Column(this=column.this.copy()), alias=into[1].copy()),
        ]
        query = exp.Select(expressions=items).from_(base)
        if not nulls:
            query.set(
                "where", exp.Where(this=exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())))
            )
        queries.append(query)
    return reduce(lambda left, right: exp.Union(this=left, expression=right, distinct=False), queries)


def _build_name_label(column: exp.Column, label: str | None) -> exp.Literal:
    """Build the value of the column of names: the given name, or the column's name as its table spells it."""
    text = exp.Literal.string(column.name if label is None else label)
    if label is None:
        text.meta[NAME_OF] = column.copy()
    return text


def _require_identifier(source: QueryText, pivot: exp.Pivot, name: object) -> exp.Identifier:
    """Return the name of a column that UNPIVOT makes."""
    found = name.this if type(name) is exp.Column else name
    if type(found) is not exp.Identifier:
        source.refuse(
            pivot, "clause", "UNPIVOT must name the columns that it makes", "write INTO NAME k VALUE v"
        )
    return found


def _parse_unpivot_column(source: QueryText, item: exp.Expr) -> tuple[exp.Column, str | None]:
    """Parse a column of UNPIVOT, and its given value in the column of names."""
    if type(item) is exp.Column:
        return item, None
    if type(item) in _NAMED and type(item.this) is exp.Column:
        return item.this, item.alias
    source.refuse(item, "clause", "UNPIVOT takes columns", "compute the expression in a subquery")


def _check_size(source: QueryText, pivot: exp.Pivot, times: int, parts: Sequence[exp.Expr]) -> None:
    """Refuse an expansion that would turn a short text into a very long query."""
    if times * sum(1 for part in parts for _ in part.walk()) > MOST_PARTS:
        source.refuse(
            pivot, "too_long", "PIVOT or UNPIVOT would make the query too long", "use fewer columns"
        )


def _deduplicate_columns(columns: Sequence[exp.Column]) -> list[exp.Expr]:
    """Return the names of columns, each once."""
    return [
        *{normalize_name(column.name): exp.Column(this=column.this.copy()) for column in columns}.values()
    ]
