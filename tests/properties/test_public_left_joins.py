"""public LEFT JOIN private: the release of the INNER JOIN, and DuckDB's answer for every aggregate that is accepted."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from properties.worlds import Database, Row, World, policy

import dpsql
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.plan.expressions import Call, Expr, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions.signatures import ANY
from dpsql.plan.types import Type, Value
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.from_clause import PROPAGATING

JOINED = "p LEFT JOIN t ON t.k = p.k"
ACCEPTED = (
    "COUNT(u)",
    "COUNT(DISTINCT u)",
    "COUNT(x + w)",
    "COUNT(CASE WHEN x > 0 AND w > 0 THEN 1 END)",
    "COUNT(CASE WHEN i IS NULL THEN x WHEN x > 1 THEN 2 END)",
    "COUNT(i) FILTER (WHERE w > 0)",
    "COUNT(i) FILTER (WHERE i > 1 OR x > 0)",
    "AVG(CAST(i AS DOUBLE) * w)",
    "MAX(i)",
)
REFUSED = (
    "COUNT(*)",
    "COUNT(1)",
    "SUM(w)",
    "COUNT(COALESCE(x, w))",
    "COUNT(CASE WHEN x > 0 THEN 1 ELSE 0 END)",
    "COUNT_IF(i IS NULL)",
    "COUNT_IF(x > 0 OR w > 0)",
    "COUNT_IF(x > 0 IS NOT TRUE)",
    "COUNT(GREATEST(x, w))",
    "COUNT(*) FILTER (WHERE w > 0)",
    "MODE(w > 0)",
)
DATABASES: list[Database] = [
    (),
    (Row(1, "B", x=0.5, i=2),),
    tuple(Row(unit, ("A", "B", None)[unit % 3], x=unit / 4 - 1, i=unit % 6) for unit in range(12)),
]


@pytest.mark.parametrize("called", ACCEPTED)
def test_left_join_is_the_release_of_the_inner_join(called: str) -> None:
    """The same rows, groups and charge: no rule of privacy is new."""
    world = World(policy())
    kept, inner, turned = (
        world.prepare(f"SELECT p.k, {called} FROM {joined} GROUP BY p.k").releases
        for joined in (JOINED, JOINED.replace("LEFT", "INNER"), "t RIGHT JOIN p ON t.k = p.k")
    )
    for ours, theirs in itertools.product((kept, turned), (inner,)):
        assert [each.release.keys for each in ours] == [each.release.keys for each in theirs]
        assert [each.plan.event for each in ours] == [each.plan.event for each in theirs]
        assert [each.statement.sql for each in ours] == [each.statement.sql for each in theirs]


@pytest.fixture(scope="module")
def exact() -> World:
    """A world in which noise is next to nothing."""
    return World({**policy(unit="u", rows=1), "budget": {"epsilon": 10**9, "delta": 1e-6}})


@pytest.mark.parametrize("called", [called for called in ACCEPTED if called.startswith("COUNT")])
@pytest.mark.parametrize("rows", DATABASES, ids=len)
def test_public_left_joins_match_duckdb(exact: World, rows: Database, called: str) -> None:
    """Empty groups are included: all that p has are shown."""
    exact.hold(rows)
    sql = f"SELECT p.k, {called} FROM {JOINED} GROUP BY p.k ORDER BY p.k"
    result = answer_query(
        exact.engine, plan_and_match(exact.engine, Query(sql, epsilon=Fraction(10**6), replay=False))
    )
    expected = exact.connection.execute(sql).fetchall()
    assert [key for key, _ in result.rows] == [key for key, _ in expected]
    for (_, ours), (_, theirs) in zip(result.rows, expected, strict=True):
        assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-3))


@pytest.mark.parametrize("called", REFUSED)
def test_value_of_missing_rows_is_refused(called: str) -> None:
    """The answer would differ from that of the INNER JOIN."""
    with pytest.raises(dpsql.QueryRejected, match="without a private row"):
        World(policy()).prepare(f"SELECT {called} FROM {JOINED}")


@pytest.mark.parametrize(
    ("keys", "rules"),
    [("p.k, w", {}), ("s", {}), ("CASE WHEN w > 0 THEN s END", {}), ("p.k", {"min_frequency": 3})],
    ids=str,
)
def test_hidden_groups_are_refused_in_a_left_join(keys: str, rules: dict[str, Any]) -> None:
    """Empty groups would be missing where noise decides which groups exist."""
    for called in (keys, f"{keys}, COUNT(x)"):
        with pytest.raises(dpsql.QueryRejected, match="would be missing"):
            World(policy(**rules)).prepare(f"SELECT {called} FROM {JOINED} GROUP BY {keys}")


def test_too_many_looked_up_groups_are_refused() -> None:
    """Few values of a public table are all shown; of very many, only those that have rows."""
    world = World(policy())
    for values, accepted in ((1000, True), (1001, False)):
        world.connection.execute(
            f"CREATE OR REPLACE TABLE p AS SELECT range::VARCHAR AS k, 1.5 AS w FROM range({values})"
        )
        with nullcontext() if accepted else pytest.raises(dpsql.QueryRejected, match="would be missing"):
            world.prepare(f"SELECT p.k, COUNT(x) FROM {JOINED} GROUP BY p.k")


SAMPLES: dict[Type, Value] = {
    Type.INTEGER: 1,
    Type.DOUBLE: 1.5,
    Type.VARCHAR: "a",
    Type.BOOLEAN: True,
    Type.DATE: dt.date(2024, 2, 29),
    Type.TIMESTAMP: dt.datetime(2024, 2, 29, 10),
    Type.TIME: dt.time(10, 30),
    Type.UUID: uuid.UUID(int=5),
    Type.BLOB: b"a",
}


@pytest.mark.parametrize("name", sorted(PROPAGATING))
def test_functions_of_null_arguments_are_null(name: str) -> None:
    """Each of them, of all types that it takes, at each place, as the engine writes it."""
    function, database, tried = FUNCTIONS[name], duckdb.connect(), 0
    for width in (1, 2, 3):
        for types in itertools.product((kind for kind in ANY if kind in SAMPLES), repeat=width):
            result = function.result(types)
            if result is None:
                continue
            for place in set(range(width)) - function.literals:
                arguments: list[Expr] = [
                    Literal(None if at == place else SAMPLES[kind], kind) for at, kind in enumerate(types)
                ]
                written = DUCKDB_COMPILER.emit_expression(Call(function, tuple(arguments), result))
                assert database.execute(f"SELECT {written} IS NULL").fetchall() == [(True,)], written
                tried += 1
    assert tried
