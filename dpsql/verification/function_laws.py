"""Laws of the functions: the SQL of every entry gives a value or NULL on every row, alone and beside every other entry.

Each entry is tried over every type that it takes, on combinations of nasty values, and with constants in their place, which
the engine computes while it plans. No error may come up: it would tell of a row.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from dpsql.plan.expressions import Call, Expr, Function, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.verification.calls import (
    CONSTANTS,
    NASTY,
    SIGNATURES,
    Bench,
    Signature,
    build,
    calls,
    column,
    format_signature,
    is_supported,
    read_by,
    signatures,
    texts,
)
from dpsql.verification.law import Law, require

_IN_CALENDAR = re.compile(r"(?!00)\d{4}-\d\d-\d\d( [\d:.]+)?")
"""A day or moment whose millennium, too, began in a year that columns can have."""
_FITTING = {Type.INTEGER: ("INTEGER",)}
"""Types that the engine takes wherever it takes the entry's own."""
_BESIDE = 40
"""Expressions in one statement."""


def check_rows(bench: Bench, function: Function) -> None:
    """Check that on every row there is a value that can be target_type, or NULL; and NULL only where the entry says so."""
    for types in signatures(function):
        for call in calls(function, types):
            for value, *arguments in bench.rows(
                call, f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS VARCHAR)", *texts(call)
            ):
                never_null = function.never_null or (function.strict and _is_ordinary(call, arguments))
                require(
                    value is not None or not never_null,
                    f"{DUCKDB_COMPILER.emit_expression(call)} is NULL of {arguments}",
                )


def _is_ordinary(call: Call, arguments: list[str | None]) -> bool:
    """Return whether no argument is NULL, moments are within the years of columns, and numbers where they are said to be."""
    pairs = list(zip(read_by(call), arguments, strict=True))
    moments = [value for read, value in pairs if read.type.temporal]
    if None in arguments or not all(_IN_CALENDAR.fullmatch(str(value)) for value in moments):
        return False
    known = [(value, read.facts.interval) for read, value in pairs if read.facts.interval.is_bounded]
    return all(value is not None and _is_within(float(value), around) for value, around in known)


def _is_within(value: float, around: Interval) -> bool:
    low, high = around.ends
    return low <= value <= high


@cache
def group_calls() -> Mapping[str, Sequence[Call]]:
    """Return the calls over the same columns, by the columns' names and types."""
    found: dict[str, list[Call]] = defaultdict(list)
    for function, types in SIGNATURES:
        for call in calls(function, types, most=2):
            found[" ".join(f"{read.source}:{read.type}" for read in read_by(call))].append(call)
    return found


def check_group(bench: Bench, group: str) -> None:
    """Check calls over the same columns in one statement.

    The engine computes shared expressions beforehand and without TRY: they must not fail either.
    """
    among = list(group_calls()[group])
    random.Random(group).shuffle(among)
    for start in range(0, len(among), _BESIDE):
        some = among[start : start + _BESIDE]
        bench.compute(
            some[0],
            *map(DUCKDB_COMPILER.emit_expression, some),
            *(f"({DUCKDB_COMPILER.emit_expression(call)} IS NULL)" for call in some),
        )


def check_constants(bench: Bench, function: Function, most: int = 8) -> None:
    """Check that a call of constants alone, of which some are NULL, never fails and gives what it gives of a row."""
    for types in signatures(function):
        for call in itertools.islice(_draw_constant_calls(function, types), most):
            kinds = [
                kind if argument.type is Type.NULL else argument.type
                for argument, kind in zip(call.arguments, types, strict=True)
            ]
            stored = tuple(
                argument if place in function.literals else column(place, kind)
                for place, (argument, kind) in enumerate(zip(call.arguments, kinds, strict=True))
            )
            row = ", ".join(
                f"(SELECT CAST({DUCKDB_COMPILER.emit_expression(argument)} AS {kind.value}) AS c) AS t{place}"
                for place, (argument, kind) in enumerate(zip(call.arguments, kinds, strict=True))
            )
            target_type = "DOUBLE" if call.type.numeric else "TIMESTAMP" if call.type.temporal else "VARCHAR"
            found = [
                bench.connection.execute(sql).fetchall()
                for sql in (
                    f"SELECT CAST({DUCKDB_COMPILER.emit_expression(call)} AS {target_type})",
                    f"SELECT CAST({DUCKDB_COMPILER.emit_expression(Call(function, stored, call.type))} AS {target_type}) FROM {row or '(SELECT 1)'}",
                )
            ]
            require(
                str(found[0]) == str(found[1]),
                f"{DUCKDB_COMPILER.emit_expression(call)} is {found[0]}, of a row {found[1]}",
            )


def _draw_constant_calls(function: Function, types: Signature) -> Iterator[Call]:
    chance = random.Random(f"{function.name} {format_signature(types)}")
    pools: list[list[Expr]] = [[Literal(value, kind) for value in CONSTANTS[kind]] for kind in types]
    for turn in range(300):
        nulls = 1.0 if turn == 0 else 0.1
        arguments = [
            Literal(None, Type.NULL)
            if place not in function.literals and chance.random() < nulls
            else chance.choice(pool)
            for place, pool in enumerate(pools)
        ]
        call = build(function, arguments)
        # DuckDB 1.x does not look at the options of a regular expression of NULL.
        of_values = build(
            function,
            [
                pool[0] if argument.type is Type.NULL else argument
                for argument, pool in zip(arguments, pools, strict=True)
            ],
        )
        if call is not None and of_values is not None and is_supported(call):
            yield call


def check_null_types(bench: Bench, function: Function) -> None:
    """Check that NULL in an argument's place leaves the type what the entry says, so that what is around it still fits."""
    for types in signatures(function):
        for place, kind in enumerate(types):
            if place in function.literals:
                continue
            arguments = [
                Literal(None, Type.NULL) if other == place else Literal(CONSTANTS[kind][0], kind)
                for other, kind in enumerate(types)
            ]
            call = build(function, arguments)
            if call is not None and call.type is not Type.NULL and is_supported(call):
                ((found,),) = bench.connection.execute(
                    f"SELECT TYPEOF({DUCKDB_COMPILER.emit_expression(call)})"
                ).fetchall()
                expected = (call.type.value, *_FITTING.get(call.type, ()))
                require(
                    found in expected,
                    f"{DUCKDB_COMPILER.emit_expression(call)} is a {found} for NULL of {kind}",
                )


def check_plans(bench: Bench, function: Function, most: int = 20) -> None:
    """Check that no table statistics let a plan fail: each value is its table's least and largest once."""
    for types in signatures(function):
        for call in calls(function, types, most=1):
            read = read_by(call)
            chance = random.Random(DUCKDB_COMPILER.emit_expression(call))
            values = [chance.choices(NASTY[argument.type], k=most) for argument in read]
            if len(read) == 1:
                values = [list(NASTY[read[0].type])]
            for row in zip(*values, strict=True):
                bench.run_single(call, f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS VARCHAR)", row)


def _list_parts(check: Any, items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    bench = Bench.open()
    for name, item in items:
        yield name, lambda item=item: check(bench, item)


def _of_each_function(check: Any) -> Any:
    return lambda: _list_parts(check, ((entry.signature, entry) for entry in FUNCTIONS.values()))


LAWS = (
    Law("duckdb", "functions", "no function or cast fails on any row", _of_each_function(check_rows)),
    Law(
        "duckdb",
        "shared expressions",
        "no function fails that is computed beside others",
        lambda: _list_parts(check_group, ((group or "constants", group) for group in group_calls())),
    ),
    Law(
        "duckdb",
        "constants",
        "a call of constants has the value that it has of a row",
        _of_each_function(partial(check_constants, most=3)),
    ),
    Law(
        "duckdb",
        "types of NULL",
        "NULL as an argument leaves the type of a call unchanged",
        _of_each_function(check_null_types),
    ),
    Law(
        "duckdb",
        "table statistics",
        "no function fails where a table has one value alone",
        _of_each_function(partial(check_plans, most=5)),
    ),
)
