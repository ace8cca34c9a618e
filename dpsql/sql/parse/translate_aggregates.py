"""Translate aggregates of other dialects that DuckDB writes in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.sql.parse.dialect import is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.translate_patterns import translate_element
from dpsql.sql.parse.typed_calls import build_call

_MOST_COPIED = 100
"""The most nodes of an expression that is copied."""


def _copy(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node.copy())


def _build_count(value: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Count the rows where a condition is true."""
    return exp.Count(this=exp.Case(ifs=[exp.If(this=condition, true=value)]), big_int=True)


def _check_size(self: DialectText, node: exp.Expr, *copied: exp.Expr) -> None:
    if sum(1 for part in copied for _ in part.walk()) > _MOST_COPIED:
        self.refuse_in_dialect(
            node,
            "too_long",
            "an aggregate of an expression this long cannot be translated: it takes copies of it",
        )


# RANK(x) WITHIN GROUP (ORDER BY y): the rank that x would have among the values of y.


def translate_hypothetical_rank(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate the hypothetical-set functions of PostgreSQL, as counts of the rows before a value; None for other calls.

    NULL comes last in ascending order and first in descending order, unless the text says otherwise.
    """
    call, order = node.this, node.expression
    build = _RANKS.get(type(call))
    if (
        build is None
        or self.dialect != "postgres"
        or len(order.expressions) != 1
        or len(call.expressions) != 1
    ):
        return None
    (item,), (value,) = order.expressions, call.expressions
    _check_size(self, node, item.this, value)
    descending = bool(item.args.get("desc"))
    comparison = exp.GT if descending else exp.LT
    before: exp.Expr = comparison(this=_copy(item.this), expression=_copy(value))
    same: exp.Expr = exp.EQ(this=_copy(item.this), expression=_copy(value))
    if item.args.get("nulls_first"):
        missing = exp.Is(this=_copy(item.this), expression=exp.Null())
        before = exp.Or(this=exp.Paren(this=before), expression=exp.Paren(this=missing))
    return exp.Paren(this=build(item.this, before, same))


def _build_rank(_: exp.Expr, before: exp.Expr, __: exp.Expr) -> exp.Expr:
    one = exp.Literal.number(1)
    return exp.Add(this=one, expression=_build_count(one.copy(), before))


def _build_dense_rank(argument: exp.Expr, before: exp.Expr, _: exp.Expr) -> exp.Expr:
    # NULL is one more value that comes before, if it comes first.
    values = exp.Case(ifs=[exp.If(this=before, true=_copy(argument))])
    counted = exp.Count(this=exp.Distinct(expressions=[values]), big_int=True)
    found: exp.Expr = exp.Add(this=exp.Literal.number(1), expression=counted)
    if isinstance(before, exp.Or):
        missing = _build_count(exp.Literal.number(1), exp.Is(this=_copy(argument), expression=exp.Null()))
        some = exp.Case(
            ifs=[
                exp.If(
                    this=exp.GT(this=missing, expression=exp.Literal.number(0)), true=exp.Literal.number(1)
                )
            ],
            default=exp.Literal.number(0),
        )
        found = exp.Add(this=found, expression=some)
    return found


def _build_percent_rank(_: exp.Expr, before: exp.Expr, __: exp.Expr) -> exp.Expr:
    rows = exp.Count(this=exp.Star(), big_int=True)
    share = exp.Div(this=_build_count(exp.Literal.number(1), before), expression=rows)
    there = exp.GT(this=rows.copy(), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=there, true=share)], default=exp.Literal.number(0))


def _build_cumulative(_: exp.Expr, before: exp.Expr, same: exp.Expr) -> exp.Expr:
    one = exp.Literal.number(1)
    up_to = exp.Or(this=exp.Paren(this=before), expression=exp.Paren(this=same))
    rank = exp.Paren(this=exp.Add(this=_build_count(one, up_to), expression=one.copy()))
    rows = exp.Paren(this=exp.Add(this=exp.Count(this=exp.Star(), big_int=True), expression=one.copy()))
    return exp.Div(this=rank, expression=rows)


_RANKS: Mapping[type[exp.Expr], Callable[[exp.Expr, exp.Expr, exp.Expr], exp.Expr]] = {
    exp.Rank: _build_rank,
    exp.DenseRank: _build_dense_rank,
    exp.PercentRank: _build_percent_rank,
    exp.CumeDist: _build_cumulative,
}


# Moments and sketches.


def translate_skewness(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SKEWNESS, which is that of the rows in Spark, and estimated from a sample in DuckDB and Snowflake."""
    if self.dialect != "spark":
        return node
    _check_size(self, node, node.this)
    rows = exp.Count(this=_copy(node.this), big_int=True)
    fewer = exp.Paren(this=exp.Sub(this=rows.copy(), expression=exp.Literal.number(2)))
    product = exp.Mul(
        this=rows.copy(),
        expression=exp.Paren(this=exp.Sub(this=rows.copy(), expression=exp.Literal.number("1.0"))),
    )
    scaled = exp.Div(
        this=exp.Mul(this=exp.Skewness(this=node.this.copy()), expression=fewer),
        expression=build_call("sqrt", product),
    )
    two = exp.EQ(this=rows, expression=exp.Literal.number(2))
    varies = exp.GT(this=exp.VariancePop(this=node.this.copy()), expression=exp.Literal.number(0))
    return exp.Case(
        ifs=[
            exp.If(this=exp.And(this=two, expression=varies), true=exp.Literal.number("0.0")),
            exp.If(this=exp.GT(this=rows.copy(), expression=exp.Literal.number(2)), true=scaled),
        ]
    )


def translate_kurtosis(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate KURTOSIS, which is that of the rows in Spark."""
    return build_call("kurtosis_pop", node.this) if self.dialect == "spark" else node


# Lists of quantiles.


def translate_bracket(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate APPROX_QUANTILES(x, n)[OFFSET(i)] of BigQuery, the i-th of n quantiles, and a part of a text that is split."""
    element = translate_element(self, node)
    if element is not None:
        return element
    called, places = node.this, node.expressions
    many = called.expression if isinstance(called, exp.ApproxQuantiles) else exp.Null()
    place = places[0] if len(places) == 1 else exp.Null()
    known = is_whole_number(many) and is_whole_number(place)
    index = int(place.name) - int(node.args.get("offset") or 0) if known else -1
    if not known or not 0 <= index <= int(many.name) or not int(many.name):
        self.source.refuse(
            node,
            "clause",
            "brackets after a value are not supported",
            "write APPROX_QUANTILES(x, 4)[OFFSET(2)]",
        )
    share = repr(index / int(many.name))
    return exp.PercentileDisc(this=called.this, expression=exp.Literal.number(share))


_MOST_QUANTILES = 99
"""A list of quantiles has at most 100 values."""


def translate_quantiles(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate APPROX_QUANTILES(x, n) of BigQuery, the list of n + 1 quantiles; within brackets it is read there."""
    if isinstance(node.parent, exp.Bracket):
        return node
    many = node.expression
    if not is_whole_number(many) or not 0 < int(many.name) <= _MOST_QUANTILES:
        self.source.refuse(
            node,
            "constant",
            f"APPROX_QUANTILES takes a constant number of quantiles, from 1 to {_MOST_QUANTILES}",
            "write APPROX_QUANTILES(x, 4)",
        )
    shares = [exp.Literal.number(repr(place / int(many.name))) for place in range(int(many.name) + 1)]
    return exp.PercentileDisc(this=node.this, expression=exp.Array(expressions=shares))


# The value of a row that is first by another: ANY_VALUE(x HAVING MAX y), ARRAY_AGG(x ORDER BY y)[OFFSET(0)].


def _is_null(node: exp.Expr) -> exp.Is:
    return exp.Is(this=_copy(node), expression=exp.Null())


def _build_flag(condition: exp.Expr) -> exp.Case:
    """Build 1 where a condition is true, 0 elsewhere."""
    return exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))], default=exp.Literal.number(0))


def _is_flagged(flag: exp.Expr, value: int) -> exp.Expr:
    return exp.EQ(this=flag, expression=exp.Literal.number(value))


def translate_any_value(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ANY_VALUE(x HAVING MAX y): a value of x, not NULL if there is one, of the rows where y is greatest."""
    having = node.this
    if not isinstance(having, exp.HavingMax):
        return node
    value, by = having.this, having.expression
    _check_size(self, node, value, by)
    best = exp.ArgMax if having.args.get("max") else exp.ArgMin
    # Of equal y the greatest, or least, flag is chosen, and so is a row with a value if there is one.
    flag, none = (
        (_build_flag(exp.Not(this=_is_null(value))), 0)
        if best is exp.ArgMax
        else (_build_flag(_is_null(value)), 1)
    )
    missing = _is_flagged(best(this=flag, expression=by.copy()), none)
    return exp.Case(
        ifs=[exp.If(this=missing, true=exp.Null())], default=best(this=value.copy(), expression=by.copy())
    )


def translate_first_of_list(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate the first value of an ordered list, ARRAY_AGG(x ORDER BY y DESC LIMIT 1)[OFFSET(0)], or a quantile of a list.

    The value is that of the row which is first by y; of several such rows, that of any of them.
    """
    called, places = node.this, node.expressions
    while isinstance(called, exp.Paren):
        called = called.this
    ignores = isinstance(called, exp.IgnoreNulls)
    called = called.this if isinstance(called, exp.IgnoreNulls) else called
    if not isinstance(called, exp.ArrayAgg):
        return translate_bracket(self, node)
    ordered = called.this.this if isinstance(called.this, exp.Limit) else called.this
    place, first = places[0] if len(places) == 1 else exp.Null(), str(node.args.get("offset") or 0)
    if not isinstance(ordered, exp.Order) or len(ordered.expressions) != 1 or place.sql() != first:
        _refuse_bracket(self, node)
    if isinstance(ordered.this, exp.Distinct):
        _refuse_bracket(self, node)
    (item,) = ordered.expressions
    value, by = ordered.this, item.this
    _check_size(self, node, value, by)
    ignores = ignores or bool(called.args.get("nulls_excluded"))
    return _build_first(value, by, item, ignores=ignores)


def _refuse_bracket(self: DialectText, node: exp.Expr) -> NoReturn:
    self.source.refuse(
        node,
        "clause",
        "brackets after a list take its first value in the order of one expression",
        "write ARRAY_AGG(x ORDER BY y DESC LIMIT 1)[OFFSET(0)]",
    )


def _build_first(value: exp.Expr, by: exp.Expr, item: exp.Expr, *, ignores: bool) -> exp.Expr:
    """Build the value of the first row by `by`, among those with a value if `ignores` is set."""
    best = exp.ArgMax if item.args.get("desc") else exp.ArgMin
    if ignores:  # the order of the rows without a value does not matter
        by = exp.Case(ifs=[exp.If(this=exp.Not(this=_is_null(value)), true=by.copy())])
    found: exp.Expr = best(this=value.copy(), expression=by.copy())
    if not ignores:
        missing = _is_flagged(best(this=_build_flag(_is_null(value)), expression=by.copy()), 1)
        found = exp.Case(ifs=[exp.If(this=missing, true=exp.Null())], default=found)
    unordered = exp.Case(ifs=[exp.If(this=_is_null(by), true=value.copy())])
    without = exp.Max(this=unordered)
    if item.args.get("nulls_first"):
        there: exp.Expr = exp.Not(this=_is_null(exp.Max(this=_with_nulls(value, by, ignores=ignores))))
        return exp.Case(ifs=[exp.If(this=there, true=without)], default=found)
    none = _is_null(exp.Max(this=by.copy()))
    return exp.Case(ifs=[exp.If(this=none, true=without)], default=found)


def _with_nulls(value: exp.Expr, by: exp.Expr, *, ignores: bool) -> exp.Expr:
    """Build 1 in the rows that come first for having no `by`."""
    condition: exp.Expr = _is_null(by)
    if ignores:
        condition = exp.And(this=condition, expression=exp.Not(this=_is_null(value)))
    return exp.Case(ifs=[exp.If(this=condition, true=exp.Literal.number(1))])


# Lists and texts of distinct values.


def _skip_nulls(node: exp.ArrayAgg) -> exp.Expr:
    """Build a list of values other than NULL."""
    inner = node.this
    while isinstance(inner, (exp.Limit, exp.Order)):
        inner = inner.this
    value = inner.expressions[0] if isinstance(inner, exp.Distinct) and inner.expressions else inner
    node.set("nulls_excluded", None)
    return exp.Filter(this=node.copy(), expression=exp.Where(this=exp.Not(this=_is_null(value))))


def _is_bracketed(node: exp.Expr) -> bool:
    around = node.parent
    while isinstance(around, (exp.Paren, exp.IgnoreNulls)):
        around = around.parent
    return isinstance(around, exp.Bracket)


def translate_list(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ARRAY_AGG, which has no NULL in Snowflake and Spark."""
    if _is_bracketed(node) or not isinstance(node, exp.ArrayAgg) or not node.args.get("nulls_excluded"):
        return node
    return _skip_nulls(node)


def translate_list_of_values(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ARRAY_AGG(x IGNORE NULLS) of BigQuery."""
    if not isinstance(node.this, exp.ArrayAgg) or _is_bracketed(node):
        return node
    return _skip_nulls(node.this)


def translate_set(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate COLLECT_SET of Spark and ARRAY_UNIQUE_AGG of Snowflake: the distinct values without NULL, in any order."""
    ordered = exp.Order(
        this=exp.Distinct(expressions=[node.this]),
        expressions=[exp.Ordered(this=node.this.copy(), desc=False, nulls_first=False)],
    )
    return _skip_nulls(exp.ArrayAgg(this=ordered))


def translate_sorted_list(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SORT_ARRAY of a set, which is in order already."""
    if not isinstance(node.this, exp.Filter) or node.expression is not None:
        self.refuse_unknown(node)
    return node.this


def translate_joined_text(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate STRING_AGG and LISTAGG, whose separator is empty in Snowflake and Spark unless it is written."""
    if node.args.get("separator") is None and self.dialect in ("snowflake", "spark"):
        node.set("separator", exp.Literal.string(""))
    return node
