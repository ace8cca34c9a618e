"""Translate operators and casts whose result depends on types: division, means, powers, rounding and conversions.

A tree has no types. What is evident from the tree is written in DuckDB's SQL; the rest becomes a call of
`dpsql.sql.parse.typed_calls`, which is lowered by the types of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.dialect import FRACTIONAL_TYPES, is_text, is_whole_number, unwrap_sign
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.translate_texts import is_listed
from dpsql.sql.parse.typed_calls import (
    FIRST_TYPE,
    HALF_EVEN,
    MEAN,
    POWER,
    QUOTIENT,
    ROUNDED,
    SUM_OR_TEXT,
    TEXT,
    TRUNCATED,
    build_call,
    is_typed_call,
)

_SUM = "sum"
_KIND = "numeric kind"
"""Where a node holds its kind, and a query those of its columns."""
NUMERIC = "numeric"
"""Where a translated node says that PostgreSQL's value is a numeric, although DuckDB's is a whole number."""
_WHOLE = frozenset({exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.TINYINT})
_MOMENTS = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME, exp.DType.DATETIME2})
_INSTANTS = frozenset({exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ})
_TEXTS = frozenset({exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.NVARCHAR})
_UNCHANGED = frozenset({exp.DType.DATE, exp.DType.BOOLEAN, exp.DType.TIME, exp.DType.UUID})
_OF_TEXT = (exp.Left, exp.Right, exp.Length)
"""Functions whose argument some parsers wrap in a conversion to a text."""
_DECIMALS = {"bigquery": (38, 9), "spark": (10, 0), "tsql": (18, 0)}
"""The digits of a DECIMAL that names none."""
_DEFAULT_LENGTH = 30
"""The letters of a VARCHAR without a length in a cast of T-SQL."""
_SPAN_PART = re.compile(r"([+-]?\d{1,9})\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_SPAN_TEXT = re.compile(r"\s*[+-]?\d{1,9}\s*[a-z]+(\s+[+-]?\d{1,9}\s*[a-z]+)*\s*", re.ASCII | re.IGNORECASE)
_UNITS = {
    **dict.fromkeys(("year", "yr", "y"), ("month", 12)), **dict.fromkeys(("month", "mon"), ("month", 1)),
    **dict.fromkeys(("week", "w"), ("day", 7)), **dict.fromkeys(("day", "d"), ("day", 1)),
    **dict.fromkeys(("hour", "hr", "h"), ("second", 3_600)), **dict.fromkeys(("minute", "min", "m"), ("second", 60)),
    **dict.fromkeys(("second", "sec", "s"), ("second", 1)),
}  # fmt: skip
"""The units of lengths of time: the one that each is a multiple of, and how many."""
SPANS = "spans"
"""Where a length of time says which further units it has."""
_SAME_TYPE = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Paren, exp.Neg, exp.Min, exp.Max, exp.Coalesce, exp.Nullif, exp.Greatest,
    exp.Least, exp.Abs, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
)  # fmt: skip
_FRACTIONS = (exp.Avg, exp.Extract, exp.IntDiv, exp.Pow, exp.Floor, exp.Ceil, exp.Round, exp.Trunc, exp.Sign)
_SAME_TYPE_CALLS = frozenset({"coalesce", "nullif", "greatest", "least", "abs", QUOTIENT})
_FRACTION_CALLS = frozenset({"round", "floor", "ceil", "trunc", "sign", HALF_EVEN})
"""Functions that return a number with a fraction in PostgreSQL, of whole numbers, too."""


# Find what PostgreSQL's numbers are, where DuckDB has whole numbers.


def find_numeric_kind(node: exp.Expr | None) -> str:
    """Return "numeric" for what is a numeric or a binary number by its tree, "sum" for a SUM that may be one, "" for the rest.

    Each node is looked at once, however often others read it.

    Claim: a quotient of operands without a kind is one of whole numbers in PostgreSQL if it is so in DuckDB.
    Why: in both, arithmetic on whole numbers gives whole numbers; EXTRACT, AVG and the SUM of long numbers are what differs.
    Source: the manual of PostgreSQL 17, 9.3 (operators), 9.9.1 (EXTRACT), 9.21 (SUM, AVG).
    """
    if node is None:
        return ""
    if node.meta.get(NUMERIC):
        return NUMERIC
    if _KIND not in node.meta:
        node.meta[_KIND] = ""  # of a CTE that reads itself
        node.meta[_KIND] = _find_kind(node)
    return str(node.meta[_KIND])


def _find_kind(node: exp.Expr) -> str:  # noqa: C901  (a case for each kind of node)
    parts: list[exp.Expr | None] = []
    match node:
        case exp.Literal():
            return "" if node.is_string or str(node.this).isdigit() else NUMERIC
        case exp.Cast():
            return NUMERIC if node.to.this in FRACTIONAL_TYPES else ""
        case exp.Div() if not node.args.get("typed"):  # it is translated
            return NUMERIC
        case exp.Star():  # columns of a star that an alias renames are not followed
            return _SUM
        case exp.Sum():
            return _find_sum_kind(node)
        case exp.Column():
            return _find_column_kind(node)
        case exp.Subquery():
            inner = node.this.expressions if isinstance(node.this, exp.Select) else ()
            parts = [inner[0].unalias()] if inner else []
        case exp.Case():
            parts = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
        case exp.Anonymous():
            parts = list(node.expressions) if node.this in _SAME_TYPE_CALLS else []
            return (
                NUMERIC
                if node.this in _FRACTION_CALLS
                else _combine_kinds(map(find_numeric_kind, parts)) or ""
            )
        case exp.Filter() | exp.Window():
            parts = [node.this]
        case _ if isinstance(node, _FRACTIONS):
            return NUMERIC
        case _ if isinstance(node, _SAME_TYPE):
            parts = [node.this, node.args.get("expression"), *(node.args.get("expressions") or ())]
    return _combine_kinds(map(find_numeric_kind, parts)) or ""


def _combine_kinds(kinds: Iterable[str | None]) -> str | None:
    """Return the kind of values of several kinds; None if no kind is known."""
    known = {kind for kind in kinds if kind is not None}
    return next((kind for kind in (NUMERIC, _SUM, "") if kind in known), None)


def _find_sum_kind(node: exp.Sum) -> str:
    """Return what a SUM is: of counts and sums, which are long, a numeric; of short constants, as those of a CASE, no numeric."""
    if node.this.find(exp.AggFunc) is not None or find_numeric_kind(node.this):
        return NUMERIC
    return "" if all(isinstance(part, exp.Literal) for part in _list_values(node.this)) else _SUM


def _list_values(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Case):
        branches = [branch.args["true"] for branch in node.args["ifs"]]
        last = node.args.get("default")
        return branches if last is None or isinstance(last, exp.Null) else [*branches, last]
    return [node]


def _find_column_kind(column: exp.Column) -> str:
    """Find the kind of the items of derived tables and CTEs that a column reads, by names alone.

    The SELECT around the column is searched first, then those around it.
    """
    select = column.find_ancestor(exp.Select)
    while select is not None:
        found = _find_in_sources(select, normalize_name(column.name), normalize_name(column.table))
        if found is not None:
            return found
        select = select.find_ancestor(exp.Select)
    return ""


def _find_in_sources(select: exp.Select, name: str, table: str) -> str | None:
    items = [select.args.get("from_"), *(select.args.get("joins") or ())]
    found: list[str | None] = []
    for item in items:
        source = None if item is None else item.this
        if source is not None and (not table or normalize_name(source.alias_or_name) == table):
            query, names = _find_query(source)
            found.append(None if query is None else _find_in_query(query, name, tuple(names)))
    return _combine_kinds(found)


def _find_in_query(query: exp.Expr, name: str, names: tuple[str, ...]) -> str | None:
    """Find the kind of the items of a name; `names` are given to the columns from the first on."""
    known = query.meta.setdefault(_KIND, {})
    if (name, names) not in known:
        known[name, names] = None  # of a CTE that reads itself
        known[name, names] = _search_query(query, name, names)
    found: str | None = known[name, names]
    return found


def _search_query(query: exp.Expr, name: str, names: tuple[str, ...]) -> str | None:
    if isinstance(query, exp.Subquery):
        return _find_in_query(query.this, name, names)
    if isinstance(query, exp.SetOperation):
        place = _find_place(query, name, names)
        if place is not None:
            name, names = str(place), tuple(str(index) for index in range(place + 1))
        return _combine_kinds(_find_in_query(part, name, names) for part in (query.this, query.expression))
    if not isinstance(query, exp.Select):
        return None
    for index, item in enumerate(query.expressions):
        if (names[index] if index < len(names) else normalize_name(item.alias_or_name)) == name:
            return find_numeric_kind(item.unalias())
    return _find_in_sources(query, name, "") if any(item.is_star for item in query.expressions) else None


def _find_place(query: exp.SetOperation, name: str, names: tuple[str, ...]) -> int | None:
    """Find the place of a column among those of the first SELECT of a UNION, which names them."""
    first = query.find(exp.Select)
    items = [] if first is None else first.expressions
    known = [
        names[index] if index < len(names) else normalize_name(item.alias_or_name)
        for index, item in enumerate(items)
    ]
    return known.index(name) if name in known else None


def _find_query(source: exp.Expr) -> tuple[exp.Expr | None, list[str]]:
    """Return the query of a derived table, or of the CTE that a name means, and the names that its alias gives to columns."""
    query: exp.Expr | None = source.this if isinstance(source, exp.Subquery) else None
    names = _list_alias_columns(source)
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.db:
        around: exp.Expr | None = source.parent
        while around is not None and query is None:
            clause = around.args.get("with_")
            for table in () if clause is None else clause.expressions:
                if normalize_name(table.alias) == normalize_name(source.name):
                    query, names = table.this, names or _list_alias_columns(table)
            around = around.parent
    return query, names


def _list_alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    return [normalize_name(column.name) for column in columns or ()]


def _has_own_sum(node: exp.Expr) -> bool:
    """Return whether a SUM stands in an expression itself, not in a table that it reads."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    return any(isinstance(part, exp.Sum) for part in parts)


# Division, means, powers and sums.


def translate_division(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate /, which discards the remainder of whole numbers in PostgreSQL and T-SQL."""
    sides = (node.this, node.expression)
    if not node.args.get("typed"):
        return exp.Div(this=sides[0], expression=sides[1])
    kinds = {find_numeric_kind(side) for side in sides} if self.dialect == "postgres" else set()
    if NUMERIC in kinds:
        return exp.Div(this=sides[0], expression=sides[1])
    if _SUM not in kinds:
        return build_call(QUOTIENT, *sides)
    if not any(map(_has_own_sum, sides)):
        self.refuse_in_dialect(
            node,
            "type",
            "the type of the SUM in a derived table decides whether / discards the remainder",
            "write the type that is meant there: SUM(x)::bigint or SUM(x)::numeric",
        )
    return build_call(QUOTIENT, *sides, exp.Boolean(this=True))


def translate_safe_division(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SAFE_DIVIDE, which is NULL where the divisor is zero, as / is here."""
    return exp.Paren(this=exp.Div(this=exp.Paren(this=node.this), expression=exp.Paren(this=node.expression)))


def translate_average(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate AVG, which is a whole number of whole numbers in T-SQL."""
    if self.dialect != "tsql" or isinstance(node.parent, exp.Window) or is_typed_call(node.parent or node):
        return node
    return build_call(MEAN, node.copy())


def translate_window(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate windows: AVG of T-SQL, and Snowflake's RATIO_TO_REPORT and CONDITIONAL_TRUE_EVENT."""
    called = node.this
    if self.dialect == "tsql" and isinstance(called, exp.Avg):
        return build_call(MEAN, node.copy())
    if isinstance(called, exp.Anonymous) and called.this == "ratio_to_report":
        (value,) = called.expressions
        total = node.copy()
        total.set("this", exp.Sum(this=value.copy()))
        return exp.Paren(this=exp.Div(this=exp.Paren(this=value.copy()), expression=total))
    if isinstance(called, exp.Anonymous) and called.this == "conditional_true_event":
        return _count_events(self, node, *called.expressions)
    return node


def _count_events(self: DialectText, node: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return the number of rows up to each at which a condition is true."""
    if node.args.get("spec") is not None or node.args.get("order") is None:
        self.refuse_in_dialect(
            node, "clause", "CONDITIONAL_TRUE_EVENT takes an order and no frame", "write OVER (ORDER BY x)"
        )
    one, none = exp.Literal.number(1), exp.Literal.number(0)
    counted = node.copy()
    counted.set("this", exp.Sum(this=exp.Case(ifs=[exp.If(this=condition.copy(), true=one)], default=none)))
    frame = {"kind": "ROWS", "start": "UNBOUNDED", "start_side": "PRECEDING", "end": "CURRENT ROW"}
    counted.set("spec", exp.WindowSpec(**frame))
    return counted


def translate_power(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate POWER, which has the type of its first argument in T-SQL."""
    name = POWER if self.dialect == "tsql" else "pow"
    return build_call(name, node.this, node.expression)


def translate_addition(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate T-SQL's +, which joins texts."""
    sides = (node.this, node.expression)
    if any(SPANS in side.meta for side in sides):
        return expand_spans(self, node)
    if self.dialect != "tsql" or any(isinstance(side, exp.Interval) for side in sides):
        return node
    if any(map(is_text, sides)):
        return exp.DPipe(this=sides[0], expression=sides[1], safe=True)
    if all(isinstance(unwrap_sign(side), exp.Literal) and not unwrap_sign(side).is_string for side in sides):  # type: ignore[union-attr]
        return node
    return build_call(SUM_OR_TEXT, *sides)


def translate_round(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ROUND: halves away from zero, but of PostgreSQL's binary numbers to even."""
    digits, cut = node.args.get("decimals"), node.args.get("truncate")
    if digits is not None and not is_whole_number(digits):
        self.refuse_in_dialect(node, "constant", "ROUND needs a constant number of digits")
    if cut is not None and not is_whole_number(cut):
        self.refuse_in_dialect(node, "constant", "the third argument of ROUND must be 0 or 1")
    name = "trunc" if cut is not None and int(cut.name) else "round"
    if (
        digits is None
        and self.dialect == "postgres"
        and not _is_cast_to_numeric(node.this, default=_is_decimal(node.this))
    ):
        return build_call(HALF_EVEN, node.this)
    return build_call(name, *(part for part in (node.this, digits) if part is not None))


def _is_cast_to_numeric(node: exp.Expr, *, default: bool) -> bool:
    """Return whether the outermost cast to a fraction in an expression is PostgreSQL's to a numeric; `default` without one."""
    parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
    casts = (part for part in parts if isinstance(part, exp.Cast) and part.to.this in FRACTIONAL_TYPES)
    found = next(casts, None)
    return default if found is None else bool(found.meta.get(NUMERIC)) or found.to.this is exp.DType.DECIMAL


def _is_decimal(node: exp.Expr) -> bool:
    """Return whether a number is a numeric by its tree alone, without a function that may return a binary number."""
    calls = any(isinstance(part, exp.Anonymous) and part.this in _FRACTION_CALLS for part in node.walk())
    return not calls and find_numeric_kind(node) == NUMERIC


def translate_coalesce(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate COALESCE, and T-SQL's ISNULL, which has the type of its first argument."""
    if node.args.get("is_null") and len(node.expressions) == 1:
        return build_call(FIRST_TYPE, node.this, node.expressions[0])
    return build_call("coalesce", node.this, *node.expressions)


# Casts.


def translate_cast(self: DialectText, node: exp.Expr) -> exp.Expr:  # noqa: C901, PLR0912  (a case for each kind of type)
    """Translate CAST by its target: whole numbers, decimals, texts, moments and lengths of time."""
    target = node.args["to"]
    kind, digits = target.this, list(target.expressions)
    if kind is exp.DType.TEXT and self.dialect == "tsql" and isinstance(node.parent, _OF_TEXT):
        return exp.Paren(this=node.this)  # the parser's own
    if (
        kind is exp.DType.ARRAY
        and is_listed(node)
        and isinstance(node.this, (exp.Literal, exp.Array, exp.Parameter))
    ):
        return exp.Paren(this=node.this)
    truth = _read_truth(node.this) if kind is exp.DType.BOOLEAN and self.dialect == "postgres" else None
    if truth is not None:
        return truth
    if kind in _WHOLE:
        return _cast(
            _round_as_dialect(self, node.this), exp.DType.BIGINT if self.dialect == "snowflake" else kind
        )
    if kind in _TEXTS:
        return _translate_text_cast(self, node, digits)
    if kind is exp.DType.INTERVAL and not digits:
        return parse_span(self, node, node.this)
    if kind is exp.DType.DECIMAL and not digits:
        if self.dialect == "postgres":
            found = _cast(node.this, exp.DType.DOUBLE)
            found.meta[NUMERIC] = True
            return found
        digits = [
            exp.DataTypeParam(this=exp.Literal.number(each)) for each in _DECIMALS.get(self.dialect, (38, 0))
        ]
    if kind is exp.DType.FLOAT and self.dialect == "tsql":
        return _cast(node.this, exp.DType.DOUBLE)
    if kind is exp.DType.BIT and self.dialect == "tsql" and not digits:
        kind = exp.DType.BOOLEAN
    if kind is exp.DType.TIMESTAMPTZ and self.dialect == "bigquery" and isinstance(node.this, exp.Literal):
        kind = exp.DType.TIMESTAMPNTZ  # in UTC, as all moments here
    if kind in _MOMENTS:
        kind, digits = exp.DType.TIMESTAMP, []
    elif kind in _INSTANTS and self.dialect != "tsql":  # in a session whose zone is UTC
        kind, digits = exp.DType.TIMESTAMPTZ, []
    elif kind not in FRACTIONAL_TYPES | _UNCHANGED or bool(digits) != (kind is exp.DType.DECIMAL):
        self.refuse_in_dialect(
            node,
            "type",
            f"DuckDB has no type that matches {target.sql(dialect=self.dialect)}",
            "use whole numbers, DOUBLE, DECIMAL(18, 3), VARCHAR, DATE or TIMESTAMP without a zone",
        )
    return exp.Cast(this=node.this, to=exp.DataType(this=kind, expressions=digits, nested=False))


def _cast(node: exp.Expr, kind: exp.DType) -> exp.Cast:
    return exp.Cast(this=node, to=exp.DataType(this=kind, nested=False))


def _read_truth(text: exp.Expr) -> exp.Boolean | None:
    """Return the truth value that PostgreSQL reads from a constant text: a word, or the start of no other one."""
    word = text.name.strip().lower() if isinstance(text, exp.Literal) else ""
    for whole, value, shortest in (
        ("true", True, 1),
        ("yes", True, 1),
        ("on", True, 2),
        ("false", False, 1),
        ("no", False, 1),
        ("off", False, 2),
    ):
        if len(word) >= shortest and whole.startswith(word):
            return exp.Boolean(this=value)
    return None


def _round_as_dialect(self: DialectText, value: exp.Expr) -> exp.Expr:
    """Return a value as it is cast to a whole number: rounded as in DuckDB, away from zero, or truncated."""
    plain = unwrap_sign(value)
    named = isinstance(plain, exp.Anonymous) and plain.this in ("round", "floor", "ceil", "trunc")
    if named or is_whole_number(plain) or isinstance(plain, exp.Count):
        return value
    if self.dialect == "postgres":
        return _round_numeric(value)
    return build_call(TRUNCATED if self.dialect in ("tsql", "spark") else ROUNDED, value)


def _round_numeric(value: exp.Expr) -> exp.Expr:
    """Return a number as PostgreSQL casts it to a whole number: halves of a numeric away from zero, of a binary number to even."""
    is_part = isinstance(value, exp.Anonymous) and bool(
        value.meta.get(NUMERIC)
    )  # a whole number, as of EXTRACT
    if is_part or find_numeric_kind(value) != NUMERIC:
        return value
    is_cast = [_is_cast_to_numeric(value, default=default) for default in (False, True)]
    if not any(is_cast):
        return value
    return build_call(ROUNDED if all(is_cast) else HALF_EVEN, value)


def _translate_text_cast(self: DialectText, node: exp.Expr, digits: list[exp.Expr]) -> exp.Expr:
    """Translate a cast to a text, which a length cuts."""
    length: exp.Expr | None = digits[0].this if digits else None
    if isinstance(length, exp.Var) and length.name.upper() == "MAX":
        length = None
    elif digits and (
        len(digits) > 1 or length is None or not is_whole_number(length) or not int(length.name)
    ):
        self.refuse_in_dialect(
            node, "type", "the length of a text must be a constant above 0", "write VARCHAR(20)"
        )
    elif length is None and self.dialect == "tsql":
        length = exp.Literal.number(_DEFAULT_LENGTH)
    if isinstance(node.this, exp.Null):
        return _cast(node.this, exp.DType.VARCHAR)
    text = build_call(TEXT, node.this, exp.Literal.string(self.dialect))
    return text if length is None else build_call("left", text, length.copy())


def translate_convert(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate T-SQL's CONVERT without a style as the cast that it is; with one, see `translate_dates`."""
    made = exp.Cast(this=node.expression, to=node.this)
    made.parent, made.arg_key = node.parent, node.arg_key
    return translate_cast(self, made)


def parse_span(self: DialectText, node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Return the length of time that a constant text such as '30 days' writes."""
    text = value.name if isinstance(value, exp.Literal) and value.is_string else ""
    parts = [(int(part[1]), part[2].lower()) for part in _SPAN_PART.finditer(text)]
    around = node.parent
    while isinstance(around, (exp.Paren, exp.Cast)):
        around = around.parent
    if not _SPAN_TEXT.fullmatch(text) or (len(parts) > 1 and not isinstance(around, (exp.Add, exp.Sub))):
        _refuse_span(self, node)
    counts = parts if len(parts) == 1 or self.dialect == "snowflake" else _combine_units(parts)
    if counts is None:
        _refuse_span(self, node)
    spans = [
        exp.Interval(this=exp.Literal.string(str(count)), unit=exp.Var(this=unit.upper()))
        for count, unit in counts
    ]
    if len(spans) > 1:
        spans[0].meta[SPANS] = spans[1:]
    return spans[0]


def _refuse_span(self: DialectText, node: exp.Expr) -> NoReturn:
    self.refuse_in_dialect(
        node, "constant", "an INTERVAL must be a constant such as 30 days", "write INTERVAL '30 days'"
    )


def _combine_units(parts: list[tuple[int, str]]) -> list[tuple[int, str]] | None:
    """Return the months, days and seconds of a length of several units, in the order in which they are added.

    None if a unit is unknown or given twice. Source: the manual of PostgreSQL 17, 8.5.4 (interval input).
    """
    found: dict[str, int] = {}
    names = [unit if unit in _UNITS else unit.removesuffix("s") for _, unit in parts]
    if len({*names}) < len(names) or not {*names} <= _UNITS.keys():
        return None
    for (count, _), name in zip(parts, names, strict=True):
        kind, size = _UNITS[name]
        found[kind] = found.get(kind, 0) + count * size
    return [(found[kind], kind) for kind in ("month", "day", "second") if kind in found]


def expand_spans(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate the sum or difference of a moment and a length of several units: each is added in turn."""
    moment, span = node.this, node.expression
    if SPANS in moment.meta and isinstance(node, exp.Add):
        moment, span = span, moment
    found = moment.copy()
    for part in [span, *span.meta[SPANS]] if SPANS in span.meta else [span]:
        each = exp.Interval(this=part.this.copy(), unit=part.args["unit"].copy())
        found = type(node)(this=exp.Paren(this=found), expression=each)
    return exp.Paren(this=found)


def translate_subtraction(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate the difference of a moment and a length of several units."""
    return expand_spans(self, node) if SPANS in node.expression.meta else node
