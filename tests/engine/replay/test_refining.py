"""A release that is asked for again with less noise costs the difference, and both cost what the second does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from clinic import POLICY, database
from entropy import SeededEntropy
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms import Geometric

PURE: dict[str, Any] = POLICY | {
    "budget": {"epsilon": 30, "delta": 1e-6, "accountant": "pure"},
    "data_version": "1",
    "max_epsilon": 20,
}
COUNT = "SELECT COUNT(*) AS n FROM visits"
MEANS = "SELECT plan, COUNT(*), AVG(cost) FROM visits GROUP BY plan"


def opened(ledger: str | Path = ":memory:", analyst: str = "ana", **changed: Any) -> Connection:
    """The clinic, whose budget adds up losses."""
    policy = {name: value for name, value in (PURE | changed).items() if value is not None}
    return dpsql.connect(database(), policy=policy, ledger=ledger, analyst=analyst, epsilon=1)


@pytest.fixture
def con() -> Iterator[Connection]:
    """That clinic, with a ledger in memory."""
    with opened() as connection:
        yield connection


def spent(connection: Connection) -> Fraction:
    """The ε that is spent."""
    return connection.budget()["visits"].spent_epsilon


@pytest.mark.parametrize("sql", [COUNT, MEANS, f"{COUNT} WHERE cost > (SELECT AVG(cost) FROM visits)"])
def test_refinement_costs_the_difference(con: Connection, sql: str) -> None:
    """However often it is refined, all answers together cost what the last costs alone."""
    for number, epsilon in enumerate((Fraction(1, 2), Fraction(1), Fraction(5, 2)), 1):
        result = con.query(sql, epsilon=epsilon)
        if "WHERE" not in sql:
            assert spent(con) == epsilon
            assert result.receipt.refined == ((number - 1,) if number > 1 else ())
            assert con.engine.ledger.list_entries()[-1].details.get("refines", []) == list(
                result.receipt.refined
            )
    con.engine.ledger.verify()


def test_both_answers_are_replayed_after_a_refinement(con: Connection) -> None:
    """Each at its own ε, free; one in between is a release of its own."""
    first, second = con.query(MEANS, epsilon=1), con.query(MEANS, epsilon=3)
    assert first.scales != second.scales  # the values are equal with a probability of 6e-6
    for epsilon, found in ((1, first), (3, second)):
        again = con.query(MEANS, epsilon=epsilon)
        assert (again.rows, again.scales) == (found.rows, found.scales)
    assert spent(con) == 3
    con.query(MEANS, epsilon=2)
    assert spent(con) == 5


def test_refined_noise_has_the_law_of_the_larger_loss(con: Connection) -> None:
    """Scales and intervals are those of a release at the larger ε."""
    con.query(MEANS, epsilon=1)
    refined = con.query(MEANS, epsilon=4)
    with opened() as other:
        fresh = other.query(MEANS, epsilon=4)
    assert [row[1] for row in refined.scales] == [row[1] for row in fresh.scales]
    assert refined.receipt.mechanisms == fresh.receipt.mechanisms
    assert refined.receipt.loss == {"type": "pure", "epsilon": "3/1", "v": 1}


def test_release_is_refined_by_another_process(tmp_path: Path) -> None:
    """Another connection on the same ledger, and another analyst, goes on where the first has stopped."""
    with opened(tmp_path / "a.ledger", database="clinic") as first:
        first.query(COUNT, epsilon=1)
    with opened(tmp_path / "a.ledger", analyst="bob", database="clinic") as second:
        assert second.query(COUNT, epsilon=2).receipt.refined == (1,)
        assert spent(second) == 2


def test_accuracy_target_costs_the_difference(con: Connection) -> None:
    """A target, then a smaller one: together they cost what the smaller one costs alone."""
    con.query(COUNT, target_error=100, epsilon=None)
    result = con.query(COUNT, target_error=20, epsilon=None)
    assert result.receipt.target is not None
    assert spent(con) == Fraction(result.receipt.target["epsilon"])


def test_explain_shows_the_difference(con: Connection) -> None:
    """Before it is charged."""
    con.query(COUNT, epsilon=1)
    lines = [line.strip() for line in con.explain(COUNT, epsilon=3).lines[:3]]
    assert lines[1] == "the release refines a stored release (ledger entry 1): only the difference is charged"
    assert lines[2].startswith("visits: ε = 2 ")
    assert spent(con) == 1


def test_refinement_needs_budget_for_the_difference_alone() -> None:
    """A refinement whose whole price would pass the budget is answered where the difference does not."""
    with opened(budget={"epsilon": 3, "accountant": "pure"}) as connection:
        connection.query(COUNT, epsilon=2)
        assert connection.query(COUNT, epsilon=3).receipt.refined == (1,)
        with pytest.raises(dpsql.BudgetExhausted):
            connection.query(COUNT, epsilon=Fraction(301, 100))


WHOLE = {
    "the data version is not said": ({"data_version": None}, COUNT),
    "the keys are selected": ({}, "SELECT ward, COUNT(*) FROM visits GROUP BY ward"),
    "the keys are withheld": (
        {"tables": POLICY["tables"] | {"visits": POLICY["tables"]["visits"] | {"min_frequency": 3}}},
        "SELECT plan, COUNT(*) FROM visits GROUP BY plan",
    ),
    "a value is chosen": ({}, "SELECT MEDIAN(cost) FROM visits"),
    "groups are chosen": ({}, "SELECT days FROM visits GROUP BY days ORDER BY SUM(cost) DESC LIMIT 2"),
    "the noise is a cube": ({}, "SELECT CORR(cost, days) FROM visits"),
    "a clamp is learnt": (
        {"tables": POLICY["tables"] | {"visits": POLICY["tables"]["visits"] | {"rows_per_unit": 50}}},
        "SELECT SUM(cost) FROM visits",
    ),
    "the budget begins anew by itself": (
        {"budget": {"epsilon": 30, "delta": 1e-6, "accountant": "pure", "renew": "yearly"}},
        COUNT,
    ),
}


@pytest.mark.parametrize(("changed", "sql"), WHOLE.values(), ids=WHOLE)
def test_release_that_cannot_be_refined_is_charged_in_full(changed: dict[str, Any], sql: str) -> None:
    """Where the difference is not proved to be enough, the new release is charged for itself."""
    with opened(**changed) as connection:
        first = connection.query(sql, epsilon=1)
        second = connection.query(sql, epsilon=2)
        assert second.receipt.refined == ()
        with opened(**changed) as other:
            alone = other.query(sql, epsilon=2)
    assert second.receipt.entries[0]["loss"] == alone.receipt.entries[0]["loss"]
    assert first.receipt.entries[0]["loss"] != second.receipt.entries[0]["loss"]


def test_release_of_other_data_is_not_refined(tmp_path: Path) -> None:
    """The noise of a release is known by the data that it was of."""
    with opened(tmp_path / "a.ledger", database="clinic") as first:
        first.query(COUNT, epsilon=1)
    with opened(tmp_path / "a.ledger", database="clinic", data_version="2") as second:
        assert second.query(COUNT, epsilon=2).receipt.refined == ()


def test_release_of_another_engine_is_not_refined(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of the engine may add up otherwise."""
    con.query(COUNT, epsilon=1)
    monkeypatch.setattr(type(con.engine.backend), "version", "another")
    assert con.query(COUNT, epsilon=2).receipt.refined == ()


@pytest.mark.parametrize(
    ("sql", "refined"),
    [
        (COUNT, (1,)),
        (
            "SELECT COUNT(DISTINCT a.patient_id) FROM visits AS a JOIN visits AS b ON a.patient_id = b.patient_id",
            (),
        ),
    ],
)
def test_release_of_an_unsound_optimizer_is_not_refined(
    con: Connection, monkeypatch: pytest.MonkeyPatch, sql: str, refined: tuple[int, ...]
) -> None:
    """Before 0.2.0 statements that read a table twice ran with it, and releases were stored without a word of it."""
    with monkeypatch.context() as patch:
        patch.setattr("dpsql.engine.replay.release_store.reads_a_table_twice", lambda _: False)
        con.query(sql, epsilon=1)
    assert con.query(sql, epsilon=2).receipt.refined == refined


def test_renewed_account_pays_in_full(con: Connection) -> None:
    """What was paid before the reset pays for nothing after it."""
    con.query(COUNT, epsilon=1)
    con.engine.ledger.reset("visits", by="owner", reason="a new study")
    assert con.query(COUNT, epsilon=2).receipt.refined == ()
    assert spent(con) == 2


def test_analysts_with_own_budgets_refine_only_their_releases(tmp_path: Path) -> None:
    """There nobody has another's release free, nor refines it."""
    own = {"per_analyst": {"epsilon": 10}, "database": "clinic"}
    with opened(tmp_path / "a.ledger", **own) as first:
        first.query(COUNT, epsilon=1)
        assert first.query(COUNT, epsilon=1).receipt.replayed == (1,)
    with opened(tmp_path / "a.ledger", analyst="bob", **own) as second:
        assert second.query(COUNT, epsilon=1).receipt.replayed == ()
        assert second.query(COUNT, epsilon=2).receipt.refined == (3,)


def test_release_is_refined_once(con: Connection) -> None:
    """Two that have prepared the same refinement: the second is told to ask again, and pays for itself then."""
    con.query(COUNT, epsilon=1)
    plans = [plan_and_match(con.engine, Query(COUNT, epsilon=Fraction(e))) for e in (2, 3)]
    answer_query(con.engine, plans[0])
    with pytest.raises(dpsql.OperationalError) as caught:
        answer_query(con.engine, plans[1])
    assert (caught.value.code, caught.value.hint) == (
        "release_refined",
        "nothing was charged; run the query again",
    )
    assert spent(con) == 2
    # The end of the chain is refined instead.
    assert con.query(COUNT, epsilon=3).receipt.refined == (2,)
    assert spent(con) == 3


def test_lost_refinement_is_not_retried(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was seen is not known: the next one is charged whole."""
    con.query(COUNT, epsilon=1)

    def lost(*_: object) -> None:
        raise dpsql.OperationalError("the power fails", code="ledger_unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(type(con.engine.ledger), "store_releases", lost)
        with pytest.raises(dpsql.OperationalError):
            con.query(COUNT, epsilon=2)
    assert con.query(COUNT, epsilon=3).receipt.refined == ()
    assert spent(con) == 5


def test_two_releases_of_a_statement_refine_two_stored_ones(con: Connection) -> None:
    """Where both are the same statistic under two names, one is refined and the other is charged whole."""
    con.query(COUNT, epsilon=1)
    both = f"SELECT a.n, b.n FROM ({COUNT} AS v) AS a, ({COUNT} AS w) AS b"
    result = con.query(both, epsilon=6)
    assert result.receipt.refined in {(1,), ()}
    con.engine.ledger.verify()


def test_refinement_starts_from_the_stored_noise() -> None:
    """Over many pairs the answers have the joint law: the first is the second with independent noise more."""
    new = Geometric(Fraction(2))
    kept, runs, exact = 0, examples(300, least=50), 800
    seconds: list[int] = []
    with opened(budget={"epsilon": 3000, "accountant": "pure"}) as connection:
        object.__setattr__(connection.engine, "entropy", SeededEntropy(5))
        for day in range(runs):
            sql = f"{COUNT} WHERE day < ?"
            bound = dt.date(2025, 1, 1) + dt.timedelta(days=day)
            ((one,),) = connection.query(sql, [bound], epsilon=1).rows
            result = connection.query(sql, [bound], epsilon=2)
            assert result.receipt.refined
            ((two,),) = result.rows
            assert isinstance(two, int)
            kept += one == two
            seconds.append(two - exact)
    # W is 0 with chance w + (1-w)(1-a)/(1+a) = 0.340 for scales 4 and 2; 300 draws stray by 0.027.
    assert abs(kept / runs - 0.34) < 5 * 0.027 * (300 / runs) ** 0.5
    assert sum(noise**2 for noise in seconds) / runs == pytest.approx(new.compute_variance(), rel=0.6)
