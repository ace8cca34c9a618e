"""UNION BY NAME is DuckDB's, over released rows, over constants and over rows of units; a column without a name is refused."""

from __future__ import annotations

from collections import Counter

import pytest

import dpsql
from tests.sql.study import clinic, study

_ANSWERED = [
    "SELECT plan AS what, COUNT(*) AS n FROM visits GROUP BY ALL UNION ALL BY NAME SELECT COUNT(*) AS N, 'all' AS what FROM visits",
    "SELECT plan, COUNT(*) AS n FROM visits GROUP BY 1 UNION ALL BY NAME SELECT SUM(age) AS s, plan FROM visits GROUP BY 2 ORDER BY plan",
    "SELECT 1 AS a, 2 AS b UNION BY NAME SELECT 2 AS a, 1 AS c UNION BY NAME SELECT 2 AS b, 1 AS a",
    "(SELECT 1 AS a, 2 AS b) UNION ALL BY NAME (SELECT 3 AS b, 4 AS a UNION ALL SELECT 5, 6)",
    "SELECT COUNT(*) AS n, SUM(c) AS s FROM (SELECT patient_id, age AS c FROM visits UNION ALL BY NAME SELECT age + 1 AS c, patient_id FROM visits) q",
    "WITH w AS (SELECT patient_id, age FROM visits UNION ALL BY NAME SELECT patient_id, plan FROM visits) SELECT COUNT(*), COUNT(age), COUNT(plan) FROM w",
]
_REFUSED = [
    "SELECT 1 UNION BY NAME SELECT 2 AS a",
    "SELECT 1 AS a, 2 AS A UNION BY NAME SELECT 2 AS a",
    "SELECT * FROM (SELECT 1 AS a) q UNION BY NAME SELECT 2 AS a",
    "SELECT COUNT(*) FROM (SELECT * FROM visits UNION ALL BY NAME SELECT * FROM visits) AS q",
    "SELECT plan, COUNT(*) AS n FROM visits GROUP BY ALL UNION ALL BY NAME SELECT plan, age AS n FROM visits",
]


@pytest.mark.parametrize("sql", _ANSWERED)
def test_rows_are_those_of_duckdb(sql: str) -> None:
    """The rows and the names of columns are the engine's."""
    result, expected = study().query(sql), clinic().execute(sql)
    assert [name.lower() for name in result.columns] == [entry[0].lower() for entry in expected.description]
    assert Counter(map(tuple, result)) == Counter(expected.fetchall())


@pytest.mark.parametrize("sql", _REFUSED)
def test_other_columns_are_refused(sql: str) -> None:
    """Columns without a name, doubled names, stars, and rows beside groups are refused, and nothing is charged."""
    con = study()
    with pytest.raises(dpsql.QueryRejected) as refused:
        con.query(sql)
    assert refused.value.hint
    assert not refused.value.charged
