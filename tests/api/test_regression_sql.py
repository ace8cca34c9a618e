"""REGRESS(y ON x, …) and COVAR_MATRIX(x, …): what con.regress and con.covariance compute, in SQL."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from api.test_regression import exact, opened

import dpsql
from dpsql.api.connection import Connection
from dpsql.errors import Position


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    """The patients of `test_regression`, a fiftieth of whose values is missing."""
    database, found = opened(3_000)
    with found:
        yield found
    database.close()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_statement_equals_the_method(con: Connection, size: int) -> None:
    """The same release, so that the second is free, the same values and the same intervals; a column for each coefficient."""
    names = ("age", "days", "income", "distance")[:size]
    fit = con.regress("cost", list(names), source="visits", by="plan", epsilon=60)
    found = con.query(
        f"SELECT plan, REGRESS(cost ON {', '.join(names)}) FROM visits GROUP BY plan", epsilon=60
    )
    assert found.columns == ("plan", "regress_intercept", *(f"regress_{name}" for name in names))
    assert not found.receipt.entries
    assert found.rows == fit.rows
    assert found.intervals() == fit.intervals()


def test_regression_in_sql_is_least_squares() -> None:
    """At a large loss it gives NumPy's coefficients, over rows without NULL in any of the values."""
    database, con = opened(3_000)
    with con:
        found = con.query("SELECT plan, REGRESS(cost, age, days) AS f FROM visits GROUP BY plan", epsilon=300)
        for plan, *coefficients in found.rows:
            assert np.allclose(coefficients, exact(database, ("age", "days"), plan), rtol=0.05, atol=2)


def test_a_condition_is_one_of_its_rows(con: Connection) -> None:
    """WHERE is that of the rows: the same release as that of the method over a subquery."""
    fit = con.regress("cost", "age", source="visits WHERE days < 5", epsilon=50)
    found = con.query("SELECT REGRESS(cost ON age) FROM visits WHERE days < 5", epsilon=50)
    assert (found.rows, found.receipt.entries) == (fit.rows, ())
    assert con.query("SELECT REGRESS(cost ON age) FROM visits", epsilon=50).receipt.entries


WRITTEN = {
    "SELECT REGRESS(cost, age) AS f FROM visits": ("f_intercept", "f_age"),
    "SELECT plan AS p, regress(cost on visits.age, age * 2 + days) FROM visits GROUP BY p": (
        "p",
        "regress_intercept",
        "regress_age",
        "regress_x2",
    ),
    "SELECT REGRESS(cost ON age) AS f, plan FROM visits GROUP BY ALL ORDER BY f_age DESC LIMIT 1": (
        "f_intercept",
        "f_age",
        "plan",
    ),
    "SELECT days // 4 AS d, REGRESS(cost ON age) FROM visits WHERE plan = ? GROUP BY 1 ORDER BY d": (
        "d",
        "regress_intercept",
        "regress_age",
    ),
    "WITH v AS (SELECT * FROM visits WHERE days > 1) SELECT plan, REGRESS(cost ON age) FROM v GROUP BY plan": (
        "plan",
        "regress_intercept",
        "regress_age",
    ),
    "SELECT plan, f_age > 1 AS steep FROM (SELECT plan, REGRESS(cost ON age) AS f FROM visits GROUP BY plan)": (
        "plan",
        "steep",
    ),
    "SELECT REGRESS(CASE WHEN days > 3 THEN 1 ELSE 0 END ON (age)) FROM visits AS a JOIN visits AS b USING (id, age, days)": (
        "regress_intercept",
        "regress_x1",
    ),
    "SELECT COVAR_MATRIX(cost, age) FROM visits": (
        "covar_matrix_cost_cost",
        "covar_matrix_cost_age",
        "covar_matrix_age_age",
    ),
    "SELECT plan, COVAR_MATRIX(cost + 1) AS m FROM visits GROUP BY ALL": ("plan", "m_x1_x1"),
}


@pytest.mark.parametrize("sql", WRITTEN)
def test_regression_is_planned_wherever_a_select_is(con: Connection, sql: str) -> None:
    """Each place is planned, with a column for each coefficient named after its expression."""
    planned = con.plan(sql, ["A"] if "?" in sql else (), epsilon=1)
    assert tuple(name for name, _ in planned.columns) == WRITTEN[sql]


def test_other_dialects_support_regression(con: Connection) -> None:
    """ON stands in a text of another dialect, too."""
    asked = "SELECT plan, REGRESS(cost ON age) FROM visits GROUP BY plan"
    columns = con.plan(asked, epsilon=1).columns
    assert con.plan(asked, epsilon=1, dialect="postgres").columns == columns


REFUSED = {
    "SELECT REGRESS(cost) FROM visits": ("regression", 8),
    "SELECT REGRESS(cost ON age, days, income, distance, id) FROM visits": ("regression", 8),
    "SELECT REGRESS(*) FROM visits": ("regression", 8),
    "SELECT REGRESS(DISTINCT cost ON age) FROM visits": ("regression", 8),
    "SELECT REGRESS(AVG(cost) ON age) FROM visits": ("regression", 16),
    "SELECT REGRESS(cost ON age) + 1 FROM visits": ("regression", 8),
    "SELECT REGRESS(cost ON age) OVER () FROM visits": ("regression", 8),
    "SELECT REGRESS(cost ON age) FILTER (WHERE age > 3) FROM visits": ("regression", 8),
    "SELECT REGRESS(cost ON age), COUNT(*) FROM visits": ("regression", 30),
    "SELECT REGRESS(cost ON age), REGRESS(cost ON days) FROM visits": ("regression", 30),
    "SELECT plan, REGRESS(cost ON age) FROM visits": ("regression", 8),
    "SELECT UPPER(plan), REGRESS(cost ON age) FROM visits GROUP BY plan": ("regression", 8),
    "SELECT plan, REGRESS(cost ON age) FROM visits GROUP BY ROLLUP (plan)": ("regression", 64),
    "SELECT COUNT(*) FROM visits WHERE REGRESS(cost ON age) > 1": ("regression", 35),
    "SELECT REGRESS(1 ON 2)": ("regression", 8),
    "SELECT REGRESS(cost ON age, age) FROM visits": ("ambiguous", 8),
    "SELECT id % 2 AS id, REGRESS(cost ON age) FROM visits GROUP BY id": ("ambiguous", 64),
    "SELECT REGRESS(cost ON age), plan FROM visits GROUP BY plan ORDER BY 2": ("ordinal", 70),
    "SELECT plan, REGRESS(cost ON age) FROM visits GROUP BY 2": ("ordinal", 56),
    "SELECT plan, REGRESS(cost ON age) FROM visits GROUP BY plan HAVING COUNT(*) > 3": ("clause", 68),
    "SELECT REGRESS(cost ON bad) FROM visits": ("column", 24),
    "SELECT COVAR_MATRIX() FROM visits": ("regression", 8),
    "SELECT COVAR_MATRIX(cost, (SELECT MAX(age) FROM visits)) FROM visits": ("regression", 39),
    'SELECT "REGRESS"(cost, age) FROM visits': ("function", 8),
    "SELECT REGRESS(cost ON id) FROM visits": (None, None),
}


@pytest.mark.parametrize("sql", REFUSED)
def test_malformed_regressions_are_refused_at_their_place(con: Connection, sql: str) -> None:
    """The error has the position in the text of the query."""
    code, column = REFUSED[sql]
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.plan(sql, epsilon=1)
    if code is not None and column is not None:
        assert caught.value.code == code
        assert caught.value.position == Position(1, column)


def test_matrices_are_semidefinite_with_intervals_of_the_releases() -> None:
    """All eigenvalues are at least 0, although noise makes the released covariances indefinite; NULL stays NULL."""
    database, con = opened(40)
    sql = "SELECT plan, COVAR_MATRIX(age, days, income) AS c FROM visits GROUP BY plan"
    with con:
        moved = 0
        for _ in range(8):
            found = con.query(sql, epsilon=0.5, replay=False)
            inside = con.query(f"SELECT * FROM ({sql}) ORDER BY plan", epsilon=0.5)
            for row, plain in zip(found.rows, inside.rows, strict=True):
                if None in row:
                    continue
                matrix = np.zeros((3, 3))
                matrix[np.triu_indices(3)] = row[1:]  # type: ignore[assignment]
                least = np.linalg.eigvalsh(matrix + np.triu(matrix, 1).T).min()
                assert least >= -1e-9 * np.abs(matrix).max()
                moved += row != plain
        assert moved
    database.close()
