"""The dialects that are read: DuckDB's with dpsql's own words, and the nodes and constants of other dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.policy.request.dialects import DUCKDB, TITLES, require_dialect_name
from dpsql.sql.parse.older_parser import OlderParser

# Constants in a parser's tree, and the types that are evident from the tree alone.


FRACTIONAL_TYPES = frozenset({exp.DType.DOUBLE, exp.DType.DECIMAL, exp.DType.FLOAT})


def unwrap_sign(node: exp.Expr | None) -> exp.Expr | None:
    """Return the operand inside parentheses and minus signs."""
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return node


def is_whole_number(node: exp.Expr | None) -> bool:
    """Return whether a node is a literal whole number that is not negative."""
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()


def is_text(node: exp.Expr | None) -> bool:
    """Return whether a node is evidently a text that no parser takes for a number."""
    node = unwrap_sign(node)
    if isinstance(node, exp.DPipe):
        return True
    if not isinstance(node, exp.Literal) or not node.is_string:
        return False
    return not any(letter.isdigit() for letter in str(node.this)) and bool(str(node.this).strip())


def find_number(node: exp.Expr | None) -> float | None:
    """Find the number that a constant is."""
    sign = 1
    while isinstance(node, (exp.Paren, exp.Neg)):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    return sign * float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def is_parameter(node: exp.Expr | None) -> bool:
    """Return whether a node is a parameter, in parentheses or not."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Parameter)


# The supported nodes of other dialects' trees, as data: all others are refused.


_PAIR = ("this", "expression")
_SET = (*_PAIR, "distinct", "with_", "order", "limit", "offset")
READ: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        "with_", "expressions", "from_", "joins", "where", "group", "having", "qualify", "distinct", "order",
        "limit", "offset", "windows", "into",
    ),
    **dict.fromkeys((exp.Union, exp.Intersect, exp.Except), _SET),
    **dict.fromkeys(
        (
            exp.From, exp.Where, exp.Having, exp.Qualify, exp.Paren, exp.Neg, exp.Not, exp.Boolean, exp.Exists, exp.Var,
            exp.DataTypeParam, exp.Placeholder, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.National,
            exp.TimeStrToTime, exp.Abs, exp.Floor, exp.Ceil, exp.Sqrt, exp.Exp, exp.Ln, exp.Sign,
            exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.ApproxDistinct,
            exp.Median, exp.Skewness, exp.Kurtosis,
            exp.Cbrt, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Degrees, exp.Radians, exp.Reverse, exp.Ascii,
            exp.DayOfWeek, exp.WeekOfYear, exp.DayOfWeekIso, exp.Ntile, exp.FirstValue, exp.LastValue,
            exp.IgnoreNulls, exp.RespectNulls, exp.AnyValue, exp.Mode, exp.RawString, exp.All, exp.WeekStart,
            exp.Lower, exp.Upper, exp.Year, exp.Month, exp.Day, exp.Quarter, exp.Hour, exp.Minute, exp.DayOfYear,
        ),
        ("this",),
    ),
    **dict.fromkeys(
        (
            exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Add, exp.Sub, exp.Mul, exp.Mod,
            exp.NullSafeEQ, exp.NullSafeNEQ, exp.Escape, exp.Filter, exp.Nullif, exp.Pow, exp.StartsWith,
            exp.Contains, exp.Extract, exp.SafeDivide, exp.WithinGroup, exp.IntDiv, exp.Kwarg,
            exp.Log, exp.SimilarTo, exp.RegexpILike, exp.CovarPop, exp.CovarSamp, exp.RegrSlope, exp.RegrIntercept,
            exp.RegrR2, exp.RegrCount, exp.RegrAvgx, exp.RegrAvgy, exp.RegrSxx, exp.RegrSyy, exp.RegrSxy, exp.EqualNull, exp.ArgMax, exp.ArgMin,
            exp.Atan2, exp.ApproxQuantiles, exp.AddMonths, exp.PercentileCont, exp.PercentileDisc,
        ),
        _PAIR,
    ),
    **dict.fromkeys(
        (exp.Rollup, exp.Cube, exp.GroupingSets, exp.Tuple, exp.Grouping),
        ("expressions",),
    ),
    **dict.fromkeys(
        (
            exp.Null, exp.RowNumber, exp.CurrentDate, exp.CurrentTimestamp,
            exp.Localtimestamp,
        ),
        (),
    ),
    exp.AtTimeZone: ("this", "zone"),
    exp.Chr: ("expressions", "charset"),
    exp.Split: (*_PAIR, "limit", "null_returns_null", "empty_delimiter_returns_whole"),
    exp.RegexpSplit: _PAIR,
    exp.StringToArray: _PAIR,
    exp.WidthBucket: ("this", "min_value", "max_value", "num_buckets", "threshold"),
    exp.LastDay: ("this", "unit"),
    exp.TimeSlice: (*_PAIR, "unit", "kind"),
    exp.MonthsBetween: (*_PAIR, "roundoff"),
    **dict.fromkeys((exp.RangeBucket, exp.Overlaps), _PAIR),
    exp.With: ("expressions", "recursive"),
    **dict.fromkeys((exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist), ("expressions",)),
    exp.Order: ("this", "expressions"),
    exp.HavingMax: (*_PAIR, "max"),
    exp.GroupConcat: ("this", "separator"),
    exp.ArrayUniqueAgg: ("this",),
    exp.ArraySort: ("this", "expression", "nulls_first"),
    exp.ArrayAgg: ("this", "nulls_excluded"),
    exp.Bracket: ("this", "expressions", "offset", "safe"),
    exp.Hll: ("this", "expressions"),
    exp.Window: ("this", "partition_by", "order", "over", "spec", "alias"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side", "exclude"),
    **dict.fromkeys((exp.Lag, exp.Lead), ("this", "offset", "default")),
    exp.NthValue: ("this", "offset"),
    **dict.fromkeys((exp.ApproxQuantile, exp.Quantile), ("this", "quantile", "accuracy")),
    exp.ExplodingGenerateSeries: ("start", "end", "step"),
    exp.MakeInterval: ("year", "month", "week", "day", "hour", "minute", "second"),
    exp.CountIf: ("this", "zero_on_all_null"),
    exp.Corr: (*_PAIR, "null_on_zero_variance"),
    exp.DecodeCase: ("expressions",),
    **dict.fromkeys((exp.Dayname, exp.Monthname), ("this", "abbreviated")),
    **dict.fromkeys((exp.GenerateDateArray, exp.GenerateSeries), ("start", "end", "step")),
    exp.Unnest: ("expressions", "alias", "offset"),
    exp.Nvl2: ("this", "true", "false"),
    exp.Convert: ("this", "expression", "style", "safe"),
    exp.RegexpLike: (*_PAIR, "full_match"),
    exp.RegexpReplace: (*_PAIR, "replacement", "modifiers", "single_replace"),
    exp.SplitPart: ("this", "delimiter", "part_index", "part_index_zero_as_one", "empty_delimiter_returns_whole"),
    exp.Pad: (*_PAIR, "fill_pattern", "is_left"),
    exp.ConcatWs: ("expressions", "safe", "coalesce", "flatten"),
    exp.Array: ("expressions", "value_constructor", "struct_name_inheritance"),
    exp.Trunc: ("this", "decimals", "fractions_supported"),
    exp.Date: ("this", "zone"),
    exp.DateFromParts: ("year", "month", "day"),
    exp.Into: ("this", "temporary", "unlogged"),
    **dict.fromkeys((exp.Like, exp.ILike, exp.Is), (*_PAIR, "negate")),
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to", "safe", "requires_string")),
    **dict.fromkeys((exp.Subquery, exp.Alias), ("this", "alias")),
    exp.CTE: ("this", "alias", "materialized"),
    exp.Star: ("except_", "replace", "rename"),
    exp.Lateral: ("this", "alias", "cross_apply"),
    exp.Limit: ("this", "expression"),
    exp.Offset: ("expression",),
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), ("this", "unit", "input_type_preserved")),
    **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff, exp.TimestampDiff), (*_PAIR, "unit", "date_part_boundary", "big_int")),
    **dict.fromkeys(
        (exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub, exp.TsOrDsAdd),
        (*_PAIR, "unit"),
    ),
    **dict.fromkeys((exp.Greatest, exp.Least), ("this", "expressions", "ignore_nulls")),
    **dict.fromkeys((exp.Left, exp.Right), (*_PAIR, "negative_length_returns_empty")),
    exp.TsOrDsToDate: ("this", "default_date", "safe"),
    exp.Join: ("this", "on", "using", "kind", "side", "method"),
    exp.Table: ("this", "alias", "db", "catalog", "hints"),
    exp.TableAlias: ("this", "columns"),
    exp.Values: ("expressions", "alias"),
    exp.Group: ("expressions", "rollup", "cube", "grouping_sets", "all"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Fetch: ("direction", "count", "limit_options"),
    exp.LimitOptions: ("rows",),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Identifier: ("this", "quoted", "temporary", "global_"),
    exp.Literal: ("this", "is_string"),
    exp.Div: (*_PAIR, "typed", "safe"),
    exp.DPipe: (*_PAIR, "safe"),
    exp.In: ("this", "expressions", "query", "unnest"),
    exp.Distinct: ("expressions", "on"),
    exp.WithTableHint: ("expressions",),
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
    exp.Round: ("this", "decimals", "casts_non_integer_decimals", "truncate"),
    exp.Trim: ("this", "expression", "position"),
    exp.Length: ("this", "binary"),
    exp.StrPosition: ("this", "substr", "clamp_position"),
    exp.Substring: ("this", "start", "length", "zero_start"),
    exp.Anonymous: ("this", "expressions"),
}  # fmt: skip
"""The nodes that are read, each with its arguments. All others are refused, and so is any other argument."""

CALLS: Mapping[type[exp.Expr], str] = {
    exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt", exp.Exp: "exp", exp.Ln: "ln",
    exp.Sign: "sign", exp.Lower: "lower", exp.Upper: "upper", exp.Year: "year", exp.Month: "month", exp.Day: "day",
    exp.Quarter: "quarter", exp.Hour: "hour", exp.Minute: "minute", exp.DayOfYear: "dayofyear",
    exp.Nullif: "nullif", exp.Pow: "pow", exp.StartsWith: "starts_with", exp.Contains: "contains",
    exp.Cbrt: "cbrt", exp.Sin: "sin", exp.Cos: "cos", exp.Tan: "tan", exp.Asin: "asin", exp.Acos: "acos", exp.Atan: "atan",
    exp.Atan2: "atan2", exp.Degrees: "degrees", exp.Radians: "radians", exp.Reverse: "reverse", exp.Ascii: "ascii",
    exp.Chr: "chr", exp.WeekOfYear: "week", exp.DayOfWeekIso: "isodow", exp.Trunc: "trunc", exp.ConcatWs: "concat_ws",
    exp.Coalesce: "coalesce", exp.Replace: "replace", exp.Length: "length", exp.StrPosition: "strpos",
}  # fmt: skip
"""Functions that DuckDB calls by these names, with the arguments in the order above."""


# The parser's dialect: DuckDB's, except that functions stay as they are written.


DIALECT = DuckDB()
DIALECTS: Mapping[str, Dialect] = {DUCKDB: DIALECT, **{name: Dialect.get_or_raise(name) for name in TITLES}}
"""The dialects that are read."""
_AGGREGATES = {
    "BIT_AND", "BIT_OR", "BIT_XOR", "LIST", "LISTAGG", "QUANTILE_CONT", "QUANTILE_DISC", "STRINGAGG", "STRING_AGG",
    *(
        name
        for name, node in exp.FUNCTION_BY_NAME.items()
        if isinstance(node, type) and issubclass(node, (exp.AggFunc, exp.RowNumber))
    ),
}  # fmt: skip
_OWN_SYNTAX = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST"}


def _make_aggregate_node(name: str) -> type[exp.AggFunc]:
    """Build a node for the calls of an aggregate with up to two arguments."""
    arguments = {"this": False, "expression": False}
    words = {"arg_types": arguments, "_sql_names": [name], "__module__": __name__}
    return type(name.title().replace("_", ""), (exp.Expression, exp.AggFunc), words)


ADDED_NODES: Mapping[str, type[exp.AggFunc]] = {
    name: _make_aggregate_node(name)
    for name in (
        "ANY_VALUE", "ARBITRARY", "ARG_MAX_NULL", "ARG_MAX_NULLS_LAST", "ARG_MIN_NULL", "ARG_MIN_NULLS_LAST", "BITSTRING_AGG",
        "COMBINE_AGGR", "COUNT_STAR", "DECIMAL_AVERAGE", "ENTROPY", "GEOMEAN", "GEOMETRIC_MEAN",
        "HISTOGRAM", "HISTOGRAM_EXACT", "KURTOSIS_POP", "LTTB", "MAD", "PRODUCT",
        "RESERVOIR_QUANTILE", "SEM", "SUM_NO_OVERFLOW", "VARIANT_GROUP_OBJECT", "WAVG", "WEIGHTED_AVG",
    )
}  # fmt: skip
"""DuckDB's aggregates, macros among them, for which the parser has no node: it would take them for functions of a row.

It would silently drop further arguments of ANY_VALUE.
"""


SPELLINGS: Mapping[str, type[exp.AggFunc]] = {
    "FAVG": exp.Avg, "MEAN": exp.Avg, "FSUM": exp.Sum, "KAHAN_SUM": exp.Sum, "SUMKAHAN": exp.Sum,
    "CHOOSE": exp.ArgMax,
}  # fmt: skip
"""Further names of aggregates: SUM and AVG already add up with as little rounding, and CHOOSE is dpsql's own."""


def _make_quantifier_builder(name: str, node: type[exp.Expression]) -> Callable[[list[exp.Expr]], exp.Expr]:
    """Return the builder of ALL or SOME over a list, which the parser takes for a call; it knows ANY."""

    def build_quantifier(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) == 1:
            return node(this=exp.Paren(this=arguments[0]))
        return exp.Anonymous(this=name, expressions=arguments)

    return build_quantifier


class IntervalParser:
    """A part of each parser: all words of an INTERVAL's text are kept, where sqlglot drops those behind the first unit."""

    def _parse_interval(self, *args: Any, **options: Any) -> exp.Expr | None:
        start = self._index  # type: ignore[attr-defined]
        found: exp.Expr | None = super()._parse_interval(*args, **options)  # type: ignore[misc]
        interval = found.this if isinstance(found, exp.Add) else found
        texts = [each.text for each in self._tokens[start : start + 2] if each.token_type is TokenType.STRING]  # type: ignore[attr-defined]
        if texts and isinstance(interval, exp.Interval) and isinstance(interval.this, exp.Literal):
            others = exp.INTERVAL_STRING_RE.sub("", texts[0], count=1).strip()
            if interval.this.name != texts[0] and others not in ("", "+"):
                interval.this.set("this", texts[0])
                interval.set("unit", None)
        return found


class Parser(IntervalParser, OlderParser):  # type: ignore[misc]
    """DuckDB's parser, which knows aggregates and calls with a syntax of their own, and no other function.

    The parser would turn a call into a node of its own that many dialects share, with arguments reordered, renamed, added or
    dropped. Here it reads a name and a list of arguments, whose meaning is in the registry of functions alone. Aggregates keep
    their nodes, and so does what has a syntax of its own, such as EXTRACT(year FROM day).
    """

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: build for name, build in DuckDBParser.FUNCTIONS.items() if name in _AGGREGATES},
        **{name: node.from_arg_list for name, node in {**ADDED_NODES, **SPELLINGS}.items()},
        "ALL": _make_quantifier_builder("ALL", exp.All),
        "SOME": _make_quantifier_builder("SOME", exp.Any),
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parse
        for name, parse in DuckDBParser.FUNCTION_PARSERS.items()
        if name in _AGGREGATES | _OWN_SYNTAX
    }

    TABLE_ALIAS_TOKENS: ClassVar = DuckDBParser.TABLE_ALIAS_TOKENS - {TokenType.PIVOT, TokenType.UNPIVOT}

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """Parse CUBE or ROLLUP with comparisons, where the parser only reads arithmetic."""
        if with_prefix or self._curr.token_type not in (TokenType.CUBE, TokenType.ROLLUP):
            found: exp.Cube | exp.Rollup | None = super()._parse_cube_or_rollup(with_prefix)
            return found
        cube = self._curr.token_type is TokenType.CUBE
        self._advance()
        keys = self._parse_wrapped_csv(self._parse_disjunction)
        return exp.Cube(expressions=keys) if cube else exp.Rollup(expressions=keys)

    def _parse_grouping_set(self) -> exp.Expr | None:
        found: exp.Expr | None = (
            self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )
        return found

    def _parse_in(self, this: exp.Expr | None, alias: bool = True) -> exp.In:
        """Parse IN with names after values, as in a PIVOT statement; elsewhere these are refused like any alias."""
        found: exp.In = super()._parse_in(this, alias)
        return found

    def _parse_simplified_pivot(self, is_unpivot: bool | None = None) -> exp.Pivot:
        """Parse a PIVOT statement with ORDER BY and LIMIT behind it."""
        found: exp.Pivot = super()._parse_simplified_pivot(is_unpivot)
        found.set("order", self._parse_order())
        offset = self._parse_offset()
        found.set("limit", self._parse_limit())
        found.set("offset", offset or self._parse_offset())
        return found

    def _parse_limit(
        self,
        this: exp.Expr | None = None,
        top: bool = False,
        skip_limit_token: bool = False,
    ) -> exp.Expr | None:
        """Parse FETCH FIRST n ROWS ONLY as the LIMIT that it is; without a number, as LIMIT 1."""
        found: exp.Expr | None = super()._parse_limit(this, top, skip_limit_token)
        if type(found) is not exp.Fetch:
            return found
        options = found.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            return found
        return exp.Limit(expression=found.args.get("count") or exp.Literal.number(1))


_NAMED: Mapping[str, frozenset[str]] = {
    "postgres": frozenset({"FORMAT", "REGEXP_SUBSTR", "TO_CHAR", "TO_DATE", "TO_TIMESTAMP", "DATE_BIN"}),
    "snowflake": frozenset(
        {
            "REGEXP_SUBSTR",
            "TO_CHAR",
            "TO_VARCHAR",
            "TO_DATE",
            "TRY_TO_DATE",
            "CONVERT_TIMEZONE",
            "NEXT_DAY",
            "TIMEADD",
            "HLL",
            "SORT_ARRAY",  # whose parser copies an argument
        }
    ),
    "spark": frozenset(
        {
            "FORMAT_NUMBER",
            "FORMAT_STRING",
            "PRINTF",
            "REGEXP_EXTRACT",
            "REGEXP_SUBSTR",
            "DATE_FORMAT",
            "DATE_PART",
            "TO_DATE",
            "TO_TIMESTAMP",
            "NEXT_DAY",
        }
    ),
    "bigquery": frozenset(
        {
            "FORMAT",
            "REGEXP_EXTRACT",
            "REGEXP_SUBSTR",
            "FORMAT_DATE",
            "FORMAT_DATETIME",
            "FORMAT_TIMESTAMP",
            "PARSE_DATE",
            "PARSE_DATETIME",
            "PARSE_TIMESTAMP",
        }
    ),
    "tsql": frozenset({"FORMAT", "DATENAME", "DATE_BUCKET"}),
}
"""Functions that the parser would rewrite in a way that cannot be undone, such as formats of dates."""


_EPOCH = "TIMESTAMP '1970-01-01'"
_SECONDS = "CAST(FLOOR(EPOCH_US(_1) / 1000000.0) AS BIGINT)"
_SUMS = ("_1 + _2",)
_DIFFERENCES = ("_1 - _2",)
_PRODUCTS = ("_1 * _2",)
EQUIVALENTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "postgres": {
        "repeat": ("REPEAT(_1, _2)",), "translate": ("TRANSLATE(_1, _2, _3)",), "chr": ("CHR(_1)",), "octet_length": ("STRLEN(_1)",), "pi": ("PI()",),
        "factorial": ("FACTORIAL(_1)",), "make_timestamp": ("MAKE_TIMESTAMP(_1, _2, _3, _4, _5, _6)",),
        "timezone": ("TIMEZONE(_1, _2)",),
    },
    "spark": {
        "repeat": ("REPEAT(_1, _2)",), "pmod": ("CASE WHEN _1 % _2 < 0 THEN (_1 % _2 + _2) % _2 ELSE _1 % _2 END",), "dayofmonth": ("DAY(_1)",),
        "negative": ("-_1",), "positive": ("_1",), "rint": ("ROUND_EVEN(_1, 0)",), "hypot": ("SQRT(_1 * _1 + _2 * _2)",),
        "e": ("EXP(1)",), "pi": ("PI()",), "factorial": ("CASE WHEN _1 BETWEEN 0 AND 20 THEN FACTORIAL(_1) END",),
        "btrim": ("TRIM(_1)", "TRIM(_1, _2)"), "levenshtein": ("LEVENSHTEIN(_1, _2)",), "translate": ("TRANSLATE(_1, _2, _3)",),
        "zeroifnull": ("COALESCE(_1, 0)",), "nullifzero": ("NULLIF(_1, 0)",), "bigint": ("CAST(_1 AS BIGINT)",),
        "try_add": _SUMS, "try_subtract": _DIFFERENCES, "try_multiply": _PRODUCTS, "endswith": ("SUFFIX(_1, _2)",),
        "unix_date": ("CAST(_1 AS DATE) - DATE '1970-01-01'",), "date_from_unix_date": ("DATE '1970-01-01' + _1",),
        "timestamp_seconds": ("MAKE_TIMESTAMP(CAST(_1 * 1000000 AS BIGINT))",),
        "timestamp_millis": ("MAKE_TIMESTAMP(_1 * 1000)",), "timestamp_micros": ("MAKE_TIMESTAMP(_1)",),
        "unix_timestamp": ("EPOCH_US(_1) // 1000000",), "unix_seconds": (_SECONDS,),
        "from_unixtime": ("STRFTIME(MAKE_TIMESTAMP(_1 * 1000000), '%Y-%m-%d %H:%M:%S')",),
        "from_utc_timestamp": ("TIMEZONE(_2, CAST(_1 AS TIMESTAMPTZ))",),
        "try_to_date": ("TRY_CAST(_1 AS DATE)",),
    },
    "snowflake": {
        "repeat": ("REPEAT(_1, _2)",), "endswith": ("SUFFIX(_1, _2)",), "week": ("WEEK(_1)",), "yearofweek": ("ISOYEAR(_1)",),
        "yearofweekiso": ("ISOYEAR(_1)",), "date_from_parts": (
            "CAST(MAKE_DATE(_1, 1, 1) + INTERVAL (_2 - 1) MONTH + INTERVAL (_3 - 1) DAY AS DATE)",
        ),
        "to_number": ("CAST(_1 AS DECIMAL(38, 0))",), "to_decimal": ("CAST(_1 AS DECIMAL(38, 0))",),
        "to_numeric": ("CAST(_1 AS DECIMAL(38, 0))",), "try_to_number": ("TRY_CAST(_1 AS DECIMAL(38, 0))",),
        "to_double": ("CAST(_1 AS DOUBLE)",), "try_to_double": ("TRY_CAST(_1 AS DOUBLE)",),
        "translate": ("TRANSLATE(_1, _2, _3)",), "chr": ("CHR(_1)",), "factorial": ("FACTORIAL(_1)",), "pi": ("PI()",),
        "editdistance": ("LEVENSHTEIN(_1, _2)",), "zeroifnull": ("COALESCE(_1, 0)",), "nullifzero": ("NULLIF(_1, 0)",),
        "div0": ("CASE WHEN _2 = 0 AND _1 IS NOT NULL THEN 0 ELSE _1 / _2 END",),
        "div0null": ("CASE WHEN (_2 = 0 OR _2 IS NULL) AND _1 IS NOT NULL THEN 0 ELSE _1 / _2 END",),
    },
    "bigquery": {
        "repeat": ("REPEAT(_1, _2)",), "ends_with": ("SUFFIX(_1, _2)",), "safe_add": _SUMS, "safe_subtract": _DIFFERENCES, "safe_multiply": _PRODUCTS,
        "safe_negate": ("-_1",), "unix_seconds": (_SECONDS,), "unix_millis": ("EPOCH_MS(_1)",), "unix_micros": ("EPOCH_US(_1)",),
        "unix_date": ("CAST(_1 AS DATE) - DATE '1970-01-01'",), "date_from_unix_date": ("DATE '1970-01-01' + _1",),
        "timestamp_seconds": ("MAKE_TIMESTAMP(_1 * 1000000)",), "timestamp_millis": ("MAKE_TIMESTAMP(_1 * 1000)",),
        "timestamp_micros": ("MAKE_TIMESTAMP(_1)",), "byte_length": ("STRLEN(_1)",), "bit_count": ("BIT_COUNT(_1)",),
        "translate": ("TRANSLATE(_1, _2, _3)",), "edit_distance": ("LEVENSHTEIN(_1, _2)",),
        "datetime": (
            "CAST(_1 AS TIMESTAMP)", "TIMEZONE(_2, CAST(_1 AS TIMESTAMPTZ))", "MAKE_TIMESTAMP(_1, _2, _3, _4, _5, _6)",
        ),
        "timestamp": ("CAST(_1 AS TIMESTAMP)",),
    },
    "tsql": {
        "pi": ("PI()",), "char": ("CHR(_1)",), "unicode": ("UNICODE(_1)",), "replicate": ("REPEAT(_1, _2)",),
        "space": ("REPEAT(' ', _1)",),
        "stuff": ("CASE WHEN LENGTH(_1) >= _2 THEN OVERLAY(_1, _4, _2, _3) END",),
        "datetimefromparts": ("MAKE_TIMESTAMP(_1, _2, _3, _4, _5, _6 + _7 / 1000.0)",),
    },
}  # fmt: skip
"""The expressions of DuckDB's SQL that compute functions of a dialect, one for each number of arguments."""


def _make_foreign_parser(name: str) -> type[Any]:
    """Build the parser of a dialect that keeps calls of these functions as they are written."""
    base = DIALECTS[name].parser_class
    as_written = {*_NAMED[name], *(each.upper() for each in EQUIVALENTS[name])}
    functions = {each: build for each, build in base.FUNCTIONS.items() if each not in as_written}
    return type(f"{base.__name__}WithNames", (IntervalParser, base), {"FUNCTIONS": functions})


FOREIGN_PARSERS: Mapping[str, type[Any]] = {name: _make_foreign_parser(name) for name in TITLES}
"""The parsers of the other dialects."""


def require_dialect(name: str) -> Dialect:
    """Return the dialect with this name. Raises ProgrammingError if there is none."""
    require_dialect_name(name)
    return DIALECTS[name]


def parse_tokens(tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """Return the trees of a text."""
    return list(Parser(dialect=DIALECT).parse(tokens, text))


def parse_foreign_tokens(tokens: list[Token], text: str, *, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of a text in another dialect, as its own parser reads it."""
    reader = FOREIGN_PARSERS[dialect](dialect=DIALECTS[dialect], error_level=ErrorLevel.IMMEDIATE)
    return list(reader.parse(tokens, text))
