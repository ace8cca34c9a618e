"""Regressions and covariance matrices: the same numbers as NumPy's from plain DuckDB, near ones from dpsql, with true intervals."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest
from entropy import SeededEntropy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dpsql
from dpsql.api.connection import Connection
from dpsql.results.covariance import project_semidefinite
from dpsql.sql.regression import build_covariance_query, regression

NAMES = ("age", "days", "income", "distance")


def patients(number: int, seed: int = 1) -> dict[str, list[Any]]:
    """Patients whose cost follows from four columns, one of which depends on another; some values are missing."""
    draw = np.random.default_rng(seed)
    age, income = draw.integers(20, 80, number), draw.uniform(0, 100, number).round(2)
    days = draw.integers(0, 10, number) + 3 * (age > 60)
    distance = draw.integers(0, 40, number)
    plan = draw.integers(0, 2, number)
    cost = 5 * age + 30 * days * (1 + plan) + 2 * income - distance + draw.normal(0, 20, number)
    found = {"age": age, "days": days, "income": income, "distance": distance, "cost": cost.clip(0, 2000)}
    columns: dict[str, list[Any]] = {name: series.tolist() for name, series in found.items()}
    for values in columns.values():
        for place in draw.integers(0, number, number // 50):
            values[place] = None
    return {"id": list(range(number)), "plan": ["AB"[each] for each in plan], **columns}


def opened(number: int, accountant: str = "zcdp") -> tuple[duckdb.DuckDBPyConnection, Connection]:
    """The table in plain DuckDB, and a connection to it."""
    rows = patients(number)
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        f"CREATE TABLE visits AS SELECT {', '.join(f'unnest(?) AS {name}' for name in rows)}",
        list(rows.values()),
    )
    bounds = {"age": [20, 80], "days": [0, 15], "income": [0, 100], "distance": [0, 40], "cost": [0, 2000]}
    columns = {
        name: {"type": "integer" if name in ("age", "days", "distance") else "double", "bounds": ends}
        for name, ends in bounds.items()
    }
    columns["plan"] = {"type": "varchar", "values": ["A", "B"], "nullable": False}
    policy = {
        "version": 1,
        "privacy_unit": "patient",
        "budget": {"epsilon": 2_000, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant},
        "tables": {"visits": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    return database, dpsql.connect(database, policy=policy, ledger=":memory:")


def exact(database: duckdb.DuckDBPyConnection, names: tuple[str, ...], plan: str) -> np.ndarray:
    """NumPy's coefficients, over rows in which all have a value."""
    there = " AND ".join(f"{name} IS NOT NULL" for name in ("cost", *names))
    rows = np.array(
        database.execute(
            f"SELECT cost, {', '.join(names)} FROM visits WHERE plan = '{plan}' AND {there}"
        ).fetchall()
    )
    design = np.column_stack([np.ones(len(rows)), rows[:, 1:]])
    found: np.ndarray = np.linalg.lstsq(design, rows[:, 0], rcond=None)[0]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_statement_is_least_squares(size: int) -> None:
    """In plain DuckDB it gives NumPy's coefficients."""
    database, con = opened(800)
    con.close()
    names = NAMES[:size]
    asked = regression("cost", names, "visits", "plan")
    for plan, *found in database.execute(asked.sql).fetchall():
        assert np.allclose(found, exact(database, names, plan), rtol=1e-6, atol=1e-6)
    assert asked.names == ("intercept", *names)


def test_coefficients_are_near_and_their_intervals_hold() -> None:
    """At a large loss they are NumPy's; at a usual one each exact coefficient lies within the interval, nearly always.

    The noise is the same in each run: one fit in ten misses a coefficient, and often several.
    """
    database, con = opened(10_000)
    object.__setattr__(con.engine, "entropy", SeededEntropy(1))
    with con:
        near = con.regress("cost", ["age", "days"], source="visits", by="plan", epsilon=300)
        assert near.columns == ("plan", "intercept", "age", "days")
        for plan, *found in near.rows:
            assert np.allclose(found, exact(database, ("age", "days"), plan), rtol=0.01, atol=0.5)
        held = total = 0
        for _ in range(3):
            usual = con.regress("cost", ["age", "days"], source="visits", by="plan", epsilon=1, replay=False)
            for (plan, *_), (_, *ends) in zip(usual.rows, usual.intervals(), strict=True):
                for (low, high), truth in zip(ends, exact(database, ("age", "days"), plan), strict=True):
                    held, total = held + (low <= truth <= high), total + 1
        assert held >= 0.8 * total


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_regressions_and_covariances_cost_one_query(accountant: str) -> None:
    _, con = opened(200, accountant)
    with con:
        found = con.regress("cost", {"years": "age"}, source="visits", by={"kind": "plan"}, epsilon=0.5)
        assert found.columns == ("kind", "intercept", "years")
        (state,) = [con.engine.ledger.get_state("visits")]
        spent = state.spent.loss
        con.query("SELECT COUNT(*) FROM visits", epsilon=0.5)
        assert con.engine.ledger.get_state("visits").spent.loss <= 2 * spent
        assert spent <= con.engine.ledger.get_state("visits").spent.loss - spent


def test_constant_columns_have_null_coefficients() -> None:
    """DuckDB has NULL for equal and for constant columns; over no rows both have NULL, without an error."""
    database, con = opened(300)
    with con:
        for x in (["age", "age + 0"], ["age - age + 1"]):
            asked = regression("cost", x, "visits")
            ((_, *slopes),) = database.execute(asked.sql).fetchall()
            assert slopes == [None] * len(x)
            con.regress("cost", x, source="visits", epsilon=1)
        con.regress("cost", NAMES[:2], source="visits WHERE age > 79 AND age < 80", epsilon=0.01)
        assert (
            con.covariance(NAMES[:2], source="visits WHERE age > 79 AND age < 80", epsilon=0.01) is not None
        )


def test_covariances_are_numpys_and_positive_semidefinite() -> None:
    database, con = opened(5_000)
    with con:
        found = con.covariance(("age", "days", "cost"), source="visits", by="plan", epsilon=300)
        assert [matrix.keys for matrix in found] == [{"plan": "A"}, {"plan": "B"}]
        for matrix in found:
            rows = database.execute(
                "SELECT age, days, cost FROM visits WHERE plan = ? AND age IS NOT NULL AND days IS NOT NULL AND cost IS NOT NULL",
                [matrix.keys["plan"]],
            ).fetchall()
            assert np.allclose(matrix.matrix, np.cov(np.array(rows).T, bias=True), rtol=0.01, atol=0.5)
            low, high = matrix.intervals[0][1] or (0, 0)
            assert low <= matrix.released[0, 1] <= high
        for matrix in con.covariance(NAMES, source="visits", epsilon=0.01):
            assert np.linalg.eigvalsh(matrix.matrix).min() > -1e-6
            assert matrix.df().shape == (4, 4)


SQUARES = arrays.arrays(np.float64, (3, 3), elements=st.floats(-100, 100))


@given(SQUARES, SQUARES)
def test_a_projection_leads_no_further_away(factor: np.ndarray, noise: np.ndarray) -> None:
    """From any positive semidefinite matrix, with any symmetric noise."""
    truth = factor @ factor.T
    noisy = truth + (noise + noise.T) / 2
    found = project_semidefinite(noisy)
    assert np.linalg.norm(found - truth) <= np.linalg.norm(noisy - truth) + 1e-6
    assert np.linalg.eigvalsh(found).min() >= -1e-6


@pytest.mark.parametrize(
    ("x", "by"),
    [([], ()), (list("abcde"), ()), (["age", "age"], ()), (["Age"], ["age"]), (["intercept"], ())],
    ids=str,
)
def test_names_are_checked(x: Any, by: Any) -> None:
    with pytest.raises(dpsql.ProgrammingError) as caught:
        regression("cost", x, "visits", by)
    assert caught.value.code == "regression"


def test_arguments_of_regress_pass_the_whitelist() -> None:
    """Arguments are accepted SQL, or are refused without a charge."""
    _, con = opened(20)
    with con:
        for y, source in (
            ("random()", "visits"),
            ("cost", "secrets"),
            ("cost", "read_csv('x')"),
            ("cost) AS v0, pg_sleep(1", "visits"),
            ("cost", "visits) AS a WHERE v0 IS NOT NULL GROUP BY id --"),
        ):
            with pytest.raises(dpsql.Error):
                con.regress(y, "age", source=source, epsilon=1)
        with pytest.raises(dpsql.ProgrammingError):
            build_covariance_query([f"c{place}" for place in range(11)], "visits")
        assert not con.engine.ledger.list_entries()
