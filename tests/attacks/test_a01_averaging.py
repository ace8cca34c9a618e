"""A1, differencing and averaging: the same asked again is one answer, and every new draw is charged.

So no average knows more than the budget buys.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from attacks.naive import Naive, distinguishes_worlds
from speeds import examples
from worlds import Row, connected, engine_of, observed, person, spent, words_drawn, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.stages import answer_query
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState

COUNT = "SELECT COUNT(*) FROM people"
WITHOUT = "SELECT COUNT(*) FROM people WHERE id <> 99"
TIMES = 1_000
BUDGETS = [{"epsilon": 4}, {"epsilon": 4, "delta": 1e-6}]
IDS = ["pure", "zcdp"]


def scales(connection: Connection, sql: str, epsilon: Any) -> list[float]:
    """The standard deviations of the noise in the one row of an answer with noise of its own."""
    (row,) = connection.query(sql, epsilon=epsilon, replay=False).scales
    return [scale for scale in row if scale is not None]


def precision(scales: list[float]) -> float:
    """One over the variance of the best average of answers with this noise."""
    return math.fsum(scale**-2 for scale in scales)


def at_once(budget: dict[str, Any]) -> float:
    """The precision of one count that is asked for with the whole budget."""
    connection = world(budget=budget)
    whole = connection.budget()["people"].remaining_epsilon
    return precision(scales(connection, COUNT, whole))


def test_averaging_reveals_a_person_where_draws_are_free(rows: list[Row]) -> None:
    """The attack works where nothing is charged: the mean of 1,000 answers, rounded, is the exact count."""

    def mean(naive: Naive) -> int:
        return round(math.fsum(naive.number(COUNT) for _ in range(TIMES)) / TIMES)

    assert distinguishes_worlds(mean, world(*rows), world(*rows, person(99)))


def test_differencing_reveals_a_person_where_noise_repeats(rows: list[Row]) -> None:
    """The attack works where equal noise is to stop averages: the difference of two totals is exact."""

    def difference(naive: Naive) -> int:
        naive.fresh = False
        return round(naive.number(COUNT) - naive.number(WITHOUT))

    assert distinguishes_worlds(difference, world(*rows), world(*rows, person(99)))


@pytest.mark.parametrize("budget", BUDGETS, ids=IDS)
def test_equivalent_queries_replay_one_answer(budget: dict[str, Any], rows: list[Row]) -> None:
    """No spelling of a query draws entropy or is charged a second time."""
    connection = world(*rows, budget=budget)
    first = connection.query(COUNT, epsilon=0.5)
    drawn, charged = words_drawn(connection), connection.engine.ledger.read_head()
    words = (
        COUNT,
        "select count(*) as n from people p",
        f"SELECT n FROM ({COUNT.replace('*)', '*) AS n')}) AS t",
    )
    heard = {connection.query(words[time % 3], epsilon=0.5).rows for time in range(TIMES // 10)}
    assert heard == {first.rows}
    assert (words_drawn(connection), connection.engine.ledger.read_head()) == (drawn, charged)


@pytest.mark.parametrize(("budget", "times"), [(BUDGETS[0], examples(TIMES)), (BUDGETS[1], 150)], ids=IDS)
def test_budget_ends_averaging(budget: dict[str, Any], times: int, rows: list[Row]) -> None:
    """Each of 1,000 equal queries for new noise (150 in shorter searches) is charged or refused.

    All answers together are no more precise than one with the whole budget, and the noise of their mean is
    wider than one person.
    """
    connection = world(*rows, budget=budget)
    heard: list[float] = []
    refusals = []
    for asked in range(times):
        try:
            heard += scales(connection, COUNT, Fraction(1, 10))
        except dpsql.BudgetExhausted:
            refusals.append(asked)
    assert spent(connection) == len(heard)
    assert refusals == list(range(len(heard), times))
    assert refusals
    assert precision(heard) <= at_once(budget) * (1 + 1e-9)
    assert precision(heard) ** -0.5 > 1


@pytest.mark.parametrize("budget", BUDGETS, ids=IDS)
@pytest.mark.parametrize("shares", [[1, 1, 1], [90, 1, 1, 1], [1, 2, 4, 8, 16, 32]])
def test_splitting_the_budget_gains_no_precision(shares: list[int], budget: dict[str, Any]) -> None:
    """The best average of any split queries is no more precise than one query with the whole loss."""
    connection = world(person(1), budget=budget)
    whole = connection.budget()["people"].limit.loss_fraction
    heard: list[float] = []
    for share in shares:
        part = Fraction(int(10**20 * whole * share / sum(shares)), 10**20)
        # Under zcdp a small epsilon costs at most half of its square.
        heard += scales(connection, COUNT, part if "delta" not in budget else _root(2 * part))
    assert precision(heard) <= at_once(budget) * (1 + 1e-9)


def _root(square: Fraction) -> Fraction:
    return Fraction(math.isqrt(int(square * 10**24)), 10**12)


SPELT = [
    "COUNT(*)",
    "COUNT(1)",
    "COUNT(CASE WHEN age IS NULL THEN 1 ELSE 1 END)",
    "COUNT(COALESCE(age, 0))",
    "COUNT(age IS NULL)",
    "SUM(CASE WHEN age > 50 THEN 1 ELSE 1 END)",
    "SUM(1)",
    "COUNT(COALESCE(cost, 1e0))",
    "COUNT(age) + COUNT(CASE WHEN age IS NULL THEN 1 END)",
]
"""All of them are the number of rows."""


@pytest.mark.parametrize("budget", BUDGETS, ids=IDS)
def test_spellings_in_one_query_gain_no_precision(budget: dict[str, Any]) -> None:
    """Nine spellings of one count in a SELECT share its loss: equal ones are equal, others are noisier."""
    connection = world(person(1), budget=budget)
    result = connection.query(f"SELECT {', '.join(SPELT)} FROM people", epsilon=Fraction(1, 2))
    values, noise = result.rows[0], result.scales[0]
    different = {value: scale for value, scale in zip(values, noise, strict=True) if scale is not None}
    alone = scales(world(person(1), budget=budget), COUNT, Fraction(1, 2))
    assert values[0] == values[1]
    assert precision(list(different.values())) <= precision(alone) * (1 + 1e-9)
    assert spent(connection) == 1


@pytest.mark.parametrize("budget", BUDGETS, ids=IDS)
def test_totals_with_and_without_one_person_have_independent_noise(
    budget: dict[str, Any], rows: list[Row]
) -> None:
    """Each total is charged and has noise of its own; their difference has the noise of both."""
    connection = world(*rows, person(99), budget=budget)
    drawn = [words_drawn(connection)]
    outcomes = []
    for sql in (COUNT, WITHOUT, COUNT):
        outcomes.append(observed(connection, sql, epsilon=Fraction(1, 4), replay=False))
        drawn.append(words_drawn(connection))
    noise = [answer[0][0] - exact for (_, answer), exact in zip(outcomes, (11, 10, 11), strict=True)]
    assert spent(connection) == 3
    assert drawn == sorted(set(drawn))
    assert noise[0] != noise[2]


def test_every_interface_charges_new_answers(rows: list[Row]) -> None:
    """Each new answer of a cursor, a result, a prepared plan and the shell is an entry of the ledger."""
    connection = world(*rows)
    connection._queries.defaults = replace(connection._queries.defaults, replay=False)
    connection.query(COUNT, epsilon=1)
    connection.execute(COUNT, epsilon=1).fetchall()
    cursor = connection.cursor()
    for _ in range(2):
        cursor.execute(COUNT, epsilon=1)
    plan = connection.explain(COUNT, epsilon=1).prepared
    for _ in range(2):
        answer_query(connection.engine, plan)
    session = Session(SessionState(connection, epsilon=Fraction(1)))
    assert not any(
        reply.failed for reply in session.iterate_replies(f"{COUNT}; {COUNT.lower()}; /* again */ {COUNT}")
    )
    assert spent(connection) == 9
    assert len({entry.digest for entry in connection.engine.ledger.list_entries()}) == 9


@pytest.mark.parametrize("way", ["commit", "rollback", "close", "rollback in the database"])
def test_rollback_does_not_refund_a_charge(way: str, tmp_path: Any, rows: list[Row]) -> None:
    """Neither PEP 249's rollback nor the owner's transaction nor a new connection undoes a charge."""
    database = engine_of(world(*rows))
    people = {"unit": "id", "rows_per_unit": 1}
    policy = {"budget": {"epsilon": 1}, "tables": {"people": people}}
    connection = connected(database, policy, ledger=tmp_path / "a.ledger")
    if way == "rollback in the database":
        database.execute("BEGIN")
    connection.query(COUNT, epsilon=1)
    if way == "rollback in the database":
        database.execute("ROLLBACK")
    else:
        getattr(connection, way)()
    again = connected(database, policy, ledger=tmp_path / "a.ledger")
    with pytest.raises(dpsql.BudgetExhausted):
        again.query(COUNT, epsilon=Fraction(1, 10**6))
