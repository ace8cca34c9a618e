"""Functions of windows over released rows: what the engine forbids within TRY is computed before, and means the same."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import uuid
from collections.abc import Iterator

import duckdb
import pytest

from dpsql.plan.expressions import Call, Expr, Function, ReleasedColumn, WindowCall
from dpsql.plan.functions import CALLS, build_typed_call, get_overloads
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from tests.sql.study import study

SAMPLES: dict[Type, list[object]] = {
    Type.INTEGER: [0, 2, -3, 2**62],
    Type.DOUBLE: [0.0, 0.5, -2.5, 1e300],
    Type.VARCHAR: ["a", "2", ""],
    Type.BOOLEAN: [True],
    Type.DATE: [dt.date(2024, 2, 29)],
    Type.TIMESTAMP: [dt.datetime(2024, 2, 29, 12)],
    Type.TIME: [dt.time(12, 34)],
    Type.UUID: [uuid.UUID(int=1)],
    Type.BLOB: [b"a"],
}


def tried() -> Iterator[tuple[str, Function, tuple[Type, ...]]]:
    """The functions that are written with TRY, with types that they take and no constants among them."""
    seen = set[tuple[int, tuple[Type, ...]]]()
    for name in CALLS:
        for function in get_overloads(name):
            if "TRY(" not in function.sql or function.literals:
                continue
            for number in (1, 2, 3):
                for types in itertools.product(SAMPLES, repeat=number):
                    if function.result(types) is not None and (id(function), types) not in seen:
                        seen.add((id(function), types))
                        yield name, function, types


TRIED = list(tried())


def window(of: Expr) -> WindowCall:
    return WindowCall("max", (of,), (), (), None, ignore_nulls=False, type=of.type)


@pytest.mark.parametrize("place", range(0, len(TRIED), 12))
def test_function_of_a_window_matches_its_value(place: int) -> None:
    """Each function is tried on ordinary and extreme values, and on NULL."""
    engine = duckdb.connect()
    for name, function, types in TRIED[place : place + 12]:
        plain: tuple[Expr, ...] = tuple(ReleasedColumn(f"c{at}", kind) for at, kind in enumerate(types))
        asked = [plain, tuple(map(window, plain)), (window(plain[0]), *plain[1:])]
        for values in [
            *itertools.islice(itertools.product(*(SAMPLES[kind] for kind in types)), 9),
            (None,) * len(types),
        ]:
            rows = ", ".join(
                f"{DUCKDB_COMPILER.emit_cast('NULL', kind) if value is None else DUCKDB_COMPILER.emit_constant(value)} AS c{at}"  # type: ignore[arg-type]
                for at, (kind, value) in enumerate(zip(types, values, strict=True))
            )
            calls = [build_typed_call(function, arguments) for arguments in asked]
            texts = [DUCKDB_COMPILER.emit_expression(call) for call in calls if isinstance(call, Call)]
            (found,) = engine.execute(f"SELECT {', '.join(texts)} FROM (SELECT {rows})").fetchall()
            assert len(texts) == 3
            assert str(found[0]) == str(found[1]) == str(found[2]), (name, values)


@pytest.mark.parametrize(
    "asked",
    [
        "EXP(SUM(n) OVER ())",
        "EXP(LN(SUM(n) OVER ()))",
        "SQRT(n - SUM(n) OVER ())",
        "POWER(SUM(n) OVER (), n)",
        "POWER(n, ROW_NUMBER() OVER (ORDER BY plan))",
        "LN(SUM(n) OVER (ORDER BY plan))",
        "CASE WHEN SQRT(SUM(n) OVER ()) > 2 THEN LOG10(MAX(n) OVER ()) END",
    ],
)
def test_released_values_match_duckdb(asked: str) -> None:
    """SELECT, ORDER BY and QUALIFY treat infinities and NaN as DuckDB does."""
    con = study()
    groups = con.query("SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan").rows
    rows = ", ".join(
        f"({DUCKDB_COMPILER.emit_constant(plan)}, {DUCKDB_COMPILER.emit_constant(n)})" for plan, n in groups
    )
    query = (
        f"SELECT plan, {asked} AS y FROM {{}} QUALIFY COALESCE({asked}, 1) IS NOT NULL ORDER BY {asked}, plan"
    )
    ours = con.query(query.format("(SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan) AS g")).rows
    theirs = duckdb.sql(query.format(f"(VALUES {rows}) AS g(plan, n)")).fetchall()
    assert [plan for plan, _ in ours] == [plan for plan, _ in theirs]
    for (_, mine), (_, known) in zip(ours, theirs, strict=True):
        assert mine == known or math.isclose(mine, known) or (math.isnan(mine) and math.isnan(known))


def test_constants_stay_constants() -> None:
    """An argument that must be a constant is one within TRY, too."""
    con = study()
    rounded = con.query(
        "SELECT ROUND(EXP(SUM(n) OVER () * 0.0), 2) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)"
    )
    assert {value for (value,) in rounded.rows} == {1.0}
