"""Calls of every entry of the registry over values of every kind, the nastiest among them.

An entry says which types it takes and how it is written; the calls follow from that, so that a new entry is tried without a
word here. Constants are drawn for the arguments that must be some.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import random
import re
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Function, Literal, iterate_columns
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions.casts import MOST_PRECISION
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.function_calls import resolve_call
from dpsql.sql.parse.rejection import QueryText

KINDS = tuple(kind for kind in Type if kind not in (Type.NULL, Type.LIST))
NASTY: Mapping[Type, tuple[str | None, ...]] = {
    Type.INTEGER: (
        "0", "1", "-1", "2", "3", "-3", "7", "10", "12", "29", "33", "63", "64", "100", "2024", "-44", "10000",
        "55296", "1114111", "1114112", "2147483647", "-2147483648", "2147483648", "9007199254740993",
        "4611686018427387904", "9223372036854775807", "-9223372036854775807", "-9223372036854775808", None,
    ),
    Type.DOUBLE: (
        "0", "-0.0", "0.5", "-0.5", "1", "-1", "1.5", "2.5", "-2.5", "2", "3", "0.1", "-7.25", "59.9999999",
        "100.25", "709", "710", "2024", "1e15", "9007199254740993", "9.3e18", "-9.3e18", "1e-300", "5e-324", "1e308",
        "-1e308", "nan", "inf", "-inf", None,
    ),
    Type.VARCHAR: (
        "", " ", "a", "A", "b", " a ", "abc", "aXbX", "b12", "1", "-1", "2.5", "nan", "1e400", "9223372036854775808", "true",
        "2024-02-29", "2024-02-30", "29.2.2024", "infinity", "0044-03-15 (BC)", "294247-01-10", "%", "_", "\\", "!", "'", '"',
        "\0", "a\0b", "\n", "é", "e\u0301", "ß", "İ", "ı", "ſ", "ﬁ", "€", "\U0001f926\U0001f3fc\u200d\u2642\ufe0f",
        "\U0010ffff", "\ufeff", "\u202e", "x" * 300, "é" * 3000, None,
    ),
    Type.BOOLEAN: ("true", "false", None),
    Type.DATE: (
        "2024-02-29", "2024-01-31", "2000-01-01", "2000-01-03", "1999-12-31", "1970-01-01", "1900-03-01",
        "1582-10-10", "0001-01-01", "0100-01-01", "9999-12-31", "10000-01-01", "0044-03-15 (BC)", "294247-01-10",
        "290309-12-22 (BC)", "infinity", "-infinity", None,
    ),
    Type.TIMESTAMP: (
        "2024-02-29 12:34:56.789012", "2024-01-31", "2000-01-03", "1999-12-31 23:59:59.999999", "1970-01-01",
        "1969-12-31 23:59:59.999999", "0001-01-01", "9999-12-31 23:59:59.999999", "10000-01-01", "0044-03-15 (BC) 01:00:00",
        "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00", "infinity", "-infinity", None,
    ),
    Type.TIME: ("00:00:00", "12:34:56.789012", "23:59:59.999999", "24:00:00", "08:30:00", None),
    Type.UUID: (
        "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "7fffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000",
        "550e8400-e29b-41d4-a716-446655440000", None,
    ),
    Type.BLOB: ("", "a", "\\x00", "\\xFF\\x00", "\\xC3\\x28", "\\x5C", "a\\x27", None),
}  # fmt: skip
"""For each type values that its columns and expressions can hold, as text that the engine casts."""

CONSTANTS: Mapping[Type, tuple[Value, ...]] = {
    Type.INTEGER: (1, 2, 0, -1, 3, 10, -2, 15, 2**31 - 1, 2**63 - 1),
    Type.DOUBLE: (1.5, 0.0, -0.0, 0.1, -2.0, 1e308, 5e-324),
    Type.VARCHAR: (
        "a",
        "A",
        "%a_",
        "!",
        "",
        "i",
        "g",
        "([a-z])b?",
        "%Y-%m-%d",
        "x\\0",
        "é",
        "a!%",
        "ab",
        "(",
        "%q",
    ),
    Type.BOOLEAN: (True, False),
    Type.DATE: (dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    Type.TIMESTAMP: (
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    Type.TIME: (dt.time(0), dt.time(12, 34, 56), dt.time.max),
    Type.UUID: (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=2**127)),
    Type.BLOB: (b"", b"a", b"\xff\x00", b"\\'"),
    Type.NULL: (None,),
}
"""For each type values that constants of a query can have."""

Signature = tuple[Type, ...]
MOST_ROWS = 1_000
_LONGEST = 4
"""Fewer arguments than this are tried of a function which takes any number."""
_MOST_MIXED = 8
"""Most signatures of several types that are tried of a function."""


def holes(function: Function) -> int:
    """The number of arguments that a template writes out one by one."""
    return len(set(re.findall(r"\{(\d+)\}", function.sql)))


@cache
def signatures(function: Function) -> tuple[Signature, ...]:
    """The types of arguments that an entry takes, without NULL."""
    whole = re.search(r"\{(args|rest|and|or|case)\}", function.sql)
    arities = range(1, _LONGEST) if whole else (holes(function),)
    found = [
        types
        for arity in arities
        for types in itertools.product(_list_types(function, arity), repeat=arity)
        if function.result(types) is not None
    ]
    # Of very many, all that have one type alone, and some that mix them.
    mixed = [types for types in found if len(set(types)) > 1]
    random.Random(function.name).shuffle(mixed)
    chosen_types = {*(types for types in found if len(set(types)) <= 1), *mixed[:_MOST_MIXED]}
    return tuple(types for types in found if types in chosen_types)


def _list_types(function: Function, arity: int) -> Sequence[Type]:
    """List the types that can stand anywhere, found one by one where there are many places."""
    if arity <= _LONGEST:
        return KINDS
    return [kind for kind in KINDS if function.result((kind,) * arity) is not None] or KINDS[:2]


def format_signature(types: Signature) -> str:
    """Return a signature for people."""
    return " ".join(map(str, types))


SIGNATURES = [(function, types) for function in FUNCTIONS.values() for types in signatures(function)]


def column(place: int, kind: Type, interval: Interval | None = None) -> Column:
    """Return the column that holds an argument."""
    return Column(f"t{place}", "c", ColumnInfo(kind, kind.value, interval or Interval()))


CONSTANT_TEXTS: Mapping[str, tuple[int, ...]] = {
    "trim_characters": (1,),
    "ltrim_characters": (1,),
    "rtrim_characters": (1,),
}
"""The arguments of entries that are constants on all engines but DuckDB."""


_CONSTANTS_OF: Mapping[str, tuple[Value, ...]] = {
    "strftime": ("%Y-%m-%d", "%H:%M:%S%%", "%F{}|%T", "it's 5 {0}", "", "%j %q"),
}
"""Constants of entries that say more of them."""


def calls(
    function: Function,
    types: Signature,
    intervals: Sequence[Interval] | None = None,
    most: int = 8,
    *,
    constants: Collection[int] = (),
) -> Iterator[Call]:
    """Calls of an entry over columns, with constants where it wants some; at least one of each entry.

    The arguments at the places `constants` are constants, too.

    Arithmetic of whole numbers has a form for columns that are known to be small, which holds what they are not.
    """
    if intervals is None and function.integer_sql:
        yield from calls(function, types, [Interval(-1, 1)] * len(types), most, constants=constants)
    places: list[list[Expr]] = [
        [Literal(value, kind) for value in _CONSTANTS_OF.get(function.name, CONSTANTS[kind])]
        if place in function.literals or place in constants or (place and function.name == "in")
        else [column(place, kind, intervals[place] if intervals else None)]
        for place, kind in enumerate(types)
    ]
    drawn = (_decimals(function, arguments) for arguments in itertools.product(*places))
    fitting = (
        built for arguments in drawn if arguments is not None and (built := build(function, arguments))
    )
    found = [call for call in itertools.islice(fitting, 400) if is_supported(call)]
    random.Random(function.name).shuffle(found)
    yield from found[:most]


def is_supported(call: Call) -> bool:
    """Return whether the installed engine has the function."""
    try:
        DUCKDB_COMPILER.emit_expression(call)
    except QueryRejected:
        return False
    return True


def _decimals(function: Function, arguments: Sequence[Expr]) -> Sequence[Expr] | None:
    """The arguments; of an entry of decimals alone, the first is cast to one with the digits that the others say."""
    if function.name != "cast_varchar decimal":
        return arguments
    cast = build(FUNCTIONS["cast_decimal"], arguments)
    return None if cast is None else (cast, Literal(MOST_PRECISION, Type.INTEGER), arguments[2])


def build(function: Function, arguments: Sequence[Expr]) -> Call | None:
    """What `lower` makes of an entry's arguments, where it takes them and means this entry."""
    try:
        built = resolve_call(QueryText(""), None, function.name, tuple(arguments))
    except QueryRejected:
        return None
    return built if isinstance(built, Call) and built.function is function else None


@dataclass(frozen=True)
class Bench:
    """An engine with the nasty values of each type."""

    connection: duckdb.DuckDBPyConnection

    @classmethod
    def open(cls) -> Bench:
        """A bench in memory."""
        connection = duckdb.connect()
        for kind, values in NASTY.items():
            connection.execute(f"CREATE TABLE {kind.name} (id INTEGER, c {kind.value})")
            connection.executemany(f"INSERT INTO {kind.name} VALUES (?, ?)", [*enumerate(values)])
            for place in range(len(values)):
                connection.execute(
                    f"CREATE TABLE {kind.name}_{place} AS SELECT c FROM {kind.name} WHERE id = {place}"
                )
        return cls(connection)

    def rows(self, call: Call, *items: str, read: str = "c") -> list[tuple[Any, ...]]:
        """The items over the combinations of nasty values for a call's columns: all, or some of too many."""
        source, names = self._source(call, read, MOST_ROWS)
        order = f" ORDER BY {names}" if names else ""
        return self.connection.execute(f"SELECT {', '.join(items)} FROM {source}{order}").fetchall()

    def of_texts(self, wanted: Sequence[Call], texts: Sequence[str | None]) -> list[tuple[Any, ...]]:
        """What calls over a column of texts are of each of these."""
        expressions = ", ".join(map(DUCKDB_COMPILER.emit_expression, wanted))
        found = self.connection.execute(
            f"SELECT {expressions} FROM (SELECT UNNEST(?) AS c) AS t0", [list(texts)]
        )
        return found.fetchall()

    def compute(self, call: Call, *items: str) -> None:
        """Computes the items in one statement over some of these combinations."""
        source, _ = self._source(call, "c", MOST_ROWS // 10)
        self.connection.execute(
            f"SELECT {', '.join(f'MAX({item})' for item in items)} FROM {source}"
        ).fetchall()

    def _source(self, call: Call, read: str, most: int) -> tuple[str, str]:
        """The FROM text that has a call's columns in all combinations, and the names of their order."""
        arguments = read_by(call)
        ids = [range(len(NASTY[argument.type])) for argument in arguments]
        if math.prod(map(len, ids)) > most:
            chance = random.Random(call.function.name)
            chosen = sorted({tuple(map(chance.choice, ids)) for _ in range(most)})
        else:
            chosen = list(itertools.product(*ids))
        names = ", ".join(f"i{place}" for place in range(len(ids)))
        values = ", ".join(f"({', '.join(map(str, row))})" for row in chosen)
        source = f"(VALUES {values}) AS chosen({names})" if arguments else "(SELECT 1)"
        joins = [
            f"JOIN {_table(argument, read)} ON {argument.source}.id = i{place}"
            for place, argument in enumerate(arguments)
        ]
        return f"{source} {' '.join(joins)}", names

    def run_single(self, call: Call, item: str, values: Sequence[str | None]) -> None:
        """Compute an item where each column's table holds one value alone."""
        tables = [
            f"{argument.type.name}_{NASTY[argument.type].index(value)} AS {argument.source}"
            for argument, value in zip(read_by(call), values, strict=True)
        ]
        self.connection.execute(f"SELECT {item} FROM {', '.join(tables) or '(SELECT 1)'}").fetchall()

    def plan(self, call: Call) -> str:
        """The engine's plan of a call, with all that it writes out; the columns are t0_c, t1_c and so on."""
        text, made = DUCKDB_COMPILER.emit_expression(call), []
        for argument in read_by(call):
            text = text.replace(f'"{argument.source}"."c"', f"{argument.source}_c")
            value = NASTY[argument.type][1]
            made.append(f"CAST('{value}' AS {argument.type.value}) AS {argument.source}_c")
        cursor = self.connection.cursor()
        cursor.execute("SET disabled_optimizers = 'common_subexpressions, statistics_propagation'")
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE planned AS SELECT {', '.join(made) or '1'} FROM range(2)"
        )
        ((_, plan),) = cursor.execute(f"EXPLAIN (FORMAT json) SELECT {text} FROM planned").fetchall()
        return str(json.loads(plan)[0]["extra_info"])


def read_by(call: Call) -> list[Column]:
    """The columns that a call reads, in order."""
    return sorted(set(iterate_columns(call)), key=lambda read: read.source)


def _table(argument: Column, read: str) -> str:
    kind = argument.type
    text = f'{read} COLLATE "binary"' if kind is Type.VARCHAR else read if kind is Type.INTEGER else "c"
    return f"(SELECT id, {text} AS c FROM {kind.name}) AS {argument.source}"


def texts(call: Call) -> list[str]:
    """The columns that a call reads, as text."""
    return [f"CAST({argument.source}.c AS VARCHAR)" for argument in read_by(call)]
