"""Aggregated values are clamped to their interval even where the interval is wrong."""

from __future__ import annotations

import dataclasses

import pytest
from properties.worlds import DEFAULT, World, X, policy

from dpsql.analysis.release_analysis import Lattice
from dpsql.plan.aggregates import Moment
from dpsql.plan.interval import Interval
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.statement import emit_release


@pytest.mark.parametrize("unit", ["u", "row"])
@pytest.mark.parametrize("expression", ["x + 0", "-x", "i * 2", "CAST(x AS BIGINT)", "x"])
def test_clamp_holds_for_a_wrong_interval(expression: str, unit: str) -> None:
    """A unit's total stays within rows times the lattice's ends for any derived interval.

    So no guarantee rests on interval arithmetic.
    """
    world = World(policy(unit=unit, rows=1))
    analysis = world.prepare(f"SELECT SUM({expression}) FROM t").plan.analysis
    wrong = Interval(0, 1)
    (measure,) = analysis.measures
    narrowed = dataclasses.replace(
        measure,
        interval=wrong,
        lattice=Lattice.from_interval(wrong, integral=measure.expr.type.name == "INTEGER"),
    )
    statement = emit_release(DUCKDB_COMPILER, dataclasses.replace(analysis, measures=(narrowed,)))
    assert narrowed.lattice is not None
    for value in X:
        world.hold([DEFAULT._replace(x=value, i=5)])
        (row,) = world.engine.backend.run_statement(statement.sql).reveal()
        moments = dict(zip(statement.moments.values(), row, strict=True))
        total = moments[Moment.TOTAL, 0] or 0
        assert narrowed.lattice.low <= total <= narrowed.lattice.high


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("COUNT(z)", 2),
        ("COUNT(z - z)", 1),
        ("COUNT(z * 0)", 1),
        ("COUNT(CAST('nan' AS DOUBLE))", 0),
        ("COUNT(-z)", 2),
    ],
)
def test_nan_counts_as_null(aggregate: str, expected: int) -> None:
    """NaN in a column or made by arithmetic on infinities is skipped as NULL is."""
    rules = policy(unit="row")
    rules["tables"]["t"]["columns"]["z"] = {"type": "double"}
    world = World(rules, extra="z DOUBLE DEFAULT NULL")
    world.connection.execute("INSERT INTO t (z) VALUES ('nan'), ('inf'), (1), (NULL)")
    prepared = world.prepare(f"SELECT {aggregate} FROM t")
    (row,) = world.engine.backend.run_statement(prepared.statement.sql).reveal()
    assert dict(zip(prepared.statement.moments.values(), row, strict=True))[Moment.COUNT, 0] == expected
