"""Translate the nodes of another dialect's tree to DuckDB's SQL, one by one.

Claim: a query that is read has the same meaning in DuckDB as in its own dialect, with three exceptions: operations that fail
there do not fail here, texts are compared without a collation, and numbers within texts are written as in DuckDB.
Why: each node and each of its arguments is listed, and every difference between dialects is either written out or refused;
nothing is left to the generator of the parser's library.
Source: the reference manuals of PostgreSQL 17, Spark 4 SQL, Snowflake, GoogleSQL and Transact-SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse import translate_aggregates as aggregates
from dpsql.sql.parse import translate_buckets as buckets
from dpsql.sql.parse import translate_calls as calls
from dpsql.sql.parse import translate_dates as dates
from dpsql.sql.parse import translate_patterns as patterns
from dpsql.sql.parse import translate_texts as texts
from dpsql.sql.parse import translate_types as types
from dpsql.sql.parse.dialect import CALLS, READ, find_number, is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.typed_calls import QUOTIENT, build_call

_OF_NULLS = frozenset({"snowflake", "bigquery"})
"""The dialects whose GREATEST and LEAST are NULL if any argument is NULL."""
_RECURSIVE_WITHOUT_WORD = frozenset({"tsql", "snowflake"})
_MOST_COPIED = 100
"""The most nodes of an expression that is copied: nested copies would double the text each time."""


@dataclass(frozen=True, slots=True)
class Translator(DialectText):
    """Translate the trees of one dialect's text."""

    def translate_in_place(self, tree: exp.Expr) -> None:
        """Translate the tree into DuckDB's, in place. Raises QueryRejected at a node that is not supported."""
        for select in tree.find_all(
            exp.Select
        ):  # how the dialect's optimizer would go about it changes no answer
            select.set("hint", None)
            select.set("options", None)
        calls.join_lateral_views(tree)
        for node in reversed(list(tree.bfs())):
            self._check_node(node)
            rule = _RULES.get(type(node))
            made = rule(self, node) if rule is not None else self._translate_call(node)
            if made is not node:
                node.replace(made)

    def _check_node(self, node: exp.Expr) -> None:
        known = READ.get(type(node))
        if known is None:
            self.refuse_unknown(node)
        self.source.take_arguments(node, *known)

    def _translate_call(self, node: exp.Expr) -> exp.Expr:
        name = CALLS.get(type(node))
        if name is None:
            return node
        found: list[exp.Expr] = []
        for key in READ[type(node)]:
            value = node.args.get(key)
            found += value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else []
        return build_call(name, *found)


def _translate_extreme(self: DialectText, node: exp.Expr) -> exp.Expr:
    parts = [node.this, *node.expressions]
    found = build_call(node.key, *parts)
    if self.dialect not in _OF_NULLS:
        return found
    if sum(1 for part in parts for _ in part.walk()) > _MOST_COPIED:
        self.refuse_in_dialect(
            node,
            "too_long",
            (f"{node.key.upper()} of an expression this long cannot be translated: NULLs take a copy of it"),
        )
    known = exp.and_(
        *(exp.Not(this=exp.Is(this=exp.Paren(this=part.copy()), expression=exp.Null())) for part in parts)
    )
    return exp.Case(ifs=[exp.If(this=known, true=found)])


def _translate_is(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate IS NOT, which one parser reads as a negated IS and the others as a NOT."""
    if not node.args.get("negate"):
        return node
    return exp.Paren(this=exp.Not(this=exp.Is(this=node.this, expression=node.expression)))


def _translate_between(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate BETWEEN SYMMETRIC, which takes its ends in either order."""
    if not node.args.get("symmetric"):
        return node
    if sum(1 for _ in node.walk()) > _MOST_COPIED:
        self.refuse_in_dialect(
            node,
            "too_long",
            "BETWEEN SYMMETRIC of an expression this long cannot be translated: it takes a copy of it",
        )
    value, low, high = (node.args[name] for name in ("this", "low", "high"))
    ways = [
        exp.Between(
            this=_copy_in_parentheses(value), low=_copy_in_parentheses(a), high=_copy_in_parentheses(b)
        )
        for a, b in ((low, high), (high, low))
    ]
    return exp.Paren(this=exp.Or(this=ways[0], expression=ways[1]))


def _translate_group_by(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate Spark's GROUP BY x WITH ROLLUP to GROUP BY ROLLUP (x)."""
    for name in ("rollup", "cube"):
        for sets in node.args.get(name) or ():
            if not sets.expressions:
                sets.set("expressions", node.expressions)
                node.set("expressions", [])
    return node


def _translate_width_bucket(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Return the number of the bucket of equal width that a value falls into, 0 below all and one more above all."""
    if node.args.get("threshold") is not None:
        return buckets.translate_threshold_bucket(self, node)
    value, low, high, many = (
        node.args.get(name) for name in ("this", "min_value", "max_value", "num_buckets")
    )
    if value is None or low is None or high is None or many is None:
        self.refuse_in_dialect(
            node, "constant", "WIDTH_BUCKET takes a value, two ends and a number of buckets"
        )
    ends = [find_number(end) for end in (low, high)]
    if None in ends or not is_whole_number(many) or not (ends[0] or 0) < (ends[1] or 0) or not int(many.name):
        self.refuse_in_dialect(
            node,
            "constant",
            "WIDTH_BUCKET needs a constant lower end, a greater constant upper end and a constant "
            "number of buckets",
        )
    if len(list(value.walk())) > _MOST_COPIED:
        self.refuse_in_dialect(
            node,
            "too_long",
            ("WIDTH_BUCKET of an expression this long cannot be translated: it takes three copies of it"),
        )
    distance = exp.Paren(this=exp.Sub(this=_copy_in_parentheses(value), expression=_copy_in_parentheses(low)))
    width = exp.Paren(this=exp.Sub(this=_copy_in_parentheses(high), expression=_copy_in_parentheses(low)))
    share = exp.Div(this=exp.Mul(this=distance, expression=many.copy()), expression=width)
    one = exp.Literal.number(1)
    inside = exp.Add(this=build_call("floor", share), expression=one)
    branches = [
        exp.If(
            this=exp.LT(this=_copy_in_parentheses(value), expression=_copy_in_parentheses(low)),
            true=exp.Literal.number(0),
        ),
        exp.If(
            this=exp.GTE(this=_copy_in_parentheses(value), expression=_copy_in_parentheses(high)),
            true=exp.Literal.number(int(many.name) + 1),
        ),
        exp.If(
            this=exp.Not(this=exp.Is(this=_copy_in_parentheses(value), expression=exp.Null())),
            true=exp.Cast(this=inside, to=exp.DataType(this=exp.DType.BIGINT, nested=False)),
        ),
    ]
    return exp.Case(ifs=branches)


def _copy_in_parentheses(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node.copy())


def _translate_with(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate WITH: in T-SQL and Snowflake a query that reads itself is recursive without that word."""
    if self.dialect in _RECURSIVE_WITHOUT_WORD and any(
        isinstance(common.this, exp.Union) and _names_table(common.this.expression, common.alias)
        for common in node.expressions
    ):
        node.set("recursive", True)
    return node


def _names_table(query: exp.Expr, name: str) -> bool:
    return any(
        normalize_name(table.name) == normalize_name(name)
        for table in query.find_all(exp.Table)
        if not table.args.get("db")
    )


def _translate_join(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate a join: OUTER APPLY keeps each row before it, CROSS APPLY those with a row; NATURAL is the only method."""
    lateral = node.this
    if isinstance(lateral, exp.Lateral) and lateral.args.get("cross_apply") is not None:
        node.set("side", None if lateral.args["cross_apply"] else "LEFT")
        node.set("kind", "CROSS" if lateral.args["cross_apply"] else None)
        node.set("on", None if lateral.args["cross_apply"] else exp.Boolean(this=True))
        lateral.set("cross_apply", None)
    if node.args.get("method") not in (None, "", "NATURAL"):
        self.refuse_unknown(node)
    return node


def _translate_identifier(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Refuse the name of a temporary table, as T-SQL writes it."""
    if node.args.get("temporary") or node.args.get("global_"):
        self.source.refuse(
            node,
            "clause",
            "there are no temporary tables: a query keeps nothing on the database",
            "write WITH t AS (SELECT …) SELECT … FROM t",
        )
    return node


def _translate_into(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Refuse SELECT … INTO."""
    self.source.refuse(
        node,
        "clause",
        "SELECT … INTO is not supported: a query keeps nothing on the database",
        "write WITH t AS (SELECT …) SELECT … FROM t",
    )


def _translate_int_div(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DIV, the quotient of whole numbers; the parser puts PostgreSQL's into a cast."""
    return build_call("trunc", build_call(QUOTIENT, node.this, node.expression))


def _translate_logarithm(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate LOG with a base, or PostgreSQL's to base 10; 0 has none, as in LN."""
    base, value = node.this, node.expression
    if value is None:
        return build_call("log10", build_call("greatest", base, exp.Literal.number(0)))
    return exp.Paren(this=exp.Div(this=_build_logarithm(value), expression=_build_logarithm(base)))


def _build_logarithm(value: exp.Expr) -> exp.Expr:
    return build_call("ln", build_call("greatest", value, exp.Literal.number(0)))


_RULES: Mapping[type[exp.Expr], Callable[[DialectText, exp.Expr], exp.Expr]] = {
    **dict.fromkeys((exp.Any, exp.All), calls.translate_any),
    exp.WithinGroup: calls.translate_within_group,
    **dict.fromkeys((exp.PercentileCont, exp.PercentileDisc), calls.keep_percentile),
    **dict.fromkeys((exp.ApproxQuantile, exp.Quantile), calls.translate_quantile),
    exp.Bracket: aggregates.translate_first_of_list,
    exp.AnyValue: aggregates.translate_any_value,
    exp.ArrayAgg: aggregates.translate_list,
    exp.IgnoreNulls: aggregates.translate_list_of_values,
    exp.ArrayUniqueAgg: aggregates.translate_set,
    exp.ArraySort: aggregates.translate_sorted_list,
    exp.GroupConcat: aggregates.translate_joined_text,
    exp.ApproxQuantiles: aggregates.translate_quantiles,
    **dict.fromkeys((exp.Split, exp.RegexpSplit, exp.StringToArray), patterns.keep_split),
    exp.ExplodingGenerateSeries: calls.translate_series,
    exp.RegrCount: calls.translate_pair_count,
    exp.Skewness: aggregates.translate_skewness,
    exp.Kurtosis: aggregates.translate_kurtosis,
    exp.Nvl2: calls.translate_nvl2,
    exp.Anonymous: calls.translate_named_call,
    exp.Table: calls.translate_table,
    exp.Column: lambda self, node: self.translate_schema(node),
    exp.Div: types.translate_division,
    exp.IntDiv: _translate_int_div,
    exp.SafeDivide: types.translate_safe_division,
    exp.Avg: types.translate_average,
    exp.Window: types.translate_window,
    exp.Pow: types.translate_power,
    exp.Add: types.translate_addition,
    exp.Sub: types.translate_subtraction,
    exp.Round: types.translate_round,
    exp.Coalesce: types.translate_coalesce,
    **dict.fromkeys((exp.Cast, exp.TryCast), types.translate_cast),
    exp.Length: texts.translate_length,
    exp.StrPosition: texts.translate_text_position,
    exp.Concat: texts.translate_concatenation,
    exp.ConcatWs: texts.translate_separated,
    exp.DPipe: texts.translate_joined,
    **dict.fromkeys((exp.Left, exp.Right), texts.translate_text_side),
    exp.Substring: patterns.translate_substring,
    exp.Trim: texts.translate_trim,
    **dict.fromkeys((exp.Like, exp.ILike), texts.translate_like),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpILike), texts.translate_regexp_match),
    exp.SimilarTo: texts.translate_similar,
    exp.RegexpReplace: texts.translate_regexp_replace,
    exp.SplitPart: texts.translate_split_part,
    exp.Pad: texts.translate_pad,
    exp.Array: texts.translate_array,
    exp.Extract: dates.translate_extract,
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), dates.translate_date_truncation),
    **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff), dates.translate_date_difference),
    **dict.fromkeys(
        (
            exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub, exp.TsOrDsAdd,
        ),
        dates.translate_date_addition,
    ),
    exp.TimestampDiff: dates.translate_whole_units,
    exp.AddMonths: dates.translate_add_months,
    **dict.fromkeys((exp.TsOrDsToDate, exp.TimeStrToTime), dates.translate_to_date),
    exp.Date: dates.translate_date,
    exp.DayOfWeek: dates.translate_day_of_week,
    exp.DateFromParts: dates.translate_date_from_parts,
    exp.Interval: dates.translate_interval,
    exp.AtTimeZone: dates.translate_time_zone,
    exp.MakeInterval: dates.translate_make_interval,
    exp.Convert: dates.translate_styled,
    exp.EqualNull: lambda _, node: exp.NullSafeEQ(this=node.this, expression=node.expression),
    exp.DecodeCase: calls.translate_decode,
    exp.Corr: lambda _, node: exp.Corr(this=node.this, expression=node.expression),
    **dict.fromkeys((exp.Dayname, exp.Monthname), dates.translate_name),
    exp.Unnest: calls.translate_unnest,
    exp.GenerateSeries: calls.keep_series,
    exp.In: calls.translate_in,
    exp.Distinct: calls.translate_distinct,
    exp.Greatest: _translate_extreme,
    exp.Least: _translate_extreme,
    exp.Is: _translate_is,
    exp.Between: _translate_between,
    exp.Group: _translate_group_by,
    exp.WidthBucket: _translate_width_bucket,
    exp.RangeBucket: buckets.translate_range_bucket,
    exp.TimeSlice: buckets.translate_time_slice,
    exp.MonthsBetween: buckets.translate_months_between,
    exp.Overlaps: buckets.translate_overlaps,
    exp.LastDay: buckets.translate_last_day,
    exp.Identifier: _translate_identifier,
    exp.With: _translate_with,
    exp.Join: _translate_join,
    exp.Into: _translate_into,
    exp.Fetch: lambda _, node: exp.Limit(expression=node.args["count"]),
    exp.National: lambda _, node: exp.Literal.string(node.name),
    exp.Ln: lambda _, node: _build_logarithm(node.this),
    exp.Log: _translate_logarithm,
    exp.CountIf: lambda _, node: exp.Count(
        this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]), big_int=True
    ),
    exp.Placeholder: lambda _, node: exp.Parameter(this=exp.Literal.number(node.name.removeprefix("p"))),
}  # fmt: skip
