"""The supported nodes of other dialects' trees, as data: all others are refused."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

TITLES: Mapping[str, str] = {
    "postgres": "PostgreSQL",
    "spark": "Spark",
    "snowflake": "Snowflake",
    "bigquery": "BigQuery",
    "tsql": "T-SQL",
}
"""The dialects that are read in addition to DuckDB's."""

_PAIR = ("this", "expression")
_SET = (*_PAIR, "distinct", "with_", "order", "limit", "offset")
READ: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        "with_", "expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order",
        "limit", "offset",
    ),
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _SET),
    **dict.fromkeys(
        (
            exp.From, exp.Where, exp.Having, exp.Qualify, exp.Paren, exp.Neg, exp.Not, exp.Boolean, exp.Exists, exp.Var,
            exp.DataTypeParam, exp.Placeholder, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.CountIf, exp.National,
            exp.TimeStrToTime, exp.Abs, exp.Floor, exp.Ceil, exp.Sqrt, exp.Exp, exp.Ln, exp.Sign,
            exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.ApproxDistinct,
            exp.PercentileCont, exp.PercentileDisc, exp.Median,
            exp.Lower, exp.Upper, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Hour, exp.Minute, exp.DayOfYear,
        ),
        ("this",),
    ),
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Add, exp.Sub, exp.Mul, exp.Mod,
            exp.NullSafeEQ, exp.NullSafeNEQ, exp.Escape, exp.Filter, exp.Nullif, exp.Pow, exp.StartsWith,
            exp.Contains, exp.Extract, exp.SafeDivide, exp.WithinGroup,
        ),
        _PAIR,
    ),
    **dict.fromkeys(
        (exp.With, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Distinct, exp.Order, exp.Tuple, exp.Grouping),
        ("expressions",),
    ),
    **dict.fromkeys(
        (
            exp.Star, exp.Null, exp.RowNumber, exp.Rank, exp.DenseRank, exp.CurrentDate, exp.CurrentTimestamp,
            exp.Localtimestamp,
        ),
        (),
    ),
    exp.WidthBucket: ("this", "min_value", "max_value", "num_buckets"),
    exp.Window: ("this", "partition_by", "order", "over"),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Is), (*_PAIR, "negate")),
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to", "safe", "requires_string")),
    **dict.fromkeys((exp.Subquery, exp.CTE, exp.Alias), ("this", "alias")),
    **dict.fromkeys((exp.Limit, exp.Offset), ("expression",)),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), ("this", "unit", "input_type_preserved")),
    **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff), (*_PAIR, "unit", "date_part_boundary")),
    **dict.fromkeys(
        (exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TsOrDsAdd),
        (*_PAIR, "unit"),
    ),
    **dict.fromkeys((exp.Greatest, exp.Least), ("this", "expressions", "ignore_nulls")),
    **dict.fromkeys((exp.Left, exp.Right), (*_PAIR, "negative_length_returns_empty")),
    exp.TsOrDsToDate: ("this", "default_date", "safe"),
    exp.Join: ("this", "on", "using", "kind", "side"),
    exp.Table: ("this", "alias", "db", "catalog"),
    exp.TableAlias: ("this", "columns"),
    exp.Values: ("expressions", "alias"),
    exp.Group: ("expressions", "rollup", "cube", "grouping_sets", "all"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Fetch: ("direction", "count", "limit_options"),
    exp.LimitOptions: ("rows",),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Identifier: ("this", "quoted"),
    exp.Literal: ("this", "is_string"),
    exp.Div: (*_PAIR, "typed", "safe"),
    exp.DPipe: (*_PAIR, "safe"),
    exp.In: ("this", "expressions", "query"),
    exp.Any: ("this",),
    exp.Between: ("this", "low", "high", "symmetric"),
    **dict.fromkeys((exp.LogicalAnd, exp.LogicalOr), ("this",)),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.DataType: ("this", "expressions", "nested"),
    exp.Interval: ("this", "unit"),
    exp.Count: ("this", "big_int"),
    exp.Coalesce: ("this", "expressions", "is_null"),
    exp.Concat: ("expressions", "safe", "coalesce"),
    exp.Replace: ("this", "expression", "replacement"),
    exp.Round: ("this", "decimals", "casts_non_integer_decimals"),
    exp.Trim: ("this", "position"),
    exp.Length: ("this", "binary"),
    exp.StrPosition: ("this", "substr"),
    exp.Substring: ("this", "start", "length", "zero_start"),
    exp.Anonymous: ("this", "expressions"),
}  # fmt: skip
"""The nodes that are read, each with its arguments. All others are refused, and so is any other argument."""

CALLS: Mapping[type[exp.Expr], str] = {
    exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt", exp.Exp: "exp", exp.Ln: "ln",
    exp.Sign: "sign", exp.Lower: "lower", exp.Upper: "upper", exp.Year: "year", exp.Month: "month", exp.Day: "day",
    exp.Quarter: "quarter", exp.Hour: "hour", exp.Minute: "minute", exp.DayOfYear: "dayofyear",
    exp.Nullif: "nullif", exp.Pow: "pow", exp.StartsWith: "starts_with", exp.Contains: "contains",
    exp.Coalesce: "coalesce", exp.Replace: "replace", exp.Length: "length", exp.StrPosition: "strpos",
}  # fmt: skip
"""Functions that DuckDB calls by these names, with the arguments in the order above."""
