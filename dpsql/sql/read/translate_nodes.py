"""What becomes of another dialect's tree in DuckDB's SQL, node by node.

Claim: what is read means in DuckDB what it means where it was written, but that what fails there does not fail
here, that texts are compared without a collation, and that numbers within texts are DuckDB's.
Why: each node and each of its arguments is named, and all that differs between dialects is either written out or
refused; nothing is left to the generator's own idea of a translation.
Source: the reference manuals of PostgreSQL 17, Spark 4 SQL, Snowflake, GoogleSQL and Transact-SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import fold
from dpsql.sql.read.dialect_nodes import CALLS, READ, TITLES
from dpsql.sql.read.experts import NAME as BEST_EXPERT
from dpsql.sql.read.interval_calls import which_end
from dpsql.sql.read.regressions import is_moment_call
from dpsql.sql.read.rejection import Source

_WHOLE = frozenset({exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_MOMENTS = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME2})
_REAL = frozenset({exp.DType.DOUBLE, exp.DType.DECIMAL, exp.DType.FLOAT})
_LARGE = ("year", "quarter", "month", "day")
_SMALL = ("hour", "minute")
_OF_NULLS = frozenset({"snowflake", "bigquery"})
"""The dialects whose GREATEST and LEAST are NULL where one of their arguments is."""
_OF_TEXT = (exp.Left, exp.Right, exp.Length)
_OF_DATES = (exp.Year, exp.Month, exp.Day, exp.DayOfYear, exp.DateDiff)
"""Functions whose argument some parsers wrap in a conversion of their own."""
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
"""Most nodes that are written out twice: within each other they would double the text without end."""
_DUCKDB = "write it in DuckDB's SQL and leave out dialect"
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.TimeToStr: "write DATE_TRUNC('month', x), or EXTRACT(YEAR FROM x) and EXTRACT(MONTH FROM x)",
}
"""What to write for a function that is not read."""


@dataclass(frozen=True, slots=True)
class Translator:
    """Reads the trees of one dialect's text."""

    source: Source
    dialect: str

    def read(self, tree: exp.Expr) -> None:
        """Makes the tree one of DuckDB's, in place. Raises QueryRejected at what is not read."""
        for node in reversed(list(tree.bfs())):
            self._check(node)
            rule = _RULES.get(type(node))
            made = rule(self, node) if rule is not None else self._call(node)
            if made is not node:
                node.replace(made)

    def refuse(self, node: exp.Expr, code: str, message: str, hint: str | None = _DUCKDB) -> NoReturn:
        """Refuses a node in its own dialect's name."""
        self.source.refuse(node, code, f"{message} in {TITLES[self.dialect]}", hint)

    def _check(self, node: exp.Expr) -> None:
        known = READ.get(type(node))
        if known is None:
            self._refuse_unknown(node)
        self.source.take(node, *known)

    def _refuse_unknown(self, node: exp.Expr) -> NoReturn:
        """Refuse a node that is not known to mean the same in DuckDB, by the name that the text gives it."""
        is_function = isinstance(node, exp.Func)
        name = self.source.called(node) if is_function else node.key.upper()
        self.source.refuse(
            node,
            "function" if is_function else "clause",
            f"{name} is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _INSTEAD.get(type(node), _DUCKDB),
        )

    def _call(self, node: exp.Expr) -> exp.Expr:
        name = CALLS.get(type(node))
        if name is None:
            return node
        found: list[exp.Expr] = []
        for key in READ[type(node)]:
            value = node.args.get(key)
            found += value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else []
        return called(name, *found)


def called(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call that is written as it is named."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def _bare(node: exp.Expr | None) -> exp.Expr | None:
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return node


def _is_whole(node: exp.Expr | None) -> bool:
    """Whether a node is a whole number that the query says, not below zero."""
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()


def _fractional(node: exp.Expr | None, dialect: str) -> bool:
    """Whether the type of a number is evidently none of whole numbers."""
    node = _bare(node)
    match node:
        case exp.Literal():
            return not node.is_string and not str(node.this).isdigit()
        case exp.Cast():
            return node.to.this in _REAL
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return _fractional(node.this, dialect) or _fractional(node.expression, dialect)
        case exp.Avg():
            return dialect == "postgres" or _fractional(node.this, dialect)
        case exp.Sum() | exp.Min() | exp.Max():
            return _fractional(node.this, dialect)
        case exp.Anonymous():
            return node.this in ("sqrt", "exp", "ln")
        case _:
            return False


def _div(self: Translator, node: exp.Expr) -> exp.Expr:
    sides = (node.this, node.expression)
    if node.args.get("typed") and not any(_fractional(side, self.dialect) for side in sides):
        self.refuse(
            node,
            "type",
            "/ drops the remainder of whole numbers",
            "say which is meant: x / CAST(y AS DECIMAL(18, 3))",
        )
    return exp.Div(this=sides[0], expression=sides[1])


def _quotient(_: Translator, node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Div(this=exp.Paren(this=node.this), expression=exp.Paren(this=node.expression)))


def _avg(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql" and not _fractional(node.this, self.dialect):
        self.refuse(
            node,
            "type",
            "AVG drops the remainder of whole numbers",
            "say which is meant: AVG(CAST(x AS FLOAT))",
        )
    return node


def _pow(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql" and not _fractional(node.this, self.dialect):
        self.refuse(
            node,
            "type",
            "POWER drops the remainder of whole numbers",
            "say which is meant: POWER(CAST(x AS FLOAT), y)",
        )
    return called("pow", node.this, node.expression)


def _add(self: Translator, node: exp.Expr) -> exp.Expr:
    """T-SQL puts texts together by +; a text that is no number makes it so, whatever is beside it."""
    if self.dialect == "tsql" and any(map(_is_text, (node.this, node.expression))):
        return exp.DPipe(this=node.this, expression=node.expression, safe=True)
    return node


def _is_text(node: exp.Expr | None) -> bool:
    node = _bare(node)
    if isinstance(node, exp.DPipe):
        return True
    if not isinstance(node, exp.Literal) or not node.is_string:
        return False
    return not any(letter.isdigit() for letter in str(node.this)) and bool(str(node.this).strip())


def _length(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql":
        self.refuse(node, "function", "LEN leaves out spaces at the end")
    return called("length", node.this)


def _strpos(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "tsql":
        self.refuse(node, "function", "CHARINDEX ignores case")
    return called("strpos", node.this, node.args["substr"])


def _concat(_: Translator, node: exp.Expr) -> exp.Expr:
    parts = node.expressions
    if node.args.get("coalesce"):
        return called("concat", *parts)
    together = parts[0] if parts else exp.Literal.string("")
    for part in parts[1:]:
        together = exp.DPipe(this=together, expression=part, safe=True)
    return exp.Paren(this=together)


def _extreme(self: Translator, node: exp.Expr) -> exp.Expr:
    parts = [node.this, *node.expressions]
    found = called(node.key, *parts)
    if self.dialect not in _OF_NULLS:
        return found
    if sum(1 for part in parts for _ in part.walk()) > _MOST_COPIED:
        self.refuse(
            node, "too_long", f"{node.key.upper()} of so much would have to be written out twice, for NULLs"
        )
    known = exp.and_(
        *(exp.Not(this=exp.Is(this=exp.Paren(this=part.copy()), expression=exp.Null())) for part in parts)
    )
    return exp.Case(ifs=[exp.If(this=known, true=found)])


def _side(self: Translator, node: exp.Expr) -> exp.Expr:
    if not _is_whole(node.expression):
        self.refuse(node, "constant", f"{node.key.upper()} is read with a whole number, from 0,")
    return called(node.key, node.this, node.expression)


def _substring(self: Translator, node: exp.Expr) -> exp.Expr:
    start, length = node.args.get("start"), node.args.get("length")
    if not (isinstance(start, exp.Literal) and _is_whole(start) and int(start.name)) or not (
        length is None or _is_whole(length)
    ):
        self.refuse(
            node, "constant", "SUBSTRING is read with whole numbers, a start from 1 and a length from 0,"
        )
    return called("substring", *(part for part in (node.this, start, length) if part is not None))


def _round(self: Translator, node: exp.Expr) -> exp.Expr:
    digits = node.args.get("decimals")
    if digits is not None and not _is_whole(digits):
        self.refuse(node, "constant", "ROUND is read with a whole number of digits")
    return called("round", *(part for part in (node.this, digits) if part is not None))


def _trim(self: Translator, node: exp.Expr) -> exp.Expr:
    if self.dialect == "bigquery":
        self.refuse(node, "function", "TRIM takes away every kind of space")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
    return called(name, node.this)


def _like(self: Translator, node: exp.Expr) -> exp.Expr:
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or isinstance(node.parent, exp.Escape):
        return node
    special = "\\" if self.dialect in _ESCAPING else "["
    if special in str(pattern.this) and self.dialect != "snowflake":
        self.refuse(
            node, "constant", f"{special} has a meaning of its own in a pattern", "say ESCAPE '!', or compare"
        )
    return node


def _is(_: Translator, node: exp.Expr) -> exp.Expr:
    """IS NOT, which one parser reads as an IS that is negated and the others as a NOT."""
    if not node.args.get("negate"):
        return node
    return exp.Paren(this=exp.Not(this=exp.Is(this=node.this, expression=node.expression)))


def _between(self: Translator, node: exp.Expr) -> exp.Expr:
    """BETWEEN SYMMETRIC takes its ends in either order."""
    if not node.args.get("symmetric"):
        return node
    if sum(1 for _ in node.walk()) > _MOST_COPIED:
        self.refuse(node, "too_long", "BETWEEN SYMMETRIC of so much would have to be written out twice")
    value, low, high = (node.args[name] for name in ("this", "low", "high"))
    ways = [
        exp.Between(this=_copy(value), low=_copy(a), high=_copy(b)) for a, b in ((low, high), (high, low))
    ]
    return exp.Paren(this=exp.Or(this=ways[0], expression=ways[1]))


def _cast(self: Translator, node: exp.Expr) -> exp.Expr:
    kind, digits = node.args["to"].this, node.args["to"].expressions
    if kind is exp.DType.TEXT and self.dialect == "tsql" and isinstance(node.parent, _OF_TEXT):
        return exp.Paren(this=node.this)  # the parser's own
    if kind in _WHOLE:
        whole = _bare(node.this)
        named = isinstance(whole, exp.Anonymous) and whole.this in ("round", "floor", "ceil")
        if not (named or _is_whole(whole) or isinstance(whole, exp.Count) or self.dialect == "postgres"):
            self.refuse(
                node,
                "type",
                "a CAST to whole numbers has a rounding of its own",
                "CAST(ROUND(x) AS …), or FLOOR",
            )
    elif kind is exp.DType.FLOAT and self.dialect == "tsql" and not digits:
        kind = exp.DType.DOUBLE
    elif kind in _MOMENTS and not digits:
        kind = exp.DType.TIMESTAMP
    elif kind not in (*_REAL, exp.DType.DATE) or bool(digits) != (kind is exp.DType.DECIMAL):
        self.refuse(
            node,
            "type",
            f"{node.args['to'].sql()} is a type of its own",
            "CAST to whole numbers, DOUBLE, DECIMAL(18, 3), DATE or TIMESTAMP without a zone",
        )
    return exp.Cast(this=node.this, to=exp.DataType(this=kind, expressions=digits, nested=False))


def _unit(self: Translator, node: exp.Expr, unit: exp.Expr | None, known: tuple[str, ...]) -> str:
    name = "day" if unit is None else fold(unit.name)
    name = {"doy": "dayofyear"}.get(name, name)
    if name not in known:
        self.refuse(node, "constant", f"{name} has a meaning of its own", f"{', '.join(known)} are read")
    return name


def _extract(self: Translator, node: exp.Expr) -> exp.Expr:
    unit = _unit(self, node, node.this, (*_LARGE, "dayofyear", *_SMALL))
    return called(unit, node.expression)


def _truncated(self: Translator, node: exp.Expr) -> exp.Expr:
    weeks = ("week",) if self.dialect in ("postgres", "spark", "snowflake") else ()
    unit = _unit(self, node, node.args.get("unit"), (*_LARGE, *weeks, *_SMALL))
    return called("date_trunc", exp.Literal.string(unit), node.this)


def _difference(self: Translator, node: exp.Expr) -> exp.Expr:
    known = ("day",) if self.dialect == "spark" else (*_LARGE, *_SMALL)
    unit = _unit(self, node, node.args.get("unit"), known)
    return called("date_diff", exp.Literal.string(unit), node.expression, node.this)


def _moved(self: Translator, node: exp.Expr) -> exp.Expr:
    unit = _unit(self, node, node.args.get("unit"), (*_LARGE, "week", *_SMALL))
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


def _to_date(self: Translator, node: exp.Expr) -> exp.Expr:
    """A conversion that the parser puts around a date, and Spark's TO_DATE."""
    if isinstance(node.parent, _OF_DATES) and self.dialect in ("spark", "tsql"):
        inner: exp.Expr = node.this
        return inner
    if self.dialect != "spark":
        self.refuse(node, "function", "a conversion to a date reads formats of its own", "CAST(x AS DATE)")
    return exp.Cast(this=node.this, to=exp.DataType(this=exp.DType.DATE, nested=False))


def _coalesce(self: Translator, node: exp.Expr) -> exp.Expr:
    if node.args.get("is_null") and not all(map(_is_whole, node.expressions)):
        self.refuse(node, "function", "ISNULL has the type of its first argument", "COALESCE(x, y)")
    return called("coalesce", node.this, *node.expressions)


def _group(_: Translator, node: exp.Expr) -> exp.Expr:
    """GROUP BY x WITH ROLLUP, as Spark writes it, is GROUP BY ROLLUP (x)."""
    for name in ("rollup", "cube"):
        for sets in node.args.get(name) or ():
            if not sets.expressions:
                sets.set("expressions", node.expressions)
                node.set("expressions", [])
    return node


def _width_bucket(self: Translator, node: exp.Expr) -> exp.Expr:
    """The number of the bucket of equal width that a value falls into, 0 below all and one more above all."""
    value, low, high, many = (node.args.get(name) for name in READ[exp.WidthBucket])
    if value is None or low is None or high is None or many is None:
        self.refuse(node, "constant", "WIDTH_BUCKET takes a value, two ends and a number of buckets")
    ends = [_number(end) for end in (low, high)]
    if None in ends or not _is_whole(many) or not (ends[0] or 0) < (ends[1] or 0) or not int(many.name):
        self.refuse(
            node,
            "constant",
            "WIDTH_BUCKET is read with constants, the lower end first, and a number of buckets,",
        )
    if len(list(value.walk())) > _MOST_COPIED:
        self.refuse(node, "too_long", "WIDTH_BUCKET of so much would have to be written out three times")
    distance = exp.Paren(this=exp.Sub(this=_copy(value), expression=_copy(low)))
    width = exp.Paren(this=exp.Sub(this=_copy(high), expression=_copy(low)))
    share = exp.Div(this=exp.Mul(this=distance, expression=many.copy()), expression=width)
    one = exp.Literal.number(1)
    inside = exp.Add(this=called("floor", share), expression=one)
    branches = [
        exp.If(this=exp.LT(this=_copy(value), expression=_copy(low)), true=exp.Literal.number(0)),
        exp.If(
            this=exp.GTE(this=_copy(value), expression=_copy(high)),
            true=exp.Literal.number(int(many.name) + 1),
        ),
        exp.If(
            this=exp.Not(this=exp.Is(this=_copy(value), expression=exp.Null())),
            true=exp.Cast(this=inside, to=exp.DataType(this=exp.DType.BIGINT, nested=False)),
        ),
    ]
    return exp.Case(ifs=branches)


def _copy(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node.copy())


def _number(node: exp.Expr | None) -> float | None:
    """The number that a constant is."""
    sign = 1
    while isinstance(node, (exp.Paren, exp.Neg)):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    return sign * float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


_CALLED: Mapping[tuple[str, str], type[exp.AggFunc]] = {
    ("tsql", "var"): exp.Variance,
    ("tsql", "varp"): exp.VariancePop,
    ("tsql", "stdevp"): exp.StddevPop,
    ("spark", "std"): exp.Stddev,
    ("postgres", "every"): exp.LogicalAnd,
}
_CHOICES = {("postgres", "choose"), ("spark", "choose")}
"""Dialects that have no CHOOSE of their own: that of T-SQL takes the value at a place."""
"""Aggregates that the parser reads as calls like any other, by dialect and name."""
_NOW = {("spark", "now"), ("tsql", "getutcdate")}


_WITHIN_GROUP = frozenset({"postgres", "spark", "snowflake"})
"""The dialects in which PERCENTILE_CONT and PERCENTILE_DISC are aggregates; in the others they are windows."""
_QUANTILES = (exp.PercentileCont, exp.PercentileDisc)


def _within_group(self: Translator, node: exp.Expr) -> exp.Expr:
    """Write a share q WITHIN GROUP (ORDER BY x) as DuckDB's quantile of x and q; of PERCENTILE_CONT in a descending order, 1 - q."""
    call, order = node.this, node.expression
    if type(call) not in _QUANTILES or self.dialect not in _WITHIN_GROUP or len(order.expressions) != 1:
        self._refuse_unknown(call)
    (item,) = order.expressions
    share = call.this
    if item.args.get("desc"):
        if type(call) is exp.PercentileDisc:  # where q falls between two values it takes the other one
            self.source.refuse(
                node,
                "clause",
                "PERCENTILE_DISC in a descending order is not supported",
                "ORDER BY x with the share 1 - q",
            )
        share = exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))
    made: exp.Expr = type(call)(this=item.this, expression=share)
    return made


def _any(self: Translator, node: exp.Expr) -> exp.Expr:
    """`= ANY($1)` of a parameter, as clients of PostgreSQL bind a list; what a list of SQL is differs in DuckDB."""
    if self.dialect != "postgres":
        self.source.refuse(
            node,
            "clause",
            f"ANY is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _DUCKDB,
        )
    if not _is_parameter(node.this):
        self.source.refuse(node, "clause", "ANY of PostgreSQL's takes a parameter here", "x IN (1, 2)")
    return node


def _is_parameter(node: exp.Expr | None) -> bool:
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Parameter)


_QUANTIFIED: Mapping[tuple[str, str], type[exp.Expr]] = {
    ("postgres", "all"): exp.All,
    ("postgres", "some"): exp.Any,
}
"""ALL and SOME of a list, which the parser takes for calls."""


def _anonymous(self: Translator, node: exp.Expr) -> exp.Expr:
    name = (self.dialect, fold(node.name))
    if name in _QUANTIFIED and len(node.expressions) == 1 and _is_parameter(node.expressions[0]):
        return _QUANTIFIED[name](this=exp.Paren(this=node.expressions[0]))
    if name in _CALLED and len(node.expressions) == 1:
        return _CALLED[name](this=node.expressions[0])
    if name in _CHOICES and len(node.expressions) == 2:
        return exp.ArgMax(this=node.expressions[0], expression=node.expressions[1])
    if is_moment_call(node) or node.name.upper() == BEST_EXPERT:
        return node
    if name in _NOW and not node.expressions:
        return exp.CurrentTimestamp()
    if which_end(node) is None:
        self.source.refuse(
            node,
            "function",
            f"the function {node.name} is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _DUCKDB,
        )
    return node


def _named_in_schema(self: Translator, node: exp.Expr) -> exp.Expr:
    """A name in the schema that the dialect has by default, which is main in DuckDB."""
    schema = node.args.get("db")
    if schema is not None and fold(schema.name) == _DEFAULT_SCHEMAS.get(self.dialect):
        node.set("db", exp.to_identifier("main"))
    return node


_RULES: Mapping[type[exp.Expr], Callable[[Translator, exp.Expr], exp.Expr]] = {
    exp.Any: _any,
    exp.WithinGroup: _within_group,
    exp.Div: _div,
    exp.SafeDivide: _quotient,
    exp.Avg: _avg,
    exp.Pow: _pow,
    exp.Add: _add,
    exp.Length: _length,
    exp.StrPosition: _strpos,
    exp.Concat: _concat,
    exp.Greatest: _extreme,
    exp.Least: _extreme,
    exp.Left: _side,
    exp.Right: _side,
    exp.Substring: _substring,
    exp.Round: _round,
    exp.Trim: _trim,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Is: _is,
    exp.Between: _between,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    **dict.fromkeys((exp.DateTrunc, exp.TimestampTrunc, exp.DatetimeTrunc), _truncated),
    **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff), _difference),
    **dict.fromkeys(
        (exp.DateAdd, exp.DateSub, exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TsOrDsAdd), _moved
    ),
    exp.Anonymous: _anonymous,
    exp.Group: _group,
    exp.WidthBucket: _width_bucket,
    **dict.fromkeys((exp.Table, exp.Column), _named_in_schema),
    exp.Fetch: lambda _, node: exp.Limit(expression=node.args["count"]),
    exp.National: lambda _, node: exp.Literal.string(node.name),
    **dict.fromkeys((exp.TsOrDsToDate, exp.TimeStrToTime), _to_date),
    exp.Ln: lambda _, node: called("ln", called("greatest", node.this, exp.Literal.number(0))),
    exp.Coalesce: _coalesce,
    exp.CountIf: lambda _, node: exp.Count(
        this=exp.Case(ifs=[exp.If(this=node.this, true=exp.Literal.number(1))]), big_int=True
    ),
    exp.Placeholder: lambda _, node: exp.Parameter(this=exp.Literal.number(node.name.removeprefix("p"))),
}  # fmt: skip
