"""A27, the engine computes before it filters: arithmetic that is right only where a condition holds.

The optimiser moves a product below a join and above the filter that made its factors small, so it is computed of
the very rows that the filter drops. Whatever a condition says, the product must not fail on them.
"""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest
from worlds import observed, of_all_rows, person, world, written_by

from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend

MADE = "SELECT id, CASE WHEN id = 17 THEN 4000000000000000000 ELSE 0 END AS e FROM people"
LARGE = f"({MADE}) AS v"
QUESTIONS = {
    "joined to itself": f"SELECT COUNT(*) FROM (SELECT v.e FROM {LARGE} JOIN people c ON v.id = c.id WHERE v.e < MONTH(c.day)) s WHERE s.e * s.e < 100",
    "joined to a public table": f"SELECT COUNT(*) FROM (SELECT v.e, r.rank FROM {LARGE} JOIN regions r ON v.e < r.rank) s WHERE s.e * s.e * s.rank < 100",
    "a correlated subquery": f"SELECT COUNT(*) FROM (SELECT v.id, v.e FROM {LARGE} WHERE v.e < 3) s WHERE EXISTS (SELECT 1 FROM people c WHERE c.id = s.id AND s.e * s.e < c.age)",
    "two filters": f"SELECT SUM(w) FROM (SELECT e * e + e AS w FROM (SELECT * FROM {LARGE} WHERE e BETWEEN -5 AND 5) t) u WHERE w < 9",
    "a CASE": f"SELECT SUM(CASE WHEN e < 5 AND e > -5 THEN e * e * e END) FROM {LARGE}",
    "a sum of a unit": f"SELECT COUNT(*) FROM (SELECT id, SUM(e) AS t FROM {LARGE} GROUP BY id HAVING SUM(e) < 10) s WHERE t * t - t < 50",
    "negated": f"SELECT COUNT(*) FROM (SELECT * FROM {LARGE} WHERE e < 9 AND e > -9) t WHERE -(e * e) < ABS(e - 9223372036854775807)",
}
"""Each narrows what it multiplies by a condition that person 17 does not fulfil."""


@pytest.fixture(scope="module")
def worlds() -> tuple[Connection, Connection]:
    """Neighbours of which one holds person 17."""
    rows = [person(who, age=20 + who) for who in range(9)]
    return world(*rows, person(17)), world(*rows)


@pytest.mark.parametrize("question", QUESTIONS)
def test_dropped_row_makes_no_statement_fail(question: str, worlds: tuple[Connection, Connection]) -> None:
    """The query is answered in both worlds."""
    for connection in worlds:
        outcome, rows = observed(connection, QUESTIONS[question], epsilon=0.001)
        assert outcome.error is None
        assert len(rows) == 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_products_need_more_than_64_bits(question: str, worlds: tuple[Connection, Connection]) -> None:
    """No product depends on the order in which the engine computes."""
    statements = list[str]()
    run = DuckDBBackend.run_statement

    def recorded(self: DuckDBBackend, sql: str, *arguments: Any, **options: Any) -> Any:
        statements.append(sql)
        return run(self, sql, *arguments, **options)

    with mock.patch.object(DuckDBBackend, "run_statement", recorded):
        observed(worlds[0], QUESTIONS[question], epsilon=0.001, replay=False)
    assert any(" * " in sql for sql in statements)
    # By a DOUBLE, which has an exponent, it is a DOUBLE.
    assert not [found for sql in statements for found in re.findall(r'"\w"\."\w" \* (?![\d.]+e)\S+', sql)]


def test_products_in_64_bits_reveal_a_person(worlds: tuple[Connection, Connection]) -> None:
    """The attack works where products trust the interval of a filtered column, and an engine computes them of all rows."""
    plain = written_by(of_all_rows)
    with plain:
        errors = [
            observed(connection, QUESTIONS["joined to itself"], epsilon=0.001, replay=False)[0].error
            for connection in worlds
        ]
    assert errors[0] is not None
    assert errors[0][0] == "BackendError"
    assert errors[1] is None
