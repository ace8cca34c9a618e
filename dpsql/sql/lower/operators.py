"""The meaning of the parser's nodes, as data: operators, types of casts, and functions refused on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlglot import exp

from dpsql.plan.functions.moments import UNITS

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
    **dict.fromkeys(("to_timestamp", "make_timestamptz", "timezone"), (_NO_ZONE, "write MAKE_TIMESTAMP(…)")),
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
