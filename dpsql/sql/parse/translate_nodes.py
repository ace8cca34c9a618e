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
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.policy.request.dialects import TITLES
from dpsql.sql.parse.dialect import (
    CALLS,
    FRACTIONAL_TYPES,
    READ,
    find_number,
    is_fractional,
    is_parameter,
    is_text,
    is_whole_number,
    unwrap_sign,
)
from dpsql.sql.parse.own_calls import NAME as BEST_EXPERT
from dpsql.sql.parse.own_calls import find_interval_end
from dpsql.sql.parse.regressions import is_moment_call
from dpsql.sql.parse.rejection import QueryText, format_sql

_WHOLE = frozenset({exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_MOMENTS = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME2})
_LARGE = ("year", "quarter", "month", "day")
_SMALL = ("hour", "minute")
_OF_NULLS = frozenset({"snowflake", "bigquery"})
"""The dialects whose GREATEST and LEAST are NULL if any argument is NULL."""
_OF_TEXT = (exp.Left, exp.Right, exp.Length)
_OF_DATES = (exp.Year, exp.Month, exp.Day, exp.DayOfYear, exp.DateDiff)
"""Functions whose argument some parsers wrap in a conversion."""
_DEFAULT_SCHEMAS: Mapping[str, str] = {
    "postgres": "public",
    "snowflake": "public",
    "spark": "default",
    "tsql": "dbo",
}
"""The schema in which a dialect looks for tables that are named without one."""
_ESCAPING = frozenset({"postgres", "spark", "bigquery"})
"""The dialects in which a backslash escapes in a pattern of LIKE."""
_MOST_COPIED = 100
"""The most nodes of an expression that is copied: nested copies would double the text each time."""
_DUCKDB = "write it in DuckDB's SQL and leave out dialect"
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.TimeToStr: "write DATE_TRUNC('month', x), or EXTRACT(YEAR FROM x) and EXTRACT(MONTH FROM x)",
}
"""The hints for functions that are not supported."""


@dataclass(frozen=True, slots=True)
class Translator:
    """Translate the trees of one dialect's text."""

    source: QueryText
    dialect: str

    def translate_in_place(self, tree: exp.Expr) -> None:
        """Translate the tree into DuckDB's, in place. Raises QueryRejected at a node that is not supported."""
        for node in reversed(list(tree.bfs())):
            self._check_node(node)
            rule = _RULES.get(type(node))
            made = rule(self, node) if rule is not None else self._translate_call(node)
            if made is not node:
                node.replace(made)

    def refuse_in_dialect(
        self, node: exp.Expr, code: str, message: str, hint: str | None = _DUCKDB
    ) -> NoReturn:
        """Refuse a node in its own dialect's name."""
        self.source.refuse(node, code, f"{TITLES[self.dialect]}: {message}", hint)

    def _check_node(self, node: exp.Expr) -> None:
        known = READ.get(type(node))
        if known is None:
            self._refuse_unknown(node)
        self.source.take_arguments(node, *known)

    def _refuse_unknown(self, node: exp.Expr) -> NoReturn:
        """Refuse a node that is not known to mean the same in DuckDB: a call by its name in the text, else its SQL."""
        is_function = isinstance(node, exp.Func)
        name = self.source.get_function_name(node) if is_function else ""
        if not self.source.has_call(name):
            path = isinstance(node, (exp.JSONPath, exp.JSONPathPart))
            extraction = node.find_ancestor(exp.JSONExtract, exp.JSONExtractScalar) if path else None
            name = format_sql(extraction or node, self.dialect)
        self.source.refuse(
            node,
            "function" if is_function else "clause",
            f"{name} is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _INSTEAD.get(type(node), _DUCKDB),
        )

    def _translate_call(self, node: exp.Expr) -> exp.Expr:
        name = CALLS.get(type(node))
        if name is None:
            return node
        found: list[exp.Expr] = []
        for key in READ[type(node)]:
            value = node.args.get(key)
            found += value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else []
        return build_call(name, *found)


def build_call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Build a call with its name as it is written."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def _translate_division(self: Translator, node: exp.Expr) -> exp.Expr:
    sides = (node.this, node.expression)
    if node.args.get("typed") and not any(is_fractional(side, self.dialect) for side in sides):
        self.refuse_in_dialect(
            node,
            "type",
            "/ discards the remainder of whole numbers",
            "write the type that is meant: x / CAST(y AS DECIMAL(18, 3))",
        )
    return exp.Div(this=sides[0], expression=sides[1])


def _translate_safe_division(_: Translator, node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Div(this=exp.Paren(this=node.this), expression=exp.Paren(this=node.expression)))


def _translate_average(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql" and not is_fractional(node.this, self.dialect):
        self.refuse_in_dialect(
            node,
            "type",
            "AVG discards the remainder of whole numbers",
            "write the type that is meant: AVG(CAST(x AS FLOAT))",
        )
    return node


def _translate_power(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql" and not is_fractional(node.this, self.dialect):
        self.refuse_in_dialect(
            node,
            "type",
            "POWER discards the remainder of whole numbers",
            "write the type that is meant: POWER(CAST(x AS FLOAT), y)",
        )
    return build_call("pow", node.this, node.expression)


def _translate_addition(self: Translator, node: exp.Expr) -> exp.Expr:
    """Translate T-SQL's + between texts to ||; a text that is no number makes it a concatenation."""
    if self.dialect == "tsql" and any(map(is_text, (node.this, node.expression))):
        return exp.DPipe(this=node.this, expression=node.expression, safe=True)
    return node


def _translate_length(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql":
        self.refuse_in_dialect(node, "function", "LEN does not count spaces at the end")
    return build_call("length", node.this)


def _translate_text_position(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql":
        self.refuse_in_dialect(node, "function", "CHARINDEX ignores case")
    return build_call("strpos", node.this, node.args["substr"])


def _translate_concatenation(_: Translator, node: exp.Expr) -> exp.Expr:
    parts = node.expressions
    if node.args.get("coalesce"):
        return build_call("concat", *parts)
    together = parts[0] if parts else exp.Literal.string("")
    for part in parts[1:]:
        together = exp.DPipe(this=together, expression=part, safe=True)
    return exp.Paren(this=together)


def _translate_extreme(self: Translator, node: exp.Expr) -> exp.Expr:
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


def _translate_text_side(self: Translator, node: exp.Expr) -> exp.Expr:
    if not is_whole_number(node.expression):
        self.refuse_in_dialect(
            node, "constant", f"{node.key.upper()} needs a constant whole number that is not negative"
        )
    return build_call(node.key, node.this, node.expression)


def _translate_substring(self: Translator, node: exp.Expr) -> exp.Expr:
    start, length = node.args.get("start"), node.args.get("length")
    if not (isinstance(start, exp.Literal) and is_whole_number(start) and int(start.name)) or not (
        length is None or is_whole_number(length)
    ):
        self.refuse_in_dialect(
            node,
            "constant",
            "SUBSTRING needs constant whole numbers, a start of at least 1 and a length of at least 0",
        )
    return build_call("substring", *(part for part in (node.this, start, length) if part is not None))


def _translate_round(self: Translator, node: exp.Expr) -> exp.Expr:
    digits = node.args.get("decimals")
    if digits is not None and not is_whole_number(digits):
        self.refuse_in_dialect(node, "constant", "ROUND needs a constant number of digits")
    return build_call("round", *(part for part in (node.this, digits) if part is not None))


def _translate_trim(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "bigquery":
        self.refuse_in_dialect(node, "function", "TRIM removes every kind of space")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
    return build_call(name, node.this)


def _translate_like(self: Translator, node: exp.Expr) -> exp.Expr:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or isinstance(node.parent, exp.Escape):
        return node
    special = "\\" if self.dialect in _ESCAPING else "["
    if special in str(pattern.this) and self.dialect != "snowflake":
        self.refuse_in_dialect(
            node,
            "constant",
            f"{special} has a meaning of its own in a pattern",
            "add ESCAPE '!', or compare by =",
        )
    return node


def _translate_is(_: Translator, node: exp.Expr) -> exp.Expr:
    """Translate IS NOT, which one parser reads as a negated IS and the others as a NOT."""
    if not node.args.get("negate"):
        return node
    return exp.Paren(this=exp.Not(this=exp.Is(this=node.this, expression=node.expression)))


def _translate_between(self: Translator, node: exp.Expr) -> exp.Expr:
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


def _translate_cast(self: Translator, node: exp.Expr) -> exp.Expr:
    kind, digits = node.args["to"].this, node.args["to"].expressions
    if kind is exp.DType.TEXT and self.dialect == "tsql" and isinstance(node.parent, _OF_TEXT):
        return exp.Paren(this=node.this)  # the parser's own
    if kind in _WHOLE:
        whole = unwrap_sign(node.this)
        named = isinstance(whole, exp.Anonymous) and whole.this in ("round", "floor", "ceil")
        if not (
            named or is_whole_number(whole) or isinstance(whole, exp.Count) or self.dialect == "postgres"
        ):
            self.refuse_in_dialect(
                node,
                "type",
                "a CAST to whole numbers rounds differently from DuckDB",
                "write CAST(ROUND(x) AS …), or FLOOR",
            )
    elif kind is exp.DType.FLOAT and self.dialect == "tsql" and not digits:
        kind = exp.DType.DOUBLE
    elif kind in _MOMENTS and not digits:
        kind = exp.DType.TIMESTAMP
    elif kind not in (*FRACTIONAL_TYPES, exp.DType.DATE) or bool(digits) != (kind is exp.DType.DECIMAL):
        self.refuse_in_dialect(
            node,
            "type",
            f"DuckDB has no type that matches {node.args['to'].sql()}",
            "use whole numbers, DOUBLE, DECIMAL(18, 3), DATE or TIMESTAMP without a zone",
        )
    return exp.Cast(this=node.this, to=exp.DataType(this=kind, expressions=digits, nested=False))


def _require_date_unit(
    self: Translator, node: exp.Expr, unit: exp.Expr | None, known: tuple[str, ...]
) -> str:
    name = "day" if unit is None else normalize_name(unit.name)
    name = {"doy": "dayofyear"}.get(name, name)
    if name not in known:
        self.refuse_in_dialect(
            node, "constant", f"the unit {name} differs from DuckDB's", f"use one of {', '.join(known)}"
        )
    return name


def _translate_extract(self: Translator, node: exp.Expr) -> exp.Expr:
    unit = _require_date_unit(self, node, node.this, (*_LARGE, "dayofyear", *_SMALL))
    return build_call(unit, node.expression)


def _translate_date_truncation(self: Translator, node: exp.Expr) -> exp.Expr:
    weeks = ("week",) if self.dialect in ("postgres", "spark", "snowflake") else ()
    unit = _require_date_unit(self, node, node.args.get("unit"), (*_LARGE, *weeks, *_SMALL))
    return build_call("date_trunc", exp.Literal.string(unit), node.this)


def _translate_date_difference(self: Translator, node: exp.Expr) -> exp.Expr:
    known = ("day",) if self.dialect == "spark" else (*_LARGE, *_SMALL)
    unit = _require_date_unit(self, node, node.args.get("unit"), known)
    return build_call("date_diff", exp.Literal.string(unit), node.expression, node.this)


def _translate_date_addition(self: Translator, node: exp.Expr) -> exp.Expr:
    unit = _require_date_unit(self, node, node.args.get("unit"), (*_LARGE, "week", *_SMALL))
    count, back = node.expression, isinstance(node, (exp.DateSub, exp.DatetimeSub))
    # The parser writes Spark's DATE_SUB(d, n) as the sum of d and n * -1.
    if (
        isinstance(node, exp.TsOrDsAdd)
        and isinstance(count, exp.Mul)
        and isinstance(count.expression, exp.Neg)
    ):
        count, back = count.this, True
    moment: exp.Expr = exp.Paren(this=node.this)
    if isinstance(node, exp.TsOrDsAdd):
        moment = exp.Cast(this=moment, to=exp.DataType(this=exp.DType.DATE, nested=False))
    if not isinstance(count, exp.Literal):
        count = exp.Paren(this=count)
    span = exp.Interval(this=count, unit=exp.Var(this=unit.upper()))
    return exp.Paren(this=(exp.Sub if back else exp.Add)(this=moment, expression=span))


def _translate_to_date(self: Translator, node: exp.Expr) -> exp.Expr:
    """Return a conversion that the parser puts around a date, and Spark's TO_DATE."""
    if isinstance(node.parent, _OF_DATES) and self.dialect in ("spark", "tsql"):
        inner: exp.Expr = node.this
        return inner
    if self.dialect != "spark":
        self.refuse_in_dialect(
            node,
            "function",
            "a conversion to a date reads other formats than DuckDB",
            "write CAST(x AS DATE)",
        )
    return exp.Cast(this=node.this, to=exp.DataType(this=exp.DType.DATE, nested=False))


def _translate_coalesce(self: Translator, node: exp.Expr) -> exp.Expr:
    if node.args.get("is_null") and not all(map(is_whole_number, node.expressions)):
        self.refuse_in_dialect(
            node, "function", "ISNULL returns the type of its first argument", "write COALESCE(x, y)"
        )
    return build_call("coalesce", node.this, *node.expressions)


def _translate_group_by(_: Translator, node: exp.Expr) -> exp.Expr:
    """Translate Spark's GROUP BY x WITH ROLLUP to GROUP BY ROLLUP (x)."""
    for name in ("rollup", "cube"):
        for sets in node.args.get(name) or ():
            if not sets.expressions:
                sets.set("expressions", node.expressions)
                node.set("expressions", [])
    return node


def _translate_width_bucket(self: Translator, node: exp.Expr) -> exp.Expr:
    """Return the number of the bucket of equal width that a value falls into, 0 below all and one more above all."""
    value, low, high, many = (node.args.get(name) for name in READ[exp.WidthBucket])
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


_CALLED: Mapping[tuple[str, str], type[exp.AggFunc]] = {
    ("tsql", "var"): exp.Variance,
    ("tsql", "varp"): exp.VariancePop,
    ("tsql", "stdevp"): exp.StddevPop,
    ("spark", "std"): exp.Stddev,
    ("postgres", "every"): exp.LogicalAnd,
}
"""Aggregates that the parser reads as plain calls, by dialect and name."""
_CHOICES = {("postgres", "choose"), ("spark", "choose")}
"""The dialects without a CHOOSE of their own; CHOOSE of T-SQL returns the value at an index."""
_NOW = {("spark", "now"), ("tsql", "getutcdate")}


_WITHIN_GROUP = frozenset({"postgres", "spark", "snowflake"})
"""The dialects in which PERCENTILE_CONT and PERCENTILE_DISC are aggregates; in the others they are windows."""
_QUANTILES = (exp.PercentileCont, exp.PercentileDisc)


def _translate_within_group(self: Translator, node: exp.Expr) -> exp.Expr:
    """Write a share q WITHIN GROUP (ORDER BY x) as DuckDB's quantile of x and q; of PERCENTILE_CONT in a descending order, 1 - q."""
    call, order = node.this, node.expression
    if type(call) not in _QUANTILES or self.dialect not in _WITHIN_GROUP or len(order.expressions) != 1:
        self._refuse_unknown(call)
    (item,) = order.expressions
    share = call.this
    if item.args.get("desc"):
        if type(call) is exp.PercentileDisc:  # if q falls between two values, it takes the other one
            self.source.refuse(
                node,
                "clause",
                "PERCENTILE_DISC in a descending order is not supported",
                "write ORDER BY x with the share 1 - q",
            )
        share = exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))
    made: exp.Expr = type(call)(this=item.this, expression=share)
    return made


def _translate_any(self: Translator, node: exp.Expr) -> exp.Expr:
    """Translate PostgreSQL's `= ANY($1)`, as clients bind a list; a list in SQL means something else in DuckDB."""
    if self.dialect != "postgres":
        self.source.refuse(
            node,
            "clause",
            f"ANY is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _DUCKDB,
        )
    if not is_parameter(node.this):
        self.source.refuse(
            node, "clause", "ANY from PostgreSQL may only take a parameter", "write x IN (1, 2)"
        )
    return node


_QUANTIFIED: Mapping[tuple[str, str], type[exp.Expr]] = {
    ("postgres", "all"): exp.All,
    ("postgres", "some"): exp.Any,
}
"""ALL and SOME of a list, which the parser takes for calls."""


def _translate_named_call(self: Translator, node: exp.Expr) -> exp.Expr:
    name = (self.dialect, normalize_name(node.name))
    if name in _QUANTIFIED and len(node.expressions) == 1 and is_parameter(node.expressions[0]):
        return _QUANTIFIED[name](this=exp.Paren(this=node.expressions[0]))
    if name in _CALLED and len(node.expressions) == 1:
        return _CALLED[name](this=node.expressions[0])
    if name in _CHOICES and len(node.expressions) == 2:
        return exp.ArgMax(this=node.expressions[0], expression=node.expressions[1])
    if is_moment_call(node) or node.name.upper() == BEST_EXPERT:
        return node
    if name in _NOW and not node.expressions:
        return exp.CurrentTimestamp()
    if find_interval_end(node) is None:
        self.source.refuse(
            node,
            "function",
            f"the function {node.name} is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _DUCKDB,
        )
    return node


def _translate_schema(self: Translator, node: exp.Expr) -> exp.Expr:
    """Return a name in the schema that the dialect has by default, which is main in DuckDB."""
    schema = node.args.get("db")
    if schema is not None and normalize_name(schema.name) == _DEFAULT_SCHEMAS.get(self.dialect):
        node.set("db", exp.to_identifier("main"))
    return node


_RULES: Mapping[type[exp.Expr], Callable[[Translator, exp.Expr], exp.Expr]] = {
    exp.Any: _translate_any,
    exp.WithinGroup: _translate_within_group,
    exp.Div: _translate_division,
    exp.SafeDivide: _translate_safe_division,
    exp.Avg: _translate_average,
    exp.Pow: _translate_power,
    exp.Add: _translate_addition,
    exp.Length: _translate_length,
    exp.StrPosition: _translate_text_position,
    exp.Concat: _translate_concatenation,
    exp.Greatest: _translate_extreme,
    exp.Least: _translate_extreme,
    exp.Left: _translate_text_side,
    exp.Right: _translate_text_side,
    exp.Substring: _translate_substring,
    exp.Round: _translate_round,
    exp.Trim: _translate_trim,
    exp.Like: _translate_like,
    exp.ILike: _translate_like,
    exp.Is: _translate_is,
    exp.Between: _translate_between,
    exp.Cast: _translate_cast,
    exp.TryCast: _translate_cast,
    exp.Extract: _translate_extract,
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), _translate_date_truncation),
    **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff), _translate_date_difference),
    **dict.fromkeys(
        (exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TsOrDsAdd), _translate_date_addition
    ),
    exp.Anonymous: _translate_named_call,
    exp.Group: _translate_group_by,
    exp.WidthBucket: _translate_width_bucket,
    **dict.fromkeys((exp.Table, exp.Column), _translate_schema),
    exp.Fetch: lambda _, node: exp.Limit(expression=node.args["count"]),
    exp.National: lambda _, node: exp.Literal.string(node.name),
    **dict.fromkeys((exp.TsOrDsToDate, exp.TimeStrToTime), _translate_to_date),
    exp.Ln: lambda _, node: build_call("ln", build_call("greatest", node.this, exp.Literal.number(0))),
    exp.Coalesce: _translate_coalesce,
    exp.CountIf: lambda _, node: exp.Count(
        this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]), big_int=True
    ),
    exp.Placeholder: lambda _, node: exp.Parameter(this=exp.Literal.number(node.name.removeprefix("p"))),
}  # fmt: skip
