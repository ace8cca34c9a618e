"""The SQL of every entry gives a value or NULL on every row, alone and beside every other entry.

The laws are those of `dpsql engines verify`: no error may come up, since it would tell of a row.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from plan.functions.pools import NASTY, SIGNATURES, Bench, calls, column, signatures

from dpsql.backends.duckdb.versions import supports
from dpsql.plan.expressions import Call, Column, Function
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions.durations import BUCKETS
from dpsql.plan.types import Type
from dpsql.verification import function_laws

_WIDER = frozenset({"TIMESTAMP", "DOUBLE", "VARCHAR", "DATE", "BIGINT"})
"""Types to which arguments are cast without loss: each is the type of the argument, or a wider one."""
_HARMLESS = frozenset(
    {"nullif", "to_microseconds", *(f"to_{unit}s" for unit in BUCKETS)}  # the units of constants alone
)
by_name = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench.open()


@pytest.mark.sampled(1)
@by_name
def test_no_row_makes_a_function_fail(bench: Bench, function: Function) -> None:
    """On every row there is a value that can be shown, or NULL; and NULL only where the entry says so."""
    function_laws.check_rows(bench, function)


@pytest.mark.parametrize("read", function_laws.group_calls())
def test_no_entry_makes_another_fail(bench: Bench, read: str) -> None:
    """The engine computes shared expressions beforehand and without TRY: they must not fail either."""
    function_laws.check_group(bench, read)


@by_name
def test_constants_match_columns(bench: Bench, function: Function) -> None:
    """A call of constants alone, of which some are NULL, never fails and gives what it gives of a row."""
    function_laws.check_constants(bench, function)


@by_name
def test_null_has_the_type_of_values(bench: Bench, function: Function) -> None:
    """NULL in an argument's place leaves the type what the entry says, so what is around it still fits."""
    function_laws.check_null_types(bench, function)


@by_name
def test_no_plan_makes_a_function_fail(bench: Bench, function: Function) -> None:
    """No table statistics let a plan fail: each value is its table's least and largest once."""
    function_laws.check_plans(bench, function)


def test_every_entry_is_tried() -> None:
    """Each entry is called with every type, except whole numbers, which are rounded already."""
    untried = {function.name for function, types in SIGNATURES if not any(calls(function, types, most=1))}
    missing = set() if supports("overlay") else {"overlay", "overlay_length"}
    assert untried == {"floor", "ceil", "round", "trunc"} | missing
    assert {function for function, _ in SIGNATURES} == set(FUNCTIONS.values())


@by_name
def test_only_operations_in_try_can_fail(function: Function) -> None:
    """Within TRY the outermost operation alone can fail: the engine may compute its arguments outside."""
    if function.name.startswith("overlay") and not supports("overlay"):
        return
    places = {str(place): "1" for place in function.literals}
    written = re.sub(r"\{(\w+)\}", lambda hole: places.get(hole[1], "x"), function.sql)
    for attempt in _nodes(_tree(written.replace("CASE x END", "x")), _tries):
        (outermost,) = attempt["children"]
        for inner in _within_try(outermost):
            assert _harmless(inner), f"{inner.get('function_name') or inner['type']} in {function.sql}"


def _tree(sql: str) -> dict[str, Any]:
    with duckdb.connect() as scratch:
        asked = scratch.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [f"SELECT {sql}"])
        ((text,),) = asked.fetchall()
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


@by_name
def test_engine_expands_no_more_than_declared(bench: Bench, function: Function) -> None:
    """Each argument stands in the engine's plan as often as declared: nesting grows no faster."""
    if function.name == "cast_time" and not supports("total_moments"):
        return  # a time is no moment, so that this is not nested
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
