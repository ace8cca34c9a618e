"""The best groups: how far a unit moves their scores apart, what they cost, and that they are the best."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import duckdb
import pytest
from entropy import SeededEntropy
from properties.pairs import Case, pairs_of
from properties.worlds import World, policy

import dpsql
from dpsql.engine.release.exact_rows import read_scores
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query
from dpsql.privacy.accounting import BoundedRange, Composed, Pure

ASKED = ["SUM(x)", "SUM(i)", "COUNT(*)", "COUNT(x)", "COUNT(DISTINCT u)", "SUM(x + 3)"]
WHOLE = {
    "MODE": "SELECT MODE(k) FROM t",
    "ARG_MIN": "SELECT ARG_MIN(k, n) FROM (SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k)",
}
"""Queries that choose in other words."""
RULES = [
    {"unit": "row"},
    {"rows": 2},
    {"rows": 2, "groups": 1},
    {"rows": 2, "neighbors": "replace"},
    {"unit": "row", "neighbors": "replace", "accountant": "pure"},
]
AUCTION = (
    "SELECT c.price FROM candidates AS c JOIN bids AS b ON b.bid >= c.price "
    "GROUP BY c.price ORDER BY SUM(c.price) DESC LIMIT 1"
)


@pytest.mark.whole
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("score", [*ASKED, *WHOLE])
def test_unit_changes_score_differences_as_derived(score: str, rules: dict[str, object]) -> None:
    """Neighbours' score differences change by no more than is charged, and attain it except for rounding."""
    if score == "COUNT(DISTINCT u)" and rules.get("unit") == "row":
        score = "COUNT(*)"
    sql = f"SELECT k FROM t GROUP BY k ORDER BY {score} DESC LIMIT 1"
    sql = WHOLE.get(score, sql)
    asked = Case(sql, tuple(name for name in ("k", "x", "i") if name in score.lower() or name == "k"), rules)
    world = World(policy(**asked.rules))
    (release,) = world.prepare(sql).releases
    best = release.plan.top_k
    assert best is not None
    worst, seen = 0, {}
    for pair in pairs_of(asked, 12):
        for rows in pair:
            if rows not in seen:
                world.hold(rows)
                exact = world.engine.backend.run_statement(release.statement.sql)
                seen[rows] = read_scores(release.plan.analysis, release.statement, exact)[1]
        moves = [b - a for a, b in zip(*(seen[rows] for rows in pair), strict=True)]
        worst = max(worst, max(moves) - min(moves))
    assert worst <= best.steps
    # The same rows in another group: a unit that is replaced moves one score down and another up.
    assert 2 * worst >= best.steps


def auction(accountant: str, epsilon: int = 100, price: str = "BIGINT") -> dpsql.Connection:
    """Two thousand bids from 100 to 799, and a hundred prices of that type."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE candidates AS SELECT CAST(10 * range AS {price}) AS price FROM range(1, 101)"
    )
    database.execute(
        "CREATE TABLE bids AS SELECT 100 + hash(range) % 700 AS bid, range AS bidder FROM range(2000)"
    )
    bids = {
        "unit": "bidder",
        "rows_per_unit": 1,
        "columns": {"bid": {"type": "integer", "bounds": [0, 1000]}},
    }
    rules = {
        "version": 1,
        "privacy_unit": "bidder",
        "budget": {"epsilon": epsilon, "delta": 1e-6, "accountant": accountant},
        "tables": {"bids": bids, "candidates": {"public": True}},
    }
    return dpsql.connect(database, policy=rules, ledger=":memory:")


@pytest.mark.parametrize(
    ("accountant", "price"), [("pure", "BIGINT"), ("zcdp", "DECIMAL(8,2)"), ("zcdp", "DOUBLE")]
)
def test_auction_selects_a_good_price(accountant: str, price: str) -> None:
    """The selected price brings nearly what the best one does, and its revenue is not released."""
    with auction(accountant, price=price) as con:
        database = con.engine.backend
        revenue = dict(
            database.read_public_rows(  # the test may look
                "SELECT c.price, SUM(c.price) FROM candidates AS c JOIN bids AS b ON b.bid >= c.price GROUP BY 1"
            )[0]
        )
        result = con.query(AUCTION, epsilon=0.5)
        ((chosen,),) = result.rows
        assert 10 * revenue[chosen] > 9 * max(revenue.values())
        assert result.columns == ("price",)
        assert str(revenue[chosen]) not in f"{result.rows} {result.receipt}"
        (release,) = con.explain(AUCTION, epsilon=0.5).prepared.releases
        best = release.plan.top_k
        assert best is not None
        # A bid adds at most the highest price to each revenue, however many prices it would pay.
        lattice = release.plan.analysis.measures[0].lattice
        assert lattice is not None
        assert (best.low, best.high * lattice.step) == (0, 1000)
        assert isinstance(release.plan.event, Pure if accountant == "pure" else BoundedRange)


LISTED = (
    "SELECT ARG_MAX(price, revenue) AS price FROM (SELECT c.price, SUM(c.price) AS revenue "
    "FROM (VALUES (100), (250), (400), (700)) AS c(price) JOIN bids AS b ON b.bid >= c.price GROUP BY c.price)"
)
"""The auction over candidates that the analyst lists."""


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("sql", [LISTED, AUCTION.replace("LIMIT 1", "LIMIT 3")], ids=["listed", "top 3"])
def test_selection_is_as_near_to_the_best_as_explained(accountant: str, sql: str) -> None:
    """EXPLAIN bounds the distance to the best score with 95% probability; 200 draws hold it."""
    with auction(accountant) as con:
        explained = con.explain(sql, epsilon=0.1)
        (release,) = explained.prepared.releases
        plan, best = release.plan, release.plan.top_k
        assert best is not None
        assert plan.analysis.domains is not None
        assert plan.analysis.measures[0].lattice is not None
        groups, step = len(plan.analysis.domains[0]), float(plan.analysis.measures[0].lattice.step)
        bound = best.bound_shortfall(groups, 0.95)
        assert (
            f"no selected score is more than {bound * step:,.4g} from the best remaining score of the {groups:,} groups"
            in str(explained)
        )
        exact = con.engine.backend.run_statement(release.statement.sql)
        scores = read_scores(plan.analysis, release.statement, exact)[1]
        entropy, worse = SeededEntropy(3), 0
        for _ in range(200):
            left = sorted(scores)
            chosen = [scores[place] for place in best.select_groups(scores, entropy)]
            off = []
            for score in chosen:
                off.append(left[-1] - score)
                left.remove(score)
            worse += max(off) > bound
        assert worse <= 0.05 * 200 + 5 * (0.05 * 0.95 * 200) ** 0.5
        assert bound < best.high * 2_000


def test_noisy_revenues_are_worse_than_selection() -> None:
    """Released as noisy sums, clamped to the highest price, the same scores would have an error ten times as large."""
    noisy = AUCTION.replace("SELECT c.price", "SELECT c.price, SUM(c.price)")
    with auction("zcdp") as con:
        (chosen,) = con.explain(AUCTION, epsilon=0.5).prepared.releases
        (released,) = con.explain(noisy, epsilon=0.5).prepared.releases
        assert chosen.plan.top_k is not None
        assert released.plan.top_k is None
        (clamp,) = released.plan.clamps
        highest = next(at for at, point in enumerate(clamp.grid) if point >= chosen.plan.top_k.high)
        held = released.plan.with_clamps((replace(clamp, chosen=(highest,)),))
        assert held.vectors[0].mechanism.std > 10 / float(chosen.plan.top_k.mechanism.rate)


@pytest.mark.parametrize(("accountant", "budget"), [("pure", 1), ("zcdp", 100)])
def test_several_selections_cost_as_much_as_one(accountant: str, budget: int) -> None:
    """LIMIT 3 costs what LIMIT 1 does, exactly the budget's ε here, and shows three prices that differ."""
    sql = AUCTION.replace("LIMIT 1", "LIMIT 3")
    with auction(accountant, budget) as con:
        (release,) = con.explain(sql, epsilon=1).prepared.releases
        assert isinstance(release.plan.event, Composed)
        assert len(release.plan.event.events) == 3
        cost = con.engine.get_account("bids").accountant.compute_charge
        assert cost(release.plan.event).is_within(cost(Pure(Fraction(1))))
        result = con.query(sql, epsilon=1)
        assert len({price for (price,) in result.rows}) == 3


def test_best_groups_come_first() -> None:
    """The chosen groups come in the order of their scores with hardly any noise."""
    world = World({**policy(unit="row"), "budget": {"epsilon": 10**6, "delta": 1e-6}})
    world.connection.execute(
        "INSERT INTO t (u, k) SELECT range, CASE WHEN range % 3 = 0 THEN 'A' ELSE 'B' END FROM range(900)"
    )
    for direction, expected in (("DESC", [("B",), ("A",)]), ("ASC", [("A",), ("B",)])):
        sql = f"SELECT k FROM t WHERE k IN ('A', 'B') GROUP BY k ORDER BY COUNT(*) {direction} LIMIT 2"
        prepared = plan_and_match(world.engine, Query(sql, epsilon=Fraction(1000)))
        assert answer_query(world.engine, prepared).rows == tuple(expected)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_mode_is_not_null(accountant: str) -> None:
    """NULL is no candidate of a mode, as in DuckDB, however many rows have no value."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE t AS SELECT range AS u, [NULL, NULL, NULL, 1, 1, 2][1 + range % 6] AS k FROM range(3000)"
    )
    columns = {"k": {"type": "integer", "values": [1, 2, 3]}}
    rules = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 100, "delta": 1e-6, "accountant": accountant},
        "tables": {"t": {"unit": "u", "rows_per_unit": 1, "columns": columns}},
    }
    with dpsql.connect(database, policy=rules, ledger=":memory:") as con:
        result = con.query("SELECT MODE(k), MODE(k) + 1, COUNT(*) > 2900 FROM t", epsilon=10)
        alone = con.query(
            "SELECT k FROM t WHERE k IS NOT NULL GROUP BY k ORDER BY COUNT(*) DESC LIMIT 1", epsilon=5
        )
    assert result.rows == ((1, 2, True),)
    assert len(result.receipt.mechanisms) == 2  # what is chosen once is charged once
    assert alone.rows == ((1,),)
