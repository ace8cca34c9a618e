"""Releases of one statistic that are put together: the means, their noise, and a refinement by Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database
from entropy import ScriptedEntropy, SeededEntropy

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.replay.stored_release import StoredRelease
from dpsql.errors import InternalError
from dpsql.privacy.mechanisms import CombinedNoise, DiscreteGaussian, Geometric

COUNT = "SELECT COUNT(*) AS n FROM visits"
MEANS = "SELECT plan, COUNT(*) AS n, AVG(cost) AS m FROM visits GROUP BY plan"


def opened(accountant: str, **changed: Any) -> Connection:
    """The clinic under an accountant."""
    budget = {"epsilon": 300, "delta": 1e-6, "accountant": accountant}
    policy = POLICY | {"budget": budget, "data_version": "1", "max_epsilon": 50} | changed
    return dpsql.connect(database(), policy=policy, ledger=":memory:", analyst="ana")


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """That clinic, with noise of either kind."""
    with opened(request.param) as connection:
        yield connection


def test_combined_answer_is_the_weighted_mean(con: Connection) -> None:
    """Of noisy counts each counts by the inverse of its variance, and the precisions add up."""
    results = [con.query(COUNT, epsilon=e, replay=False) for e in (1, Fraction(1, 2), Fraction(1, 2))]
    best = con.combine(COUNT)
    precisions = [1 / (result.scales[0][0] or 0) ** 2 for result in results]
    values = [result.rows[0][0] for result in results]
    mean = sum(p * v for p, v in zip(precisions, values, strict=True)) / sum(precisions)  # type: ignore[operator]
    assert abs(best.rows[0][0] - mean) <= 0.51  # type: ignore[operator]
    assert best.scales[0][0] == pytest.approx(sum(precisions) ** -0.5, rel=1e-3)
    assert (best.receipt.replayed, best.receipt.entries, best.receipt.loss) == ((1, 2, 3), (), None)


def test_combined_answer_is_free_and_reads_no_private_row(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No charge, no private row, no draw; whatever is done with it is post-processing."""
    for _ in range(3):
        con.query(MEANS, epsilon=1, replay=False)
    head = con.engine.ledger.read_head()
    monkeypatch.setattr(DuckDBBackend, "run_statement", lambda *_: pytest.fail("private rows are read"))
    object.__setattr__(con.engine, "entropy", ScriptedEntropy([]))
    best = con.combine(f"SELECT * FROM ({MEANS}) AS t WHERE n > ? ORDER BY m DESC", [0])
    assert con.engine.ledger.read_head() == head
    plain = con.combine(MEANS)
    assert sorted(best.rows) == sorted(plain.rows)
    assert all(
        low <= m <= high for (_, _, m), (_, _, (low, high)) in zip(plain, plain.intervals(), strict=True)
    )  # type: ignore[misc, operator]


def test_combined_intervals_are_those_of_the_mean(con: Connection) -> None:
    """Narrower than each of its parts, and by no more than the noise."""
    results = [con.query(MEANS, epsilon=1, replay=False) for _ in range(4)]
    widths = [
        [high - low for _, *ends in r.intervals() for low, high in ends]
        for r in (*results, con.combine(MEANS))
    ]  # type: ignore[misc]
    for *each, best in zip(*widths, strict=True):
        assert 0.35 * min(each) < best < 0.75 * max(each)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_combined_intervals_have_their_coverage(accountant: str) -> None:
    """Of 400 groups, the mean of three unequal releases is within its 90% interval in 90%, a few more or less."""
    data = database()
    data.execute("CREATE TABLE many AS SELECT i % 400 AS g, i AS id FROM range(4000) AS r(i)")
    columns = {"g": {"type": "integer", "bounds": [0, 399], "nullable": False}}
    policy = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 300, "delta": 1e-6, "accountant": accountant},
        "tables": {"many": {"unit": "row", "columns": columns}},
    }
    with dpsql.connect(data, policy=policy, ledger=":memory:", replay=False) as connection:
        object.__setattr__(connection.engine, "entropy", SeededEntropy(3))
        sql = "SELECT g, COUNT(*) AS n FROM many GROUP BY g"
        for epsilon in (0.2, 0.1, 0.15):
            connection.query(sql, epsilon=epsilon)
        found = connection.combine(sql).intervals(0.9)
    held = sum(low <= 10 <= high for _, (low, high) in found)  # type: ignore[misc]
    # Of 400 trials at 0.9 the number strays by 6; the interval of geometric noise is a little wide.
    assert 360 - 5 * 6 < held < 360 + 6 * 6


def test_chain_of_refinements_is_combined_once() -> None:
    """What was refined is its refinement with more noise: it adds nothing, and is left out."""
    with opened("pure") as connection:
        connection.query(COUNT, epsilon=1)
        last = connection.query(COUNT, epsilon=2)
        assert last.receipt.refined == (1,)
        best = connection.combine(COUNT)
        assert (best.rows, best.scales, best.receipt.replayed) == (last.rows, last.scales, (2,))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MEDIAN(cost) FROM visits",
        "SELECT days FROM visits GROUP BY days ORDER BY SUM(cost) DESC LIMIT 2",
    ],
)
def test_selected_values_come_from_the_first_release(con: Connection, sql: str) -> None:
    """Values and groups that were chosen have no mean."""
    first, _ = con.query(sql, epsilon=1), con.query(sql, epsilon=1, replay=False)
    assert con.combine(sql).rows == first.rows


def test_combining_without_a_stored_release_is_refused(con: Connection) -> None:
    """Another statistic, and a statement of which a part was released."""
    con.query(COUNT, epsilon=1)
    for sql in (
        f"{COUNT} WHERE cost > 5",
        f"SELECT a.n, b.n FROM ({COUNT}) AS a, ({COUNT} WHERE days > 1) AS b",
    ):
        with pytest.raises(dpsql.QueryRejected) as caught:
            con.combine(sql)
        assert caught.value.code == "nothing_released"
    assert len(con.engine.ledger.list_entries()) == 1


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_gaussian_release_is_refined_by_an_independent_one(accountant: str) -> None:
    """Under other accountants the difference buys a release of its own: together they are as accurate, at the price."""
    with opened(accountant) as connection:
        for number, epsilon in enumerate((Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2)), 1):
            refined = connection.query(MEANS, epsilon=epsilon)
            with opened(accountant) as other:
                alone = other.query(MEANS, epsilon=epsilon)
                price = other.budget()["visits"].spent
            spent = connection.budget()["visits"].spent
            assert spent.is_within(price)
            assert spent.loss >= price.loss * (1 - 1e-9)
            assert refined.receipt.refined == ((number - 1,) if number > 1 else ())
            assert refined.scales[0][1] <= alone.scales[0][1] * 1.001  # type: ignore[operator]
            assert connection.query(MEANS, epsilon=epsilon).rows == refined.rows
        assert connection.combine(MEANS).rows == refined.rows


def test_promised_accuracy_is_charged_in_full() -> None:
    """The mean of two releases keeps to a target as nearly as can be computed, which is not what was promised."""
    with opened("zcdp") as connection:
        connection.query(COUNT, target_error=100)
        assert connection.query(COUNT, target_error=20).receipt.refined == ()


def test_tables_of_different_accountants_are_charged_in_full() -> None:
    """No rule serves both."""
    visits = POLICY["tables"]["visits"]
    beds = {
        "unit": "patient_id",
        "rows_per_unit": 1,
        "columns": {},
        "budget": {"epsilon": 9, "accountant": "pure"},
    }
    data = database()
    data.execute("CREATE TABLE beds AS SELECT patient_id FROM visits WHERE days = 0")
    tables = {"tables": {"visits": visits, "beds": beds}}
    policy = POLICY | tables | {"data_version": "1"}
    sql = "SELECT COUNT(*) FROM visits JOIN beds ON visits.patient_id = beds.patient_id"
    with dpsql.connect(data, policy=policy, ledger=":memory:") as connection:
        connection.query(sql, epsilon=1)
        assert connection.query(sql, epsilon=2).receipt.refined == ()


def test_mean_of_noises_has_its_own_law() -> None:
    """Draws are the weighted sums, the variance is theirs, and the tail is bounded."""
    law = CombinedNoise(((2, Geometric(Fraction(3))), (3, DiscreteGaussian(Fraction(25)))))
    drawn = law.draw(20_000, SeededEntropy(1))
    assert math.fsum(each**2 for each in drawn) / len(drawn) == pytest.approx(
        law.compute_variance(), rel=0.05
    )
    assert law.compute_variance() == pytest.approx(4 * Geometric(Fraction(3)).compute_variance() + 9 * 25)
    for threshold in (-3, 0, 10, 40):
        assert law.bound_tail(threshold) >= sum(each >= threshold for each in drawn) / len(drawn)
    assert (law.subdivisions, law.is_gaussian) == (5, False)
    for parts in ((), ((0, Geometric(Fraction(1))),)):
        with pytest.raises(InternalError):
            CombinedNoise(parts)


def test_combined_noise_survives_storage() -> None:
    """The stored form of a merged release holds the law of each part."""
    with opened("zcdp") as connection:
        for epsilon in (1, 2):
            connection.query(COUNT, epsilon=epsilon)
        part = connection.explain(COUNT, epsilon=2).prepared.single_release
    assert part.replayed_release is not None
    table = part.replayed_release.table
    assert part.plan.event is not None
    text = StoredRelease.from_table(table, part.plan.event, "").to_text()
    (noise,) = StoredRelease.parse(text).noise
    assert isinstance(noise, CombinedNoise)
    assert noise.is_gaussian
    assert StoredRelease.parse(text).to_text() == text
