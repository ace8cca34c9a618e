"""Every function of the registry, on every type that it takes and every value of the tiny schema.

Claim by claim of its entry: the engine never fails, gives the type that the entry says, stays within the
interval, and is NULL where the entry is strict only if an argument is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from properties.databases import Content, Row, holding
from properties.expressions import Signature, build, constant_places, constants, signatures
from properties.oracle import Bench
from properties.schema import SCHEMA, Rules

from dpsql.analysis.intervals import derive_interval
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.plan.expressions import Call, Column, Expr, iterate_columns
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.interval import ANYWHERE, find_position
from dpsql.plan.types import Type, Value
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, quote_identifier

BENCH = Bench()
CATALOG = BENCH.engine(Rules()).catalog
TABLES = ("t", "v")
MOST_SCANS = 3
"""Scans that the arguments of a call are spread over."""
MOST_CALLS = 300
"""Calls of one signature that are tried."""
SLACK = Fraction(1, 10**9)
"""What rounding of floats may add to a bound, relative to its size."""


def content(table: str) -> Content:
    """A row for each value of the table's longest column, the others' values over and over."""
    held = {name: column.values for name, column in SCHEMA[table].columns.items() if column.values}
    most = max(map(len, held.values()))
    rows = (Row(1, tuple(values[n % len(values)] for values in held.values())) for n in range(most))
    return Content(tuple(held), tuple(rows))


def arguments(name: str, types: Signature, table: str) -> Iterator[tuple[Expr, ...]]:
    """Arguments of these types: columns, the first places' each of a scan of its own, or constants."""
    function, most = FUNCTIONS[name], None if len(types) < 3 else 2 if len(types) < 5 else 1
    places = constant_places(function, len(types))
    free = [place for place in range(len(types)) if place not in places]
    choices: list[Sequence[Column]] = []
    for place in free:
        held = CATALOG.tables[table].columns.values()
        source = f"{table}{min(place, MOST_SCANS - 1)}"
        fitting = [Column(source, spelt, facts) for spelt, facts in held if facts.type is types[place]]
        choices.append(fitting[:most])
    for read, given in itertools.product(itertools.product(*choices), constants(name, types)):
        known = dict(zip((*free, *places), (*read, *given), strict=True))
        yield tuple(known[place] for place in range(len(types)))


def sources(calls: Sequence[Call], table: str) -> str:
    """The scans that calls read, every row of one beside every row of the others."""
    read = {(column.source, column.name): column for call in calls for column in iterate_columns(call)}
    scans = []
    for source in sorted({source for source, _ in read}):
        items = (
            f"{DUCKDB.columns.emit_bounded_column(column)} AS {quote_identifier(column.name)}"
            for column in read.values()
            if column.source == source
        )
        scans.append(f"(SELECT {', '.join(items)} FROM {table}) AS {quote_identifier(source)}")
    return ", ".join(scans)


def measured(call: Call) -> str:
    """The least and the largest value, how often NULL comes of arguments that are not, and the type."""
    text = DUCKDB_COMPILER.emit_expression(call)
    value = f"NULLIF({text}, CAST('NaN' AS DOUBLE))" if call.type is Type.DOUBLE else text
    ends = [f"{end}({value})" if derive_interval(call) != ANYWHERE else "NULL" for end in ("MIN", "MAX")]
    there = (
        " AND ".join(
            f"{DUCKDB_COMPILER.emit_expression(argument)} IS NOT NULL" for argument in call.arguments
        )
        or "TRUE"
    )
    return ", ".join([*ends, f"COUNT_IF({text} IS NULL AND {there})", f"MIN(typeof({text}))"])


def calls(name: str, table: str) -> Iterator[list[Call]]:
    """Calls of an entry, by the types of its arguments; what has no name in SQL, the text of a DECIMAL, by a cast of one."""
    spelt = "cast_decimal" if name == "cast_varchar decimal" else name
    for types, _ in signatures(FUNCTIONS[spelt]):
        built = (build(spelt, *given) for given in arguments(spelt, types, table))
        if spelt != name:
            built = (build("cast_varchar", each) for each in built if each is not None)
        taken = (
            call for call in built if isinstance(call, Call) and (any(iterate_columns(call)) or not types)
        )
        yield list(itertools.islice(taken, MOST_CALLS))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_registry_entry_holds_its_claims(name: str) -> None:
    """Total, of its type, within its interval, strict where it says so: for every value of every type."""
    tried = 0
    every = ((table, found) for table in TABLES for found in calls(name, table) if found)
    for held, found in every:
        with holding(BENCH.connection, {held: content(held)}):
            (row,) = BENCH.backend.run_statement(
                f"SELECT {', '.join(map(measured, found))} FROM {sources(found, held) or '(SELECT 1)'}"
            ).reveal()
        for place, call in enumerate(found):
            low, high, nulls, kind = row[4 * place : 4 * place + 4]
            assert_within(low, call)
            assert_within(high, call)
            assert not (call.function.strict and nulls), f"{call} is NULL where its arguments are not"
            assert kind == call.type.value
        tried += len(found)
    assert tried


def assert_within(value: Value, call: Call) -> None:
    """The value lies in the call's interval, rounding of floats aside."""
    known, at = derive_interval(call), find_position(value)
    if at is not None:
        slack = SLACK * (1 + abs(at))
        assert known.low is None or known.low - at <= slack, f"{call} can be {value}, below {known}"
        assert known.high is None or at - known.high <= slack, f"{call} can be {value}, above {known}"
    elif isinstance(value, float):
        assert (known.high if value > 0 else known.low) is None, f"{call} can be {value}"
