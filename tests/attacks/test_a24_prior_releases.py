"""A24, answers within questions: what a subquery gives is released and charged first, and enters as it was released.

No exact value and no set of other people's rows enters a query. What an analyst types in from an earlier answer
is a constant like any other: that answer was charged, and so is the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from attacks.naive import Naive, distinguishes_worlds
from properties.worlds import cells_of
from worlds import Refused, Row, assert_within, observed, person, prepared, spent, world

from dpsql.analysis.release_analysis import Analysis
from dpsql.api.connection import Connection
from dpsql.backends import Backend
from dpsql.engine import stages
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.release.exact_release import ExactRelease, open_exact_release
from dpsql.plan.steps import substitute_subqueries
from dpsql.privacy.mechanisms import Entropy
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.statement import emit_release

BELOW_AVERAGE = "SELECT COUNT(*) FROM people WHERE cost < (SELECT AVG(cost) FROM people)"
WITHIN = [
    BELOW_AVERAGE,
    "SELECT city, COUNT(*) FROM people WHERE cost > (SELECT SUM(cost) / COUNT(*) FROM people) GROUP BY city",
    "SELECT COUNT(*) FROM people WHERE age IN (SELECT COUNT(*) FROM people GROUP BY city)",
    "SELECT COUNT(*) FROM people WHERE city IN (SELECT city FROM people GROUP BY city HAVING COUNT(*) > 3)",
    "WITH n AS (SELECT AVG(cost) AS mean FROM people) SELECT COUNT(*) FROM people, n WHERE cost < mean",
    "SELECT SUM(LEAST(GREATEST(cost - m, -9), 9)) FROM people JOIN (SELECT city AS c, AVG(cost) AS m FROM people GROUP BY c) AS w ON city = c",
]
"""Each asks for a release with which the rows of another are chosen or changed."""


@contextmanager
def statements(sent: list[tuple[PreparedRelease, Analysis]]) -> Iterator[None]:
    """Collects each release with its analysis as it is sent, values of earlier releases in their places."""

    def release(
        backend: Backend, entropy: Entropy, part: PreparedRelease
    ) -> AbstractContextManager[ExactRelease]:
        sent.append(
            (
                part,
                substitute_subqueries(part.plan.analysis, part.values) if part.values else part.plan.analysis,
            )
        )
        return open_exact_release(backend, entropy, part)

    with mock.patch.object(stages, "open_exact_release", release):
        yield


def exact(connection: Connection, part: PreparedRelease, analysis: Analysis) -> Any:
    """The exact cells of each group of a release as it is sent."""
    statement = emit_release(DUCKDB_COMPILER, analysis, part.plan.quantiles, clamps=part.plan.clamps)
    return cells_of(
        replace(part, statement=statement), connection.engine.backend.run_statement(statement.sql)
    )


def equal_but_one() -> list[Row]:
    """Five hundred people who all cost the same."""
    return [person(who, cost=10) for who in range(500)]


def test_exact_value_in_a_filter_moves_everybody() -> None:
    """The attack works where a subquery's value is exact: one person lifts the average above all the others."""
    crowd = equal_but_one()
    ours, theirs = world(*crowd), world(*crowd, person(99_999, cost=10.5))
    assert distinguishes_worlds(lambda naive: naive.number(BELOW_AVERAGE) > 250, ours, theirs)
    assert Naive(theirs).number(BELOW_AVERAGE) - Naive(ours).number(BELOW_AVERAGE) > 450


@pytest.mark.parametrize("sql", WITHIN)
def test_each_release_is_within_its_sensitivity(sql: str) -> None:
    """One person moves each release by no more than derived, given the earlier released answers."""
    crowd = [*equal_but_one()[:60], *(person(100 + who, cost=90, city="Kiel") for who in range(60))]
    ours, theirs = world(*crowd), world(*crowd, *[person(99_999, cost=10.5, age=60)] * 5)
    sent: list[tuple[PreparedRelease, Analysis]] = []
    with statements(sent):
        ours.query(sql, epsilon=4)
    assert len(sent) == 2
    for part, analysis in sent:
        if part.plan.vectors:
            assert_within(part, exact(ours, part, analysis), exact(theirs, part, analysis))


@pytest.mark.parametrize("sql", WITHIN)
def test_all_releases_are_charged_within_the_requested_loss(sql: str, rows: list[Row]) -> None:
    """One entry, before anything is read, that costs no more than one release with the whole loss."""
    connection = world(*rows)
    accountant = connection.engine.get_account("people").accountant
    plan = prepared(connection, sql)
    assert len(plan.releases) == 2
    connection.query(sql, epsilon=1)
    (entry,) = connection.engine.ledger.list_entries()
    assert [entry.spend] == [accountant.compute_charge(bill.event) for bill in plan.table_charges]
    connection.query("SELECT COUNT(*) FROM people", epsilon=1)
    _, single = connection.engine.ledger.list_entries()
    assert 0 < entry.spend.loss <= single.spend.loss


@pytest.mark.parametrize("sql", WITHIN)
def test_neighbours_differ_in_values_only(sql: str, rows: list[Row]) -> None:
    """Columns, types, receipts, errors and the ledger do not tell whether somebody is there."""
    ours, theirs = world(*rows), world(*rows, person(99, cost="nan", age=None, city=None))
    assert observed(ours, sql)[0] == observed(theirs, sql)[0]
    assert str(ours.explain(sql)) == str(theirs.explain(sql))
    assert [entry.digest for entry in ours.engine.ledger.list_entries()] == [
        entry.digest for entry in theirs.engine.ledger.list_entries()
    ]


def test_repeated_subquery_has_one_answer(rows: list[Row]) -> None:
    """Two uses of one release get one answer, so nothing is learnt by comparing them."""
    connection = world(*rows)
    mean = "(SELECT AVG(cost) FROM people)"
    result = connection.query(f"SELECT {mean} - {mean} AS difference, COUNT(*) FROM people", epsilon=1)
    assert result.rows[0][0] == 0
    assert len(prepared(connection, f"SELECT {mean} - {mean}, COUNT(*) FROM people").releases) == 2


OF_OTHERS = [
    "(SELECT cost FROM people)",
    "(SELECT cost FROM people LIMIT 1)",
    "(SELECT cost FROM people ORDER BY cost DESC LIMIT 1)",
    "(SELECT ANY_VALUE(cost) FROM people)",
    "(SELECT AVG(cost) FROM people AS p WHERE p.age <= people.age)",
    "(SELECT COUNT(*) FROM people AS p WHERE p.id <> people.id)",
    "(TABLE people)",
    "ARRAY(SELECT cost FROM people)[1]",
    "LIST_SUM(ARRAY(SELECT cost FROM people))",
]
"""Values that would depend on other people's rows, exactly."""
PLACES = [
    "SELECT COUNT(*) FROM people WHERE cost < {}",
    "SELECT COUNT(*) FROM people WHERE cost BETWEEN 0 AND {}",
    "SELECT SUM(LEAST(GREATEST(cost - {}, 0), 9)) FROM people",
    "SELECT SUM(CASE WHEN cost > {} THEN 1 ELSE 0 END) FROM people",
    "SELECT cost > {} AS dear, COUNT(*) FROM people GROUP BY dear",
    "SELECT COUNT(*) - {} FROM people",
    "SELECT {}, COUNT(*) FROM people",
    "SELECT COUNT(*) FROM people HAVING COUNT(*) > {}",
    "SELECT COUNT(*) FROM people LIMIT {}",
    "SELECT COUNT(*) FROM people JOIN regions ON city = name AND rank < {}",
]
SETS = [
    "SELECT COUNT(*) FROM people WHERE cost IN (SELECT cost FROM people WHERE id = 1)",
    "SELECT COUNT(*) FROM people WHERE (cost, age) IN (SELECT cost, age FROM people)",
    "SELECT COUNT(*) FROM people WHERE cost NOT IN (SELECT cost FROM people WHERE id = 1)",
    "SELECT COUNT(*) FROM people WHERE cost > ALL (SELECT cost FROM people WHERE id = 1)",
    "SELECT COUNT(*) FROM people WHERE cost = ANY (SELECT cost FROM people)",
    "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM people WHERE id = 99)",
    "SELECT COUNT(*) FROM people AS p WHERE EXISTS (SELECT 1 FROM people AS q WHERE q.id = p.id OR q.cost > p.cost)",
    "SELECT COUNT(*) FROM people AS p WHERE NOT EXISTS (SELECT 1 FROM people AS q WHERE q.cost > p.cost)",
    "SELECT COUNT(*) FROM people AS p WHERE EXISTS (SELECT 1 FROM people AS q WHERE q.id = q.id)",
    "SELECT COUNT(*) FROM people AS p WHERE EXISTS (SELECT 1 FROM people AS q WHERE q.id + 1 = p.id)",
    "SELECT COUNT(*) FROM regions WHERE EXISTS (SELECT 1 FROM people WHERE city = name)",
    "SELECT COUNT(*) FROM regions WHERE name IN (SELECT city FROM people)",
    "SELECT name FROM regions WHERE name NOT IN (SELECT city FROM people WHERE city IS NOT NULL)",
    "SELECT EXISTS (SELECT 1 FROM people WHERE id = 99), COUNT(*) FROM people",
    "SELECT COUNT(*) FROM people JOIN (SELECT city AS c, cost FROM people) AS others ON city = c",
    "SELECT COUNT(*) FROM people UNION ALL SELECT cost FROM people",
]


@pytest.mark.parametrize("value", OF_OTHERS)
def test_exact_values_of_other_units_are_refused(value: str, refused: Refused) -> None:
    """Filters, arguments, keys, outputs, HAVING, LIMIT and joins refuse them without a charge."""
    for place in PLACES:
        refused(place.format(value))


@pytest.mark.parametrize("sql", SETS)
def test_row_sets_of_other_units_are_refused(sql: str, refused: Refused) -> None:
    """Membership, existence and comparison with all are refused unless the units are equal."""
    refused(sql)


def test_earlier_answer_is_a_constant_of_a_charged_query(rows: list[Row]) -> None:
    """A literal from an earlier answer is a constant in the plan; both queries are charged."""
    connection = world(*rows)
    ((mean,),) = connection.query("SELECT AVG(cost) FROM people").rows
    assert len(connection.query("SELECT COUNT(*) FROM people WHERE cost < ?", [mean])) == 1
    assert spent(connection) == 2
    written = prepared(connection, f"SELECT COUNT(*) FROM people WHERE cost < {mean!r}")
    assert repr(mean) in written.statement.sql


def test_released_tables_leave_the_engine(rows: list[Row], refused: Refused) -> None:
    """The tables of released values end with their answer, and their names mean nothing in a query."""
    for name in ("released", '"#released0"', '"#contribution"', '"#excess"', "last_result", "df", "result"):
        refused(f"SELECT COUNT(*) FROM {name}")
        refused(f"SELECT COUNT(*) FROM people JOIN {name} ON TRUE")
    ours, theirs = world(*rows), world(*rows)
    ours.query(BELOW_AVERAGE)
    sql = "SELECT COUNT(*) FROM people"
    assert prepared(ours, sql).statement == prepared(theirs, sql).statement
