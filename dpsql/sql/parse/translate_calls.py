"""Translate aggregates, quantiles, lists, series and functions by name from other dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.policy.request.dialects import TITLES
from dpsql.sql.parse.dialect import is_parameter
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.equivalents import build_equivalent, translate_equivalent
from dpsql.sql.parse.own_calls import BEST_EXPERT, find_interval_end
from dpsql.sql.parse.regressions import is_moment_call
from dpsql.sql.parse.translate_aggregates import translate_hypothetical_rank
from dpsql.sql.parse.translate_buckets import translate_date_bin, translate_date_bucket, translate_next_day
from dpsql.sql.parse.translate_dates import (
    build_date,
    cast_to_date,
    translate_age,
    translate_date_addition,
    translate_extract,
    translate_formatted,
    translate_parsed,
)
from dpsql.sql.parse.translate_numbers import (
    build_number_text,
    find_number_format,
    translate_format_number,
    translate_printf,
)
from dpsql.sql.parse.translate_patterns import translate_regexp_extract
from dpsql.sql.parse.translate_texts import read_listed
from dpsql.sql.parse.typed_calls import TEXT, TRUNCATED, build_call

_NamedRule = Callable[[DialectText, exp.Expr], exp.Expr | None]
_WITHIN_GROUP = frozenset({"postgres", "spark", "snowflake"})
"""The dialects in which PERCENTILE_CONT and PERCENTILE_DISC are aggregates; in the others they are windows."""
_QUANTILES = (exp.PercentileCont, exp.PercentileDisc)
_UNNESTING = frozenset({"bigquery", "spark", "postgres"})
_LISTED = (exp.Array, exp.GenerateDateArray, exp.GenerateSeries)
_DAY = exp.DataType(this=exp.DType.DATE, nested=False)
_NO_LOCKS = frozenset({"NOLOCK", "READUNCOMMITTED"})
_APPROXIMATE = {"approx_percentile_cont": exp.PercentileCont, "approx_percentile_disc": exp.PercentileDisc}


def translate_within_group(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Write a share q WITHIN GROUP (ORDER BY x) as DuckDB's quantile of x and q; of PERCENTILE_CONT in a descending order, 1 - q."""
    ranked = translate_hypothetical_rank(self, node)
    if ranked is not None:
        return ranked
    call, order = node.this, node.expression
    if isinstance(call, exp.Anonymous) and self.dialect == "tsql":
        kind = _APPROXIMATE.get(normalize_name(call.name))
        call = kind(this=call.expressions[0]) if kind is not None and len(call.expressions) == 1 else call
    elif self.dialect == "tsql" and not isinstance(node.parent, exp.Window):
        self.refuse_in_dialect(
            node,
            "function",
            "PERCENTILE_CONT is a window function over rows",
            "write APPROX_PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x) with GROUP BY",
        )
    elif self.dialect not in _WITHIN_GROUP | {"tsql"}:
        self.refuse_unknown(node.this)
    if type(call) not in (*_QUANTILES, exp.Mode) or len(order.expressions) != 1:
        self.refuse_unknown(node.this)
    (item,) = order.expressions
    if isinstance(call, exp.Mode) and self.dialect not in ("postgres", "spark"):
        self.refuse_unknown(node.this)
    if isinstance(call, exp.Mode):
        return exp.Mode(this=item.this)
    share = call.this
    if item.args.get("desc"):
        if type(call) is exp.PercentileDisc:  # if q falls between two values, it takes the other one
            self.source.refuse(
                node,
                "clause",
                "PERCENTILE_DISC in a descending order is not supported",
                "write ORDER BY x with the share 1 - q",
            )
        share = (
            exp.Array(expressions=[*map(_build_complement, share.expressions)])
            if isinstance(share, exp.Array)
            else _build_complement(share)
        )
    made: exp.Expr = type(call)(this=item.this, expression=share)
    return made


def _build_complement(share: exp.Expr) -> exp.Expr:
    return exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))


def keep_percentile(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Keep PERCENTILE_CONT(q) within a group, and PERCENTILE_CONT(x, q) over a window of BigQuery."""
    if node.expression is not None and not (
        self.dialect == "bigquery" and isinstance(node.parent, exp.Window)
    ):
        self.refuse_unknown(node)
    return node


def translate_quantile(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate APPROX_PERCENTILE and PERCENTILE: Spark's approximate one is one of the values, the others lie between two."""
    share = node.args.get("quantile")
    discrete = self.dialect == "spark" and isinstance(node, exp.ApproxQuantile)
    return (exp.PercentileDisc if discrete else exp.PercentileCont)(this=node.this, expression=share)


def translate_any(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate `= ANY (SELECT …)`, and PostgreSQL's `= ANY($1)`, as clients bind a list, and `= ANY(ARRAY[…])`."""
    if isinstance(node.this.unnest() if isinstance(node.this, exp.Paren) else node.this, exp.Query):
        return node
    if isinstance(node.parent, (exp.Like, exp.ILike)) and self.dialect in ("postgres", "snowflake", "spark"):
        return node
    if self.dialect != "postgres":
        self.source.refuse(
            node,
            "clause",
            f"ANY is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            "write x IN (1, 2)",
        )
    if is_parameter(node.this):
        return node
    listed = read_listed(self, node)
    if not isinstance(listed, exp.Array) and not is_parameter(listed):
        self.source.refuse(
            node,
            "clause",
            "ANY and ALL from PostgreSQL take a parameter or a list",
            "write x = ANY(ARRAY[1, 2])",
        )
    return type(node)(this=exp.Paren(this=listed))


_QUANTIFIED: Mapping[tuple[str, str], type[exp.Expr]] = {
    ("postgres", "all"): exp.All,
    ("postgres", "some"): exp.Any,
}
"""ALL and SOME of a list, which the parser takes for calls."""


def translate_series(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate generate_series in FROM."""
    parts = [node.args.get(name) for name in ("start", "end", "step")]
    return build_call("generate_series", *(part for part in parts if part is not None))


def translate_table(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate a table: a name in the dialect's default schema, or a series, whose alias names its column, too.

    NOLOCK of T-SQL says how rows are locked, which changes no answer here.
    """
    hints = [word for hint in node.args.get("hints") or () for word in hint.expressions]
    if any(not isinstance(word, exp.Var) or word.name.upper() not in _NO_LOCKS for word in hints):
        self.source.refuse(node, "clause", "a hint to the optimizer is not supported", "leave it out")
    node.set("hints", None)
    alias = node.args.get("alias")
    if isinstance(node.this, exp.Anonymous) and alias is not None and not alias.args.get("columns"):
        alias.set("columns", [exp.to_identifier(alias.name, quoted=True)])
    return self.translate_schema(node)


def translate_pair_count(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate REGR_COUNT(y, x), the number of pairs."""
    known = exp.and_(
        *(
            exp.Not(this=exp.Is(this=exp.Paren(this=part.copy()), expression=exp.Null()))
            for part in (node.this, node.expression)
        )
    )
    return exp.Count(this=exp.Case(ifs=[exp.If(this=known, true=exp.Literal.number(1))]), big_int=True)


def translate_decode(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate DECODE(x, a, y, …, z), in which NULL equals NULL."""
    value, *rest = node.expressions
    pairs = [(rest[place], rest[place + 1]) for place in range(0, len(rest) - 1, 2)]
    ifs = [
        exp.If(
            this=exp.NullSafeEQ(this=exp.Paren(this=value.copy()), expression=exp.Paren(this=sought)),
            true=found,
        )
        for sought, found in pairs
    ]
    return exp.Case(ifs=ifs, default=rest[-1] if len(rest) % 2 else None)


def translate_unnest(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate UNNEST of constants: GENERATE_DATE_ARRAY(…) and […] of BigQuery, sequence(…) of Spark, ARRAY[…] of PostgreSQL.

    The alias names the table, its column, or both.
    """
    alias, (listed, *more) = node.args.get("alias"), node.expressions
    if isinstance(node.parent, exp.In):
        return node
    if self.dialect not in _UNNESTING or more or not isinstance(listed, _LISTED):
        self.source.refuse(
            node, "clause", "UNNEST takes one list of constants here", "write JOIN (VALUES (1), (2)) AS t(x)"
        )
    columns = [] if alias is None else alias.args.get("columns") or []
    table = alias.name if alias is not None else ""
    name = columns[0].name if columns else table or "unnest"
    named = exp.TableAlias(
        this=exp.to_identifier(table or name, quoted=True), columns=[exp.to_identifier(name, quoted=True)]
    )
    if isinstance(listed, exp.Array):
        return exp.Unnest(expressions=[listed], alias=named)
    parts = [listed.args.get(key) for key in ("start", "end", "step")]
    if isinstance(listed, exp.GenerateDateArray) or _is_day(parts[0]):
        return _build_days(parts, named)
    return exp.Table(this=build_call("generate_series", *filter(None, parts)), alias=named)


def _is_day(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE


def _build_days(parts: list[exp.Expr | None], named: exp.TableAlias) -> exp.Expr:
    """Build a series of days; DuckDB's is one of moments."""
    start, end, step = parts
    one = exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="DAY"))
    days = [exp.Cast(this=each, to=_DAY.copy()) for each in (start, end)]
    series = build_call("generate_series", *days, step or one)
    moments = exp.TableAlias(this=exp.to_identifier("days"), columns=[exp.to_identifier("day")])
    select = exp.Select(expressions=[exp.Cast(this=exp.column("day", table="days"), to=_DAY.copy())])
    return exp.Subquery(this=select.from_(exp.Table(this=series, alias=moments)), alias=named)


def keep_series(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Keep a list of numbers in UNNEST; as a value it is not supported."""
    if not isinstance(node.parent, exp.Unnest):
        self.refuse_unknown(node)
    return node


def join_lateral_views(tree: exp.Expr) -> None:
    """Write LATERAL VIEW explode(…) of constants as a CROSS JOIN with their rows, in place."""
    for select in tree.find_all(exp.Select):
        for view in list(select.args.get("laterals") or ()):
            call, alias = view.this, view.args.get("alias")
            if not isinstance(call, exp.Explode) or not isinstance(call.this, _LISTED) or alias is None:
                continue
            rows = exp.Unnest(expressions=[call.this], alias=alias)
            select.append("joins", exp.Join(this=rows, kind="CROSS"))
            view.pop()


def translate_in(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate x IN UNNEST([…]) of BigQuery."""
    unnest = node.args.get("unnest")
    if unnest is None:
        return node
    listed = unnest.expressions[0]
    if not isinstance(listed, exp.Array):
        self.source.refuse(node, "clause", "IN UNNEST takes a list of constants", "write x IN (1, 2)")
    return exp.In(this=node.this, expressions=listed.expressions)


def translate_distinct(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Refuse DISTINCT ON, which keeps single rows."""
    if node.args.get("on") is not None:
        self.source.refuse(node, "distinct", "DISTINCT ON would release single rows", "use GROUP BY")
    return node


def translate_nvl2(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate NVL2(x, y, z): y where x is there, else z."""
    known = exp.Not(this=exp.Is(this=exp.Paren(this=node.this), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=node.args["true"])], default=node.args.get("false"))


# Functions that the parser keeps by name.


_AGGREGATES: Mapping[tuple[str, str], type[exp.AggFunc]] = {
    ("tsql", "var"): exp.Variance,
    ("tsql", "varp"): exp.VariancePop,
    ("tsql", "stdevp"): exp.StddevPop,
    ("spark", "std"): exp.Stddev,
    ("spark", "mean"): exp.Avg,
    ("snowflake", "hll"): exp.ApproxDistinct,
    ("postgres", "every"): exp.LogicalAnd,
}
"""Aggregates that the parser reads as plain calls, by dialect and name."""
_CHOICES = {("postgres", "choose"), ("spark", "choose")}
"""The dialects without a CHOOSE of their own; CHOOSE of T-SQL returns the value at an index."""
_NOW = {
    ("spark", "now"),
    ("tsql", "getutcdate"),
    ("tsql", "sysdatetime"),
    ("postgres", "transaction_timestamp"),
}
_SAME: Mapping[str, Mapping[str, str]] = {
    "postgres": {name: name for name in ("gcd", "lcm")},
    "spark": {},
    "snowflake": {},
    "bigquery": {},
    "tsql": {},
}
"""Functions with the same meaning as DuckDB's of the given name."""


def _format(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate TO_CHAR, DATE_FORMAT and FORMAT of a date; Snowflake's TO_CHAR without a format is a cast."""
    if len(node.expressions) == 1 and self.dialect == "snowflake":
        return build_call(TEXT, node.expressions[0], exp.Literal.string(self.dialect))
    if len(node.expressions) != 2:
        return None
    value, text = node.expressions
    form = None if self.dialect == "spark" else find_number_format(text, self.dialect)
    if form is not None:
        return build_number_text(value, form)
    return translate_formatted(self, node, node.name.upper(), value, text)


def _format_reversed(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate FORMAT_DATE of BigQuery, whose format comes first."""
    if len(node.expressions) != 2:
        return None
    text, value = node.expressions
    return translate_formatted(self, node, node.name.upper(), value, text)


def _parse_date(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate TO_DATE with a format; in Spark and Snowflake without one, too."""
    if len(node.expressions) == 1 and self.dialect == "spark":
        return cast_to_date(node.expressions[0])
    if (
        len(node.expressions) == 1 and self.dialect == "snowflake"
    ):  # of a moment: the format of a text is guessed there
        value = node.expressions[0]
        is_text = isinstance(value, exp.Literal)
        return cast_to_date(value if is_text else build_call("date_trunc", exp.Literal.string("day"), value))
    if len(node.expressions) != 2:
        return None
    return translate_parsed(self, node, node.name.upper(), *node.expressions, date=True)


def _parse_date_reversed(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    if len(node.expressions) != 2:
        return None
    text, value = node.expressions
    return translate_parsed(self, node, node.name.upper(), value, text, date=True)


def _parse_moment_reversed(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    if len(node.expressions) != 2:
        return None
    text, value = node.expressions
    return translate_parsed(self, node, node.name.upper(), value, text, date=False)


def _convert_zone(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate CONVERT_TIMEZONE('UTC', zone, t) of Snowflake; of another source, a local time may be two instants."""
    if len(node.expressions) != 3 or node.expressions[0].name.upper() != "UTC":
        self.refuse_in_dialect(
            node,
            "constant",
            "CONVERT_TIMEZONE takes moments in UTC",
            "write CONVERT_TIMEZONE('UTC', 'Europe/Berlin', t)",
        )
    _, zone, moment = node.expressions
    return build_equivalent(self, node, "TIMEZONE(_1, CAST(_2 AS TIMESTAMPTZ))", zone, moment)


def _add_time(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate TIMEADD of Snowflake, which is DATEADD."""
    if len(node.expressions) != 3:
        return None
    unit, count, moment = node.expressions
    made = exp.DateAdd(this=moment, expression=count, unit=exp.Var(this=unit.name))
    return translate_date_addition(self, made)


def _take_part(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate DATE_PART of Spark, which is EXTRACT."""
    if len(node.expressions) != 2:
        return None
    part, moment = node.expressions
    return translate_extract(self, exp.Extract(this=exp.Var(this=part.name), expression=moment))


def _choose(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate CHOOSE(n, x, y, …) of T-SQL, the n-th of the values."""
    if len(node.expressions) < 2:
        return None
    place, *values = node.expressions
    whole = build_call(TRUNCATED, place)
    ifs = [exp.If(this=exp.Literal.number(number), true=value) for number, value in enumerate(values, 1)]
    return exp.Case(this=whole, ifs=ifs)


def _parse_moment(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    if len(node.expressions) != 2:
        return None
    return translate_parsed(self, node, node.name.upper(), *node.expressions, date=False)


def _name_part(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate DATENAME(month, d) and DATENAME(weekday, d) of T-SQL."""
    names = {"month": "monthname", "weekday": "dayname", "mm": "monthname", "dw": "dayname"}
    if len(node.expressions) != 2 or normalize_name(node.expressions[0].name) not in names:
        return None
    return build_call(names[normalize_name(node.expressions[0].name)], node.expressions[1])


def _make_date(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    return build_date(self, node, node.expressions)


def _count_weekday(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate WEEKDAY of Spark, in which Monday is 0."""
    if len(node.expressions) != 1:
        return None
    day = build_call("isodow", node.expressions[0])
    return exp.Paren(this=exp.Sub(this=day, expression=exp.Literal.number(1)))


def _keep_ratio(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Keep RATIO_TO_REPORT within its window, which `translate_window` writes out."""
    if not isinstance(node.parent, exp.Window) or len(node.expressions) != 1:
        return None
    return build_call("ratio_to_report", node.expressions[0])


def _keep_event(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Keep CONDITIONAL_TRUE_EVENT within its window, which `translate_window` writes out."""
    if not isinstance(node.parent, exp.Window) or len(node.expressions) != 1:
        return None
    return build_call("conditional_true_event", node.expressions[0])


def _is_missing(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate ISNULL(x) of Spark, a truth value."""
    if len(node.expressions) != 1:
        return None
    return exp.Paren(this=exp.Is(this=exp.Paren(this=node.expressions[0]), expression=exp.Null()))


def _is_there(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    missing = _is_missing(self, node)
    return None if missing is None else exp.Paren(this=exp.Not(this=missing))


def _round_half_even(_: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate BROUND of Spark, which rounds halves to even."""
    digits = node.expressions[1:] or [exp.Literal.number(0)]
    return build_call("round_even", node.expressions[0], *digits)


NAMED: Mapping[tuple[str, str], _NamedRule] = {
    **dict.fromkeys((("postgres", "to_char"), ("snowflake", "to_char"), ("snowflake", "to_varchar")), _format),
    **dict.fromkeys((("spark", "date_format"), ("tsql", "format")), _format),
    **dict.fromkeys(
        (("bigquery", "format_date"), ("bigquery", "format_datetime"), ("bigquery", "format_timestamp")), _format_reversed
    ),
    **dict.fromkeys((("postgres", "to_date"), ("snowflake", "to_date"), ("spark", "to_date")), _parse_date),
    ("bigquery", "parse_date"): _parse_date_reversed,
    **dict.fromkeys((("postgres", "to_timestamp"), ("spark", "to_timestamp")), _parse_moment),
    **dict.fromkeys((("postgres", "make_date"), ("spark", "make_date")), _make_date),
    ("tsql", "datename"): _name_part,
    ("spark", "weekday"): _count_weekday,
    ("spark", "isnull"): _is_missing,
    ("spark", "isnotnull"): _is_there,
    ("spark", "bround"): _round_half_even,
    ("snowflake", "ratio_to_report"): _keep_ratio,
    ("snowflake", "conditional_true_event"): _keep_event,
    ("postgres", "age"): translate_age,
    ("postgres", "date_bin"): translate_date_bin,
    ("tsql", "date_bucket"): translate_date_bucket,
    **dict.fromkeys((("spark", "next_day"), ("snowflake", "next_day")), translate_next_day),
    **dict.fromkeys((("bigquery", "parse_timestamp"), ("bigquery", "parse_datetime")), _parse_moment_reversed),
    ("snowflake", "try_to_date"): _parse_date,
    ("snowflake", "convert_timezone"): _convert_zone,
    ("snowflake", "timeadd"): _add_time,
    ("spark", "date_part"): _take_part,
    ("tsql", "choose"): _choose,
    ("spark", "format_number"): translate_format_number,
    **dict.fromkeys((("spark", "format_string"), ("spark", "printf")), translate_printf),
    **dict.fromkeys((("bigquery", "format"), ("postgres", "format")), translate_printf),
    **dict.fromkeys((("bigquery", "regexp_extract"), ("bigquery", "regexp_substr")), translate_regexp_extract),
    **dict.fromkeys((("spark", "regexp_extract"), ("spark", "regexp_substr")), translate_regexp_extract),
    **dict.fromkeys((("snowflake", "regexp_substr"), ("postgres", "regexp_substr")), translate_regexp_extract),
}  # fmt: skip
"""The rules of functions by dialect and name; the parser keeps their calls as they are written."""


def translate_named_call(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate a function that the parser keeps by name. Raises QueryRejected for unknown ones."""
    name = (self.dialect, normalize_name(node.name))
    rule = NAMED.get(name)
    made = translate_equivalent(self, node) if rule is None else rule(self, node)
    if made is None and rule is None:
        made = _translate_aggregate_call(self, node, name)
    if made is not None:
        return made
    if is_moment_call(node) or node.name.upper() == BEST_EXPERT or find_interval_end(node) is not None:
        return node
    same = _SAME[self.dialect].get(name[1])
    if same is not None:
        return build_call(same, *node.expressions)
    if not isinstance(node.parent, exp.WithinGroup):
        self.refuse_unknown(node)
    return node


def _translate_aggregate_call(self: DialectText, node: exp.Expr, name: tuple[str, str]) -> exp.Expr | None:
    """Translate the aggregates, quantifiers and moments that the parser takes for calls; None for other calls."""
    items = node.expressions
    if name in _QUANTIFIED and len(items) == 1:
        quantified = _QUANTIFIED[name](this=exp.Paren(this=items[0]))
        if is_parameter(items[0]) or isinstance(node.parent, (exp.EQ, exp.NEQ)):
            return translate_any(self, quantified)
    if name in _AGGREGATES and len(items) == 1:
        return _AGGREGATES[name](this=items[0])
    if name in _CHOICES and len(items) == 2:
        return exp.ArgMax(this=items[0], expression=items[1])
    return exp.CurrentTimestamp() if name in _NOW and not items else None
