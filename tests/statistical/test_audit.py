"""The promise, end to end: what `con.query` answers on neighbours is as alike as its charge says.

Claim: for counts, sums, means and secret keys, for rows and for people as units, under both accountants,
no event tells neighbours apart better than the charged loss allows; and with noise a third too narrow, one
does. A sound engine fails a test here with probability at most 4e-8, any of them with less than 1e-6; a
faulty one passes one with less than 1e-6 (`test_number_of_runs_is_sufficient`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from scipy.stats import binom, ks_2samp
from statistical.audit import (
    FALSE_ALARM,
    TRAINING,
    WORLDS,
    Case,
    Floats,
    above,
    ask,
    below,
    gaussian,
    opened,
    outcomes,
    profile,
    promise,
    refuted,
    surplus,
)
from statistical.audit_cases import ALONE, CASES

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.release.noise import draw_release
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, LInfinityMechanism, Staircase, SystemEntropy
from dpsql.privacy.mechanisms.entropy import Entropy

TOO_NARROW = Fraction(2, 3)
"""Noise whose scale is divided by 1.5."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A case with a connection to its worlds."""

    case: Case
    connection: Connection

    def refuted(self) -> bool:
        """Whether one more answer shows that less noise was added than is charged for."""
        result = ask(self.connection, self.case)
        return refuted(*outcomes(self.case, result), *promise(self.case, result))


@pytest.fixture(scope="module")
def audit(request: pytest.FixtureRequest) -> Iterator[Audit]:
    with opened(request.param) as connection:
        yield Audit(request.param, connection)


def plant(monkeypatch: pytest.MonkeyPatch, factor: Fraction) -> None:
    """Draws are those of a mechanism with `factor` times the scale."""
    honest = Geometric.draw, DiscreteGaussian.draw, LInfinityMechanism.draw, Staircase.draw

    def geometric(self: Geometric, size: int, entropy: Entropy) -> list[int]:
        return honest[0](replace(self, scale=self.scale * factor), size, entropy)

    def discrete_gaussian(self: DiscreteGaussian, size: int, entropy: Entropy) -> list[int]:
        return honest[1](replace(self, variance=self.variance * factor**2), size, entropy)

    def cube(self: LInfinityMechanism, size: int, entropy: Entropy) -> list[int]:
        return honest[2](replace(self, scale=self.scale * factor), size, entropy)

    def staircase(self: Staircase, size: int, entropy: Entropy) -> list[int]:
        return honest[3](replace(self, loss=self.loss / factor), size, entropy)

    monkeypatch.setattr(LInfinityMechanism, "draw", cube)
    monkeypatch.setattr(Staircase, "draw", staircase)
    monkeypatch.setattr(Geometric, "draw", geometric)
    monkeypatch.setattr(DiscreteGaussian, "draw", discrete_gaussian)


@pytest.mark.parametrize("audit", [*CASES, *ALONE], indirect=True, ids=str)
def test_neighbours_are_as_alike_as_charged(audit: Audit) -> None:
    """No event refutes the loss and the δ that the ledger holds for the answer."""
    assert not audit.refuted()


@pytest.mark.parametrize("audit", CASES, indirect=True, ids=str)
def test_too_little_noise_is_found(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event refutes the loss with a scale divided by 1.5."""
    plant(monkeypatch, TOO_NARROW)
    assert audit.refuted()


@pytest.mark.parametrize("audit", ALONE, indirect=True, ids=str)
def test_threshold_for_too_little_noise_is_found(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold meant for noise 1.5 times narrower than it is shows keys of a lone unit more often than δ."""
    plant(monkeypatch, 1 / TOO_NARROW)
    assert audit.refuted()


RUNS = WORLDS // 2
LOSS = Fraction(2)
TOTAL = "SELECT SUM(x) FROM t"


def alone(*values: float, neighbors: str) -> Connection:
    """A database of two rows and these."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t AS SELECT unnest(CAST(? AS DOUBLE[])) AS x", [[2, 3, *values]])
    table = {"unit": "row", "columns": {"x": {"type": "double", "bounds": [-10, 10]}}}
    budget = {"epsilon": 1000, "accountant": "pure", "delta": 0}
    policy = {
        "version": 1,
        "privacy_unit": "row",
        "neighbors": neighbors,
        "budget": budget,
        "tables": {"t": table},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:", replay=False)


def released(connection: Connection, runs: int) -> Floats:
    """Answers of a query without groups, each charged nothing and released anew from the same exact rows."""
    prepared = plan_and_match(connection.engine, Query(TOTAL, epsilon=LOSS))
    exact = connection.engine.backend.run_statement(prepared.statement.sql)
    tables = (draw_release(prepared.plan, prepared.statement, exact, SystemEntropy()) for _ in range(runs))
    return np.array([float(table.rows[0][0]) for table in tables])


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_answers_without_groups_keep_the_promise(neighbors: str) -> None:
    """One sum over a whole table keeps the promise too; what `con.query` answers has the law that was tested."""
    gone = [-10] if neighbors == "replace" else []
    with alone(10, neighbors=neighbors) as here, alone(*gone, neighbors=neighbors) as there:
        samples = released(here, RUNS), released(there, RUNS)
        totals = [here.query(TOTAL, epsilon=LOSS).rows[0][0] for _ in range(100)]
    assert not refuted(*samples, float(LOSS), 0)
    assert ks_2samp(totals, samples[0]).pvalue > FALSE_ALARM


@pytest.mark.deep
def test_too_little_noise_is_found_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sum over a whole table breaks the promise with a scale divided by 1.5."""
    plant(monkeypatch, TOO_NARROW)
    with alone(10, neighbors="replace") as here, alone(-10, neighbors="replace") as there:
        assert refuted(released(here, RUNS), released(there, RUNS), float(LOSS), 0)


def geometric_event(epsilon: float, steps: int, numbers: int) -> list[tuple[float, float]]:
    """Probabilities on D and on D′ that none of so many numbers falls short of its value on D by j steps."""
    ratio = math.exp(-epsilon / numbers / steps)

    def tail(t: int) -> float:
        return ratio**t / (1 + ratio) if t > 0 else 1 - ratio ** (1 - t) / (1 + ratio)

    return [(tail(-j) ** numbers, tail(steps - j) ** numbers) for j in range(steps)]


def staircase_event(epsilon: float, steps: int) -> list[tuple[float, float]]:
    """As `geometric_event` for one number, with the stairs that are best at ε, but lower."""
    stairs = Staircase.calibrate(steps, 1, Fraction(epsilon))
    noise = replace(stairs, loss=stairs.loss / TOO_NARROW)
    return [(noise.bound_tail(j - steps), noise.bound_tail(j)) for j in range(steps + 1)]


def gaussian_event(rho: float, steps: int, numbers: int) -> list[tuple[float, float]]:
    """Probabilities on D and on D′ that the numbers' sum passes a bound."""
    law = gaussian(numbers * steps**2 / (2 * rho), numbers)
    tails = np.cumsum(law[::-1])[::-1]
    centre = len(law) // 2
    return [
        (tails[centre - j], tails[centre + numbers * steps - j]) for j in range(-steps, 2 * numbers * steps)
    ]


FACTOR = float(1 / TOO_NARROW)
SHAPES = {
    "a count": (2.0, 0.0, geometric_event(2 * FACTOR, 1, 1)),
    "a count of five rows": (2.0, 0.0, geometric_event(2 * FACTOR, 5, 1)),
    "a sum": (2.0, 0.0, geometric_event(2 * FACTOR, 1000, 1)),
    "a count of five rows by stairs": (2.0, 0.0, staircase_event(2, 5)),
    "a sum by stairs": (2.0, 0.0, staircase_event(2, 1000)),
    "two counts": (2.5, 0.0, geometric_event(2.5 * FACTOR, 1, 2)),
}
RHO = 2 * math.tanh(1)
SHAPES |= {
    f"gaussian, {steps} steps, {numbers} numbers": (
        1.0, profile(RHO, 1.0, steps, numbers), gaussian_event(RHO * FACTOR**2, steps, numbers),
    )
    for steps, numbers in ((1, 1), (5, 1), (100, 1), (1, 2))
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_number_of_runs_is_sufficient(shape: str) -> None:
    """Noise a third too narrow is refuted except with probability 2e-7."""
    epsilon, delta, events = SHAPES[shape]
    runs = RUNS - TRAINING
    found = (
        surplus(int(binom.ppf(1e-7, runs, p)), int(binom.isf(1e-7, runs, q)), runs, epsilon, delta)
        for p, q in events
    )
    assert max(found) > 0


@pytest.mark.parametrize("probability", [0.0, 0.001, 0.3, 1.0])
def test_bounds_hold_their_level(probability: float) -> None:
    """Clopper and Pearson's bounds, exactly: they are wrong for few enough of the possible counts."""
    counts = np.arange(RUNS + 1)
    law = binom.pmf(counts, RUNS, probability)
    assert law[below(counts, RUNS) > probability].sum() <= FALSE_ALARM
    assert law[above(counts, RUNS) < probability].sum() <= FALSE_ALARM
