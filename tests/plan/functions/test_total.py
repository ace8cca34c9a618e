"""The SQL of every entry gives a value or NULL on every row, alone and beside every other entry.

Each entry is tried over every type that it takes, on combinations of nasty values, and with constants in
their place, which the engine computes while it plans. No error may come up: it would tell of a row.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import duckdb
import pytest
from plan.functions.pools import (
    CONSTANTS,
    NASTY,
    SIGNATURES,
    Bench,
    Signature,
    build,
    calls,
    column,
    named,
    read_by,
    signatures,
    texts,
)

from dpsql.plan.expressions import Call, Column, Expr, Function, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions.durations import BUCKETS
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

_IN_CALENDAR = re.compile(r"(?!00)\d{4}-\d\d-\d\d( [\d:.]+)?")
"""A day or moment whose millennium, too, began in a year that columns can have."""
_WIDER = frozenset({"TIMESTAMP", "DOUBLE", "VARCHAR", "DATE", "BIGINT"})
"""Types to which arguments are cast without loss: each is the type of the argument, or a wider one."""
_HARMLESS = frozenset(
    {"nullif", "to_microseconds", *(f"to_{unit}s" for unit in BUCKETS)}  # the units of constants alone
)
_FITTING = {Type.INTEGER: ("INTEGER",)}
"""Types that the engine takes wherever it takes the entry's own."""
_BESIDE = 40
"""Expressions in one statement."""


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench.open()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_no_row_makes_a_function_fail(bench: Bench, function: Function) -> None:
    """On every row there is a value that can be shown, or NULL; and NULL only where the entry says so."""
    for types in signatures(function):
        for call in calls(function, types):
            for value, *arguments in bench.rows(
                call, f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS VARCHAR)", *texts(call)
            ):
                if function.never_null or (function.strict and _ordinary(call, arguments)):
                    assert value is not None, (DUCKDB_COMPILER.emit_expression(call), arguments)


def _ordinary(call: Call, arguments: list[str | None]) -> bool:
    """Whether no argument is NULL, moments are within the years that columns have, and numbers where they are said to be."""
    pairs = list(zip(read_by(call), arguments, strict=True))
    moments = [value for read, value in pairs if read.type.temporal]
    if None in arguments or not all(_IN_CALENDAR.fullmatch(str(value)) for value in moments):
        return False
    known = [(value, read.facts.interval) for read, value in pairs if read.facts.interval.is_bounded]
    return all(value is not None and _within(float(value), around) for value, around in known)


def _within(value: float, around: Interval) -> bool:
    low, high = around.ends
    return low <= value <= high


def test_every_entry_is_tried() -> None:
    """Each entry is called with every type, except whole numbers, which are rounded already."""
    untried = {function.name for function, types in SIGNATURES if not any(calls(function, types, most=1))}
    assert untried == {"floor", "ceil", "round", "trunc"}
    assert {function for function, _ in SIGNATURES} == set(FUNCTIONS.values())


@cache
def _beside() -> dict[str, list[Call]]:
    """The calls over the same columns, by the columns' names and types."""
    found: dict[str, list[Call]] = defaultdict(list)
    for function, types in SIGNATURES:
        for call in calls(function, types, most=2):
            found[" ".join(f"{read.source}:{read.type}" for read in read_by(call))].append(call)
    return found


@pytest.mark.parametrize("read", _beside())
def test_no_entry_makes_another_fail(bench: Bench, read: str) -> None:
    """The engine computes shared expressions beforehand and without TRY: they must not fail either."""
    among = list(_beside()[read])
    random.Random(read).shuffle(among)
    for start in range(0, len(among), _BESIDE):
        some = among[start : start + _BESIDE]
        bench.compute(
            some[0],
            *map(DUCKDB_COMPILER.emit_expression, some),
            *(f"({DUCKDB_COMPILER.emit_expression(call)} IS NULL)" for call in some),
        )


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_only_operations_in_try_can_fail(function: Function) -> None:
    """Within TRY the outermost operation alone can fail: the engine may compute its arguments outside."""
    places = {str(place): "1" for place in function.literals}
    written = re.sub(r"\{(\w+)\}", lambda hole: places.get(hole[1], "x"), function.sql)
    for attempt in _nodes(_tree(written.replace("CASE x END", "x")), _tries):
        (outermost,) = attempt["children"]
        for inner in _within_try(outermost):
            assert _harmless(inner), f"{inner.get('function_name') or inner['type']} in {function.sql}"


def _tree(sql: str) -> dict[str, Any]:
    text = duckdb.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [f"SELECT {sql}"]).fetchall()[0][0]
    (tree,) = json.loads(text)["statements"][0]["node"]["select_list"]
    return dict(tree)


def _nodes(tree: Any, wanted: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if wanted(tree):
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part, wanted)


def _tries(node: dict[str, Any]) -> bool:
    return node.get("type") == "OPERATOR_TRY"


def _within_try(outermost: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is computed below the outermost operation, but for what stands in a TRY of its own."""
    stack = list(outermost.values())
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            stack += part
        elif isinstance(part, dict) and not _tries(part):
            if part.get("class") in ("FUNCTION", "OPERATOR", "CAST", "CASE"):
                yield part
            stack += part.values()


def _harmless(node: dict[str, Any]) -> bool:
    """What gives a value for whatever total expressions give it."""
    if node["class"] == "CAST":
        kind = node["type_expr"]["type_name"] if "type_expr" in node else node["cast_type"]["id"]
        return bool(node["try_cast"]) or kind in _WIDER
    return str(node.get("function_name")).lower() in _HARMLESS


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_constants_match_columns(bench: Bench, function: Function) -> None:
    """A call of constants alone, of which some are NULL, never fails and gives what it gives of a row."""
    for types in signatures(function):
        for call in itertools.islice(_of_constants(function, types), 8):
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
            shown = "DOUBLE" if call.type.numeric else "TIMESTAMP" if call.type.temporal else "VARCHAR"
            found = [
                bench.connection.execute(sql).fetchall()
                for sql in (
                    f"SELECT CAST({DUCKDB_COMPILER.emit_expression(call)} AS {shown})",
                    f"SELECT CAST({DUCKDB_COMPILER.emit_expression(Call(function, stored, call.type))} AS {shown}) FROM {row or '(SELECT 1)'}",
                )
            ]
            assert str(found[0]) == str(found[1]), DUCKDB_COMPILER.emit_expression(call)


def _of_constants(function: Function, types: Signature) -> Iterator[Call]:
    chance = random.Random(f"{function.name} {named(types)}")
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
        if call is not None:
            yield call


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_null_has_the_type_of_values(bench: Bench, function: Function) -> None:
    """NULL in an argument's place leaves the type what the entry says, so what is around it still fits."""
    for types in signatures(function):
        for place, kind in enumerate(types):
            if place in function.literals:
                continue
            arguments = [
                Literal(None, Type.NULL) if other == place else Literal(CONSTANTS[kind][0], kind)
                for other, kind in enumerate(types)
            ]
            call = build(function, arguments)
            if call is not None and call.type is not Type.NULL:
                ((found,),) = bench.connection.execute(
                    f"SELECT TYPEOF({DUCKDB_COMPILER.emit_expression(call)})"
                ).fetchall()
                assert found in (call.type.value, *_FITTING.get(call.type, ())), (
                    DUCKDB_COMPILER.emit_expression(call),
                    kind,
                )


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_no_plan_makes_a_function_fail(bench: Bench, function: Function) -> None:
    """No table statistics let a plan fail: each value is its table's least and largest once."""
    for types in signatures(function):
        for call in calls(function, types, most=1):
            read = read_by(call)
            chance = random.Random(DUCKDB_COMPILER.emit_expression(call))
            values = [chance.choices(NASTY[argument.type], k=20) for argument in read]
            if len(read) == 1:
                values = [list(NASTY[read[0].type])]
            for row in zip(*values, strict=True):
                bench.alone(call, f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS VARCHAR)", row)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_engine_expands_no_more_than_declared(bench: Bench, function: Function) -> None:
    """Each argument stands in the engine's plan as often as declared: nesting grows no faster."""
    for types in signatures(function):
        for call in calls(function, types, most=1):
            counts = Counter(re.findall(r"\bt\d+_c\b", bench.plan(call)))
            for place, argument in enumerate(call.arguments):
                if isinstance(argument, Column):
                    assert counts[f"t{place}_c"] <= 1 + (place in function.doubled_arguments), bench.plan(
                        call
                    )


@pytest.mark.parametrize(
    "sql",
    [
        "t0.c // t1.c",
        "t0.c % t1.c",
        "t0.c << t1.c",
        "FACTORIAL(TRY_CAST(t0.c AS INTEGER)) + t1.c",
        "CHR(TRY_CAST(t0.c + t1.c AS INTEGER))",
        "MAKE_DATE(t0.c, t1.c, 1)",
    ],
)
def test_plain_functions_fail(sql: str) -> None:
    """The values are nasty enough: without guards the engine raises."""
    divide = FUNCTIONS["quotient"]
    call = Call(divide, (column(0, Type.INTEGER), column(1, Type.INTEGER)), Type.INTEGER)
    with pytest.raises(duckdb.Error):
        Bench.open().rows(call, sql)


def test_values_include_every_special() -> None:
    """NaN, infinities, the ends of every range, NUL characters and NULL are among the values."""
    assert {"nan", "inf", "-inf", "-0.0", None} <= set(NASTY[Type.DOUBLE])
    assert {str(2**63 - 1), str(-(2**63)), None} <= set(NASTY[Type.INTEGER])
    assert {"infinity", "-infinity", None} <= set(NASTY[Type.DATE]) & set(NASTY[Type.TIMESTAMP])
    assert any("\0" in text for text in NASTY[Type.VARCHAR] if text)
