"""Lower operators, functions and units of time, by tables of the parser's nodes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.number_types import WIDE, derive_bits
from dpsql.analysis.text_bounds import require_bounded_text
from dpsql.backends import scratch_database
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Column, Expr, Function, Literal, WindowCall
from dpsql.plan.functions import BY_UNIT, build_function_call, build_typed_call, get_overloads
from dpsql.plan.functions.dates import SPELLINGS, UNITS
from dpsql.plan.functions.growth import MULTIPLIES, list_constants
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.types import Type, find_common_type
from dpsql.policy import normalize_name
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.constants import READ_FROM_TEXT, fold_constant, parse_constant
from dpsql.sql.lower.number_types import (
    build_decimal_text,
    build_float_text,
    round_before_cast,
    round_before_comparison,
    round_decimal_call,
    round_float_call,
)
from dpsql.sql.lower.quoted_constants import read_quoted_constants
from dpsql.sql.parse.rejection import QueryText

# The meaning of the parser's nodes, as data: operators, types of casts, and functions refused on purpose.


Shape = tuple[str, tuple[str, ...], Mapping[str, tuple[object, ...]]]
"""The name of a node's function, its arguments in order, and arguments that must have the given values."""

_PAIR = ("this", "expression")

SHAPES: Mapping[type[exp.Expr], Shape] = {
    exp.Mul: ("*", _PAIR, {}),
    exp.Div: ("/", _PAIR, {"typed": (True, False), "safe": (True, False)}),
    exp.IntDiv: ("//", _PAIR, {}),
    exp.Mod: ("%", _PAIR, {}),
    exp.Pow: ("^", _PAIR, {}),
    exp.DPipe: ("||", _PAIR, {"safe": (True,)}),
    exp.BitwiseAnd: ("&", _PAIR, {}),
    exp.BitwiseOr: ("|", _PAIR, {}),
    exp.BitwiseLeftShift: ("<<", _PAIR, {}),
    exp.BitwiseRightShift: (">>", _PAIR, {}),
    exp.LT: ("lt", _PAIR, {}),
    exp.LTE: ("le", _PAIR, {}),
    exp.GT: ("gt", _PAIR, {}),
    exp.GTE: ("ge", _PAIR, {}),
    exp.NullSafeEQ: ("is_not_distinct", _PAIR, {}),
    exp.NullSafeNEQ: ("is_distinct", _PAIR, {}),
    exp.Not: ("not", ("this",), {}),
    exp.Glob: ("glob", _PAIR, {}),
    exp.SimilarTo: ("regexp_full_match", _PAIR, {}),
    exp.RegexpLike: ("regexp_matches", _PAIR, {}),
    exp.Substring: ("substring", ("this", "start", "length"), {}),
    exp.StrPosition: ("strpos", ("this", "substr"), {}),
    exp.Overlay: ("overlay", ("this", "expression", "from_", "for_"), {}),
}
"""The nodes that are plain functions of their arguments."""

CASTS: Mapping[exp.DType, str] = {
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "integer",
    exp.DType.BIGINT: "bigint",
    exp.DType.INT128: "hugeint",
    exp.DType.UTINYINT: "utinyint",
    exp.DType.USMALLINT: "usmallint",
    exp.DType.UINT: "uinteger",
    exp.DType.UBIGINT: "ubigint",
    exp.DType.UINT128: "uhugeint",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.DECIMAL: "decimal",
    exp.DType.VARCHAR: "varchar",
    exp.DType.TEXT: "varchar",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.TIME: "time",
    exp.DType.UUID: "uuid",
    exp.DType.VARBINARY: "blob",
    exp.DType.BLOB: "blob",
}
"""The types that CAST takes, by the name of their entry."""

_PLURALS = {unit: f"{unit}s" for unit in UNITS} | {"century": "centuries", "millennium": "millennia"}

SPAN_UNITS: Mapping[str, str] = {word: unit for unit, many in _PLURALS.items() for word in (unit, many)}
"""The units of an INTERVAL, in the singular and the plural."""

SPANS: Mapping[str, str] = {f"to_{many}": unit for unit, many in _PLURALS.items()}
"""Functions that give an interval, each with its unit."""

READS_TEXT = MappingProxyType({"||": 0, "concat": 0, "concat_ws": 1})
"""Functions that read values of any type as text, with the place of the first such argument."""

_VOLATILE = "its result changes between calls, so that an answer could not be repeated"
_SESSION = "it describes the session or the program, not the data"
_ORDER = "it depends on the order of rows"
_FAILS = "it raises errors, which would reveal private rows"
_NO_ZONE = "timestamps have no time zone in dpsql"
_LENGTHY = "its time and memory could grow with the square of a text's length"
_LIST = "lists, structs and maps are not supported"
_TODAY = "write current_date or now(), which are constants during the statement, or a literal date"

REFUSED: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("random", "rand", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7"), (_VOLATILE, None)),
    **dict.fromkeys(
        (
            "current_time", "localtime", "get_current_time", "current_localtime", "ago",
        ),
        (_VOLATILE, _TODAY),
    ),
    "age": ("its result, an interval of months and days, has no fixed length", "write DATE_DIFF('day', u, t)"),
    **dict.fromkeys(("nextval", "currval", "lastval", "row_number", "rowid"), (_ORDER, None)),
    **dict.fromkeys(
        (
            "getvariable", "getenv", "current_setting", "current_user", "session_user", "user", "current_role",
            "current_schema", "current_schemas", "current_database", "current_catalog", "current_query", "version",
            "txid_current", "pg_typeof", "typeof",
        ),
        (_SESSION, None),
    ),
    **dict.fromkeys(("error", "assert_true"), (_FAILS, None)),
    **dict.fromkeys(("hamming", "mismatches"), (_FAILS, "write LEVENSHTEIN(s, 'text')")),
    **dict.fromkeys(("to_timestamp", "make_timestamptz"), (_NO_ZONE, "write MAKE_TIMESTAMP(…)")),
    **dict.fromkeys(
        ("string_split", "split", "str_split", "string_to_array", "regexp_split_to_array", "string_split_regex"),
        (_LIST, "write SPLIT_PART(s, 'separator', 1)"),
    ),
    **dict.fromkeys(
        ("list_contains", "array_contains", "list_has", "array_has", "list_position", "array_length", "list_count"),
        ("the elements of a list are read as rows", "FROM t, UNNEST(t.list) AS u(x) WHERE x = 'sought'"),
    ),
    "regexp_extract_all": (_LIST, "write REGEXP_EXTRACT(s, 'pattern', group)"),
    "fmod": ("its argument would be repeated at each level of nesting", "write x % y"),
    "fdiv": ("its argument would be repeated at each level of nesting", "write FLOOR(x / y)"),
    "divide": ("it is an integer division in DuckDB, unlike /", "write x // y"),
    "average": ("DuckDB has no function of this name", "write AVG(x)"),
    **dict.fromkeys(("std", "stdev"), ("DuckDB has no function of this name", "write STDDEV(x)")),
    "nvl": ("DuckDB has no function of this name", "write COALESCE(x, y)"),
    "iif": ("DuckDB has no function of this name", "write IF(p, x, y)"),
    "width_bucket": ("DuckDB has no function of this name", "write FLOOR((x - low) / width) + 1"),
    "initcap": ("DuckDB has no function of this name", "write UPPER(LEFT(s, 1)) || SUBSTRING(s, 2)"),
    "md5": ("a hash reveals as much as its text", "use the text itself"),
    "hash": ("a hash reveals as much as its value", "use the value itself"),
}  # fmt: skip
"""Functions that are refused on purpose, each with the reason and a replacement."""


# Units of time: their spellings, and INTERVAL and TO_DAYS(n), which are lengths of time.


def is_span(node: exp.Expr | None) -> bool:
    """Return whether a node is a length of time."""
    while type(node) is exp.Paren:
        node = node.this
    called = node.this if type(node) is exp.Anonymous else None
    return type(node) is exp.Interval or (isinstance(called, str) and normalize_name(called) in SPANS)


def take_unit_word(source: QueryText, node: exp.Expr) -> str:
    """Return the word for a unit of time that a constant holds."""
    if type(node) is exp.Literal and node.is_string:
        text, _ = source.take_arguments(node, "this", "is_string")
        return str(text)
    if type(node) is exp.Var:
        (text,) = source.take_arguments(node, "this")
        return str(text)
    source.refuse(node, "constant", "a unit of time must be a constant such as 'month'")


def resolve_time_unit(source: QueryText, node: exp.Expr, name: str, said: str) -> str:
    """Return the name of the function that computes `name` in one unit of time."""
    known = BY_UNIT[name]
    unit = normalize_name(said)
    entry = known.get(SPELLINGS.get(unit, unit))
    if entry is None:
        title = name.upper()
        source.refuse(node, "constant", f"{title} has no unit {said}", f"its units are {', '.join(known)}")
    return entry


# Lower function calls: overload resolution in the registry, and checks of constant arguments.


_COMPARED = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct"})
_QUOTIENT = "//"
SAFE_INTEGER = 2**62
MAX_SIZE = 4_000
"""The most calls in an expression with aliases, BETWEEN and CASE operands, and columns of derived tables expanded.

An engine's planner expands these, and takes seconds for more.
"""
_SAMPLES: Mapping[Type, Literal] = {
    Type.INTEGER: Literal(1, Type.INTEGER),
    Type.DOUBLE: Literal(1.0, Type.DOUBLE),
    Type.VARCHAR: Literal("a", Type.VARCHAR),
    Type.BOOLEAN: Literal(value=True, type=Type.BOOLEAN),
    Type.DATE: Literal(dt.date(2024, 2, 29), Type.DATE),
    Type.TIMESTAMP: Literal(dt.datetime(2024, 2, 29), Type.TIMESTAMP),  # noqa: DTZ001  (SQL timestamps have no zone)
    Type.TIME: Literal(dt.time(12, 34), Type.TIME),
    Type.UUID: Literal(uuid.UUID(int=1), Type.UUID),
    Type.BLOB: Literal(b"a", Type.BLOB),
    Type.NULL: Literal(None, Type.NULL),
}


def resolve_call(source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]) -> Expr:
    """Return the call that a name means with these arguments. Raises QueryRejected at the node."""
    if name in READS_TEXT:
        first = READS_TEXT[name]
        arguments = (*arguments[:first], *map(_to_text, arguments[first:]))
    if name == "bit_count":
        arguments = tuple(map(_mask_to_own_bits, arguments))
    arguments = _fold_constant_arguments(
        source, node, name, round_before_comparison(name, round_before_cast(name, arguments))
    )
    problem: tuple[Function, str] | None = None
    for taken in _iterate_readings(source, node, name, arguments):
        for function in get_overloads(name):
            built = build_typed_call(function, taken)
            if built is None:
                continue
            wrong = _find_constant_problem(built)
            if wrong is None:
                return _finish_call(source, node, built)
            problem = problem or (function, wrong)
    if problem is not None:
        source.refuse(node, "constant", f"{problem[0].signature}: {problem[1]}")
    _refuse_types(source, node, name, arguments)


def _fold_constant_arguments(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """Return the arguments, folded to constants where each reading of the call takes a constant."""
    places = {place for function in get_overloads(name) for place in function.literals}
    return tuple(
        fold_constant(source, node, argument) if place in places else argument
        for place, argument in enumerate(arguments)
    )


def _to_text(argument: Expr) -> Expr:
    if argument.type in (Type.VARCHAR, Type.NULL):
        return argument
    return (
        build_decimal_text(argument)
        or build_float_text(argument)
        or build_function_call("cast_varchar", _restore_integer(argument))
        or argument
    )


def _mask_to_own_bits(argument: Expr) -> Expr:
    """Return a number with the bits that DuckDB's type of it has: of 64, a negative one has more."""
    low = derive_interval(argument).low
    if derive_bits(argument) == WIDE or (low is not None and low >= 0):
        return argument
    return (
        build_function_call("bit_and", argument, Literal(2 ** derive_bits(argument) - 1, Type.INTEGER))
        or argument
    )


def _iterate_readings(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> Iterator[tuple[Expr, ...]]:
    """Yield the arguments unchanged; then with text constants read in the type of their neighbors, as in SQL.

    Widened arithmetic is read as the whole number that it represents: first by //, which is / for real numbers, and by
    functions that take whole numbers only.
    """
    whole = tuple(map(_restore_integer, arguments))
    again = whole != arguments and all(argument.type is Type.INTEGER for argument in whole)
    if again and name == _QUOTIENT:
        yield whole
    yield arguments
    if again:
        yield whole
    if name in _COMPARED and (truths := _convert_to_booleans(arguments)) is not None:
        yield truths
    is_whole = all(argument.type is not Type.DOUBLE for argument in arguments) or are_widened(
        [argument for argument in arguments if argument.type is not Type.VARCHAR]
    )
    if (numbers := read_quoted_constants(source, node, name, arguments, whole=is_whole)) is not None:
        yield numbers
    target = find_common_type(
        tuple(argument.type for argument in arguments if argument.type in READ_FROM_TEXT)
    )
    if target is None or target not in READ_FROM_TEXT:
        return
    read = [isinstance(argument, Literal) and isinstance(argument.value, str) for argument in arguments]
    zoned = any(isinstance(argument, Column) and argument.facts.has_time_zone for argument in arguments)
    types = tuple(
        target if as_moment else argument.type for as_moment, argument in zip(read, arguments, strict=True)
    )
    if any(read) and any(function.result(types) is not None for function in get_overloads(name)):
        yield tuple(
            parse_constant(source, node, target, str(argument.value), zoned=zoned)  # type: ignore[union-attr]
            if as_moment
            else argument
            for as_moment, argument in zip(read, arguments, strict=True)
        )


def _convert_to_booleans(arguments: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Return the arguments with 0 and 1 read as truth values next to others, as in SQL; None if that does not apply."""
    numbers = [argument.type is Type.INTEGER for argument in arguments]
    known = all(
        isinstance(argument, Literal) and argument.value in (0, 1)
        for argument, number in zip(arguments, numbers, strict=True)
        if number
    )
    if not any(numbers) or not known or not any(argument.type is Type.BOOLEAN for argument in arguments):
        return None
    return tuple(
        Literal(bool(argument.value), Type.BOOLEAN) if number and isinstance(argument, Literal) else argument
        for argument, number in zip(arguments, numbers, strict=True)
    )


def _find_constant_problem(built: Call) -> str | None:
    """Return the rule that the constants of a call break, or None."""
    for place in sorted(built.function.literals):
        argument = built.arguments[place]
        if not isinstance(argument, Literal) or argument.value is None:
            return "this argument must be a constant"
    wrong = built.function.check(list_constants(built))
    if wrong is not None or not built.function.checked_by_engine:
        return wrong
    sampled = tuple(
        argument if place in built.function.literals else _SAMPLES[argument.type]
        for place, argument in enumerate(built.arguments)
    )
    return scratch_database.find_evaluation_error(
        DUCKDB_COMPILER.emit_expression(Call(built.function, sampled, built.type))
    )


def _finish_call(source: QueryText, node: exp.Expr | None, built: Call) -> Expr:
    if built.function.integral and built.type is Type.INTEGER:
        return built.arguments[0]  # whole numbers are whole already
    if built.function.name == "cast_varchar":
        built = (
            build_decimal_text(built.arguments[0])
            or build_float_text(built.arguments[0])
            or (build_typed_call(built.function, tuple(map(_restore_integer, built.arguments))) or built)
        )
    built = round_float_call(round_decimal_call(_widen_arithmetic(_convert_dates(built))))
    if built.size > MAX_SIZE:
        source.refuse(
            node,
            "too_long",
            f"the expression has over {MAX_SIZE:,} operations, those of the derived tables that it "
            "reads included",
            "name a column once instead of several times, as x * (x + 1) for x * x + x; or use fewer "
            "levels of subqueries",
        )
    if built.function.size in MULTIPLIES:
        refusal = None
        try:
            require_bounded_text(built, {})
        except QueryRejected as too_long:
            refusal = too_long
        if refusal is not None:  # not within `except`: an error has no other behind it
            source.refuse(node, "too_long", refusal.message, refusal.hint)
    return built


def _convert_dates(built: Call) -> Call:
    """Return the arguments with days among timestamps read as timestamps, so that one interval holds both."""
    days = [argument.type is Type.DATE for argument in built.arguments]
    if built.type is not Type.TIMESTAMP or not any(days) or all(days):
        return built
    if not any(argument.type is Type.TIMESTAMP for argument in built.arguments):
        return built
    moments = tuple(
        (build_function_call("cast_timestamp", argument) or argument) if day else argument
        for day, argument in zip(days, built.arguments, strict=True)
    )
    return build_typed_call(built.function, moments) or built


def _widen_arithmetic(built: Call) -> Call:
    """Return integer arithmetic that may exceed 64 bits as arithmetic in DOUBLE.

    Neither form can fail, so an interval that is wrong on rows that a condition drops does no harm.
    """
    if not built.function.integer_sql or built.type is not Type.INTEGER:
        return built
    if derive_interval(built).is_within(SAFE_INTEGER):
        return built
    doubled = tuple(build_function_call("cast_double", argument) or argument for argument in built.arguments)
    return build_typed_call(built.function, doubled) or built


def _restore_integer(argument: Expr) -> Expr:
    """Return widened arithmetic as a whole number again, NULL beyond 64 bits."""
    return (build_function_call("cast_bigint", argument) or argument) if is_widened(argument) else argument


def is_widened(expr: Expr) -> bool:
    """Return whether an expression is a result of `_widen_arithmetic`, or passes one on: an integer that is read as DOUBLE."""
    if isinstance(expr, Column):
        return expr.facts.widened
    if expr.type is not Type.DOUBLE:
        return False
    if isinstance(expr, WindowCall):
        values = expr.arguments[:1] + expr.arguments[2:]  # the second of LAG, LEAD and NTH_VALUE is a place
        return OVER[expr.function].keeps_scale and are_widened(values)
    if not isinstance(expr, Call):
        return False
    if expr.function.name in _PASSING:
        return are_widened(_PASSING[expr.function.name](expr.arguments))
    if not expr.function.integer_sql:
        return False
    read = [
        each.arguments[0] if isinstance(each, Call) and each.function.name == "cast_double" else None
        for each in expr.arguments
    ]
    return all(each is not None and each.type is Type.INTEGER for each in read) or are_widened(expr.arguments)


def are_widened(values: Iterable[Expr]) -> bool:
    """Return whether some of the values of one column or expression are integers that are read as DOUBLE."""
    known = [(is_widened(each), each.type in (Type.INTEGER, Type.NULL)) for each in values]
    return any(widened for widened, _ in known) and all(widened or whole for widened, whole in known)


def _list_case_values(arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """List the values of a CASE."""
    pairs, otherwise = split_case_branches(arguments)
    return (*(value for _, value in pairs), otherwise)


_PASSING: Mapping[str, Callable[[tuple[Expr, ...]], tuple[Expr, ...]]] = {
    "case": _list_case_values,
    "coalesce": tuple,
    "greatest": tuple,
    "least": tuple,
    "nullif": lambda arguments: arguments[:1],
}
"""Functions whose result is one of these arguments."""


def iterate_possible_values(expr: Expr) -> Iterator[Expr]:
    """Yield the parts of an expression one of which its value is: of a COALESCE each argument, of a CASE each branch."""
    if isinstance(expr, Call) and expr.function.name in _PASSING:
        for argument in _PASSING[expr.function.name](expr.arguments):
            yield from iterate_possible_values(argument)
    else:
        yield expr


def _refuse_types(
    source: QueryText, node: exp.Expr | None, name: str, arguments: tuple[Expr, ...]
) -> NoReturn:
    given = ", ".join(str(argument.type) for argument in arguments)
    signatures = dict.fromkeys(function.signature for function in get_overloads(name))
    is_span = name == "-" and {argument.type for argument in arguments} <= {Type.DATE, Type.TIMESTAMP}
    source.refuse(
        node,
        "type",
        f"{' or '.join(list(signatures)[:3])} does not take ({given})",
        "write DATE_DIFF('second', u, t) for t - u" if is_span else "convert with CAST(… AS …)",
    )
