"""Synthetic histograms: what is read of private rows moves as derived, transcripts lose what is charged, and errors are bounded."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from privacy.synthesis.losses import ZCDP, neighbours, pure, zcdp

from dpsql.errors import LossError
from dpsql.planning.choose import LossShare
from dpsql.privacy.accounting.events import BoundedRange, Composed, Pure
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric
from dpsql.privacy.synthesis.mechanism import (
    MOST_ROWS,
    Mwem,
    SmallDatabase,
    compute_largest_size,
    compute_marginal_sensitivity,
    enumerate_databases,
)
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.workload import (
    Counts,
    MeasuredCount,
    MeasuredMarginal,
    compute_independent_weights,
    compute_marginal,
    fit_weights,
    parse_workload,
    round_to_rows,
    update_weights,
)
from tests.entropy import SeededEntropy

SHAPE = (2, 3)
PAIRS = parse_workload("marginals(2)", "ab")
BOTH = (*PAIRS, (0,), (1,))
CASES = [(1, False), (2, False), (1, True), (2, True)]
"""Rows of a unit, and whether it is replaced."""


def l1(rows: int, *, replace: bool) -> int:
    """How far a unit of so many rows moves a histogram."""
    return rows * (2 if replace else 1)


@pytest.mark.parametrize("total", [40, MOST_ROWS])
@pytest.mark.parametrize(("rows", "replace"), CASES)
def test_no_neighbour_moves_what_is_read_further_than_derived(rows: int, replace: bool, total: int) -> None:
    """Marginals in both norms, scores, penalties and distances; and each bound is attained."""
    most = l1(rows, replace=replace)
    norms = compute_marginal_sensitivity(most, replace=replace)
    mwem = Mwem.calibrate(SHAPE, BOTH, most, pure(Fraction(1)), replace=replace)
    small = SmallDatabase.calibrate(SHAPE, BOTH, most, pure(Fraction(1)), replace=replace, size=3)
    weights = np.array([[0.1, 0.2, 0.3], [0.05, 0.05, 0.3]])
    model = np.rint(weights * 40).astype(np.int64)
    worst = dict.fromkeys(("l1", "l2", "score", "penalty", "distance"), 0)
    for one, two in neighbours(SHAPE, rows, replace=replace, seed=rows):
        for part in BOTH:
            moved = compute_marginal(one, part) - compute_marginal(two, part)
            worst["l1"] = max(worst["l1"], int(np.abs(moved).sum()))
            worst["l2"] = max(worst["l2"], int((moved * moved).sum()))
        scores = (mwem.compute_scores(found, weights, total, BOTH) for found in (one, two))
        worst["score"] = max(worst["score"], *(abs(a - b) for a, b in zip(*scores, strict=True)))
        penalties = (small.compute_penalties(found, total) for found in (one, two))
        worst["penalty"] = max(worst["penalty"], *(abs(a - b) for a, b in zip(*penalties, strict=True)))
        moved_apart = abs(
            mwem.compute_workload_distance(one, model) - mwem.compute_workload_distance(two, model)
        )
        worst["distance"] = max(worst["distance"], moved_apart)
    assert worst["l1"] == norms.l1
    assert worst["l2"] == norms.l2_squared
    assert most <= 2 * worst["score"] <= 2 * most
    assert worst["penalty"] <= small.size * most
    assert most < worst["distance"] <= most * len(BOTH)


class Recorded(Mwem):
    """A synthesis that writes down what it releases on its way."""

    transcript: list[Any]

    def measure_marginal(self, histogram: Counts, marginal: Any, entropy: Any) -> Any:
        found = Mwem.measure_marginal(self, histogram, marginal, entropy)
        self.transcript.append(found)
        return found

    def compute_scores(self, histogram: Counts, weights: Any, total: int, marginals: Any) -> list[int]:
        self.transcript.append((weights, total, list(marginals)))
        return Mwem.compute_scores(self, histogram, weights, total, marginals)

    def select_marginal(self, scores: Any, entropy: Any) -> int:
        found = Mwem.select_marginal(self, scores, entropy)
        self.transcript.append(found)
        return found


def log_law(noise: Geometric | DiscreteGaussian, off: NDArray[Any]) -> float:
    """The log of the probability of these draws, but for a constant."""
    if isinstance(noise, Geometric):
        return -float(np.abs(off).sum()) / float(noise.scale)
    return -float((off * off).sum()) / (2 * float(noise.variance))


def log_probability(made: Recorded, histogram: Counts, released: Any) -> float:
    """The log of the probability of a transcript on a histogram, by the formulae of the laws, but for a constant."""
    total, scores = 0.0, None
    for item in made.transcript:
        match item:
            case (weights, rows, marginals):
                # Written anew: the distance from whole numbers, less the expected noise.
                cell = made.noise.std * math.sqrt(2 / math.pi)
                scores = [
                    int(
                        np.abs(
                            compute_marginal(histogram, part)
                            - np.rint(compute_marginal(weights, part) * rows)
                        ).sum()
                    )
                    - round(cell * compute_marginal(weights, part).size)
                    for part in marginals
                ]
            case (part, noisy):
                total += log_law(made.noise, (noisy - compute_marginal(histogram, part)).astype(float))
            case chosen:
                assert scores is not None
                assert made.selection is not None
                rate = float(made.selection.rate)
                best = max(scores)
                parts = [math.exp(rate * (score - best)) for score in scores]
                total += math.log(parts[chosen] / math.fsum(parts))
    off = released.distance - sum(
        int(np.abs(compute_marginal(histogram, part) - compute_marginal(released.histogram, part)).sum())
        for part in made.workload
    )
    return total + log_law(made.check, np.array([float(off)]))


@pytest.mark.parametrize(("rows", "replace"), CASES)
def test_transcripts_lose_no_more_than_is_charged(rows: int, replace: bool) -> None:
    """Under ε alone, the probability of all that was released changes by a factor within e^ε for each neighbour, and by much."""
    epsilon, shape = Fraction(2), (2, 2, 2)
    parts = parse_workload("marginals(2)", "abc")
    made = Recorded(
        **vars(
            Mwem.calibrate(shape, parts, l1(rows, replace=replace), pure(epsilon), replace=replace, rounds=2)
        )
    )
    worst, entropy = 0.0, SeededEntropy(rows)
    for place, (one, two) in enumerate(neighbours(shape, rows, replace=replace, seed=3)):
        if place % (1 if rows == 1 and not replace else 23):
            continue
        object.__setattr__(made, "transcript", [])
        released = made.run(one, entropy)
        ratio = log_probability(made, one, released) - log_probability(made, two, released)
        worst = max(worst, abs(ratio))
    assert float(epsilon) / 4 < worst <= float(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("method", [Mwem, SmallDatabase])
def test_the_distance_is_released_with_noise(method: Any) -> None:
    """By the law of `check`: what is released differs from the exact distance, as widely as it says."""
    table, off = np.array([[4, 0, 9], [1, 7, 2]]), []
    made = method.calibrate(SHAPE, PAIRS, 1, pure(Fraction(2)), replace=False)
    for seed in range(60):
        found = made.run(table, SeededEntropy(seed))
        off.append(found.distance - made.compute_workload_distance(table, found.histogram))
    assert 0.5 < np.std(off) / made.check.std < 2


def test_transcripts_of_a_naive_one_lose_more() -> None:
    """With noise for one marginal's share only, as if choosing were free, a transcript tells more than ε."""
    made = Mwem.calibrate((2, 2), parse_workload("marginals(2)", "ab"), 1, pure(Fraction(1)), replace=False)
    careless = Recorded(**{**vars(made), "noise": Geometric(Fraction(1))})
    worst, entropy = 0.0, SeededEntropy(5)
    for one, two in neighbours((2, 2), 1, replace=False, seed=1):
        object.__setattr__(careless, "transcript", [])
        released = careless.run(one, entropy)
        ratio = log_probability(careless, one, released) - log_probability(careless, two, released)
        worst = max(worst, abs(ratio))
    assert worst > 1.5


@pytest.mark.parametrize(("rows", "replace"), CASES)
def test_small_databases_lose_no_more_than_is_charged(rows: int, replace: bool) -> None:
    """The law of the choice changes by a factor within e^range, over all neighbours, whatever the number of rows is."""
    most = l1(rows, replace=replace)
    made = SmallDatabase.calibrate(SHAPE, BOTH, most, pure(Fraction(3)), replace=replace, size=3)
    (charged,) = [event for event in _events(made.event) if isinstance(event, BoundedRange)]
    worst = 0.0
    for one, two in neighbours(SHAPE, rows, replace=replace, seed=2):
        for total in (0, 7):
            rate = float(made.selection.rate)
            logs = [-rate * np.array(made.compute_penalties(found, total)) for found in (one, two)]
            laws = [log - math.log(np.exp(log - log.max()).sum()) - log.max() for log in logs]
            worst = max(worst, float(np.abs(laws[0] - laws[1]).max()))
    assert 0.2 * float(charged.epsilon) < worst <= float(charged.epsilon) * (1 + 1e-9)


def _events(event: Any) -> list[Any]:
    return (
        [found for part in event.events for found in _events(part)]
        if isinstance(event, Composed)
        else [event]
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(7, 2)])
@pytest.mark.parametrize("loss", [pure, zcdp])
def test_the_price_is_that_of_a_query(epsilon: Fraction, loss: Any) -> None:
    """Noise, choices and the last distance cost what the loss does, and no more."""
    for made in (
        Mwem.calibrate((4, 3, 2), parse_workload("marginals(2)", "abc"), 2, loss(epsilon), replace=False),
        Mwem.calibrate((4,), ((0,),), 1, loss(epsilon), replace=True),
        SmallDatabase.calibrate((2, 2), ((0, 1),), 1, loss(epsilon), replace=False),
        *(Mst.calibrate((4, 3, 2)[:width], ((0,),), 2, loss(epsilon), replace=True) for width in (1, 2, 3)),
    ):
        if loss is pure:
            spent = sum(event.epsilon for event in _events(made.event))
            assert spent == epsilon
        else:
            assert ZCDP.compute_charge(made.event).is_within(ZCDP.compute_charge(Pure(epsilon)))
            assert 100 * ZCDP.compute_charge(made.event).loss > 99 * ZCDP.compute_charge(Pure(epsilon)).loss


def correlated(seed: int, size: int) -> Counts:
    """A table in which three columns depend on each other, and two do not."""
    stream = np.random.default_rng(seed)
    a = stream.integers(0, 4, size)
    b, c = (a + stream.integers(0, 2, size)) % 4, a // 2
    found = np.zeros((4, 4, 2, 3), np.int64)
    np.add.at(found, (a, b, c, stream.choice(3, size, p=[0.7, 0.2, 0.1])), 1)
    return found


def test_marginals_are_near_and_better_than_independent_columns() -> None:
    """At ε = 1 pairs that depend on each other are nearly right, and the released distance says how near they are."""
    table, parts = correlated(1, 20_000), parse_workload("marginals(2)", "abcd")
    made = Mwem.calibrate(table.shape, parts, 1, zcdp(Fraction(1)), replace=False)
    found = made.run(table, SeededEntropy(4))
    flat = compute_independent_weights([compute_marginal(table, (axis,)).astype(float) for axis in range(4)])
    alone = round_to_rows(flat, int(table.sum()), parts)
    assert made.compute_workload_distance(table, found.histogram) * 20 < made.compute_workload_distance(
        table, alone
    )
    assert abs(
        found.distance - made.compute_workload_distance(table, found.histogram)
    ) <= made.check.compute_half_width(0.999999)
    assert abs(int(found.histogram.sum()) - 20_000) < 100


@pytest.mark.parametrize("epsilon", [5_000, 10**7])
@pytest.mark.parametrize("loss", [pure, zcdp])
def test_table_is_reproduced_at_a_large_loss(loss: Any, epsilon: int) -> None:
    """Every pair is met within rounding, with hardly any noise or none that a float shows."""
    table, parts = correlated(2, 3_000), parse_workload("marginals(2)", "abcd")
    made = Mwem.calibrate(table.shape, parts, 1, loss(Fraction(epsilon)), replace=False, rounds=6)
    found = made.run(table, SeededEntropy(4)).histogram
    assert made.compute_workload_distance(table, found) < 0.02 * 3_000 * len(parts)
    assert found.sum() == 3_000


@pytest.mark.parametrize(
    "table", [np.zeros((2, 3), np.int64), np.eye(3, dtype=np.int64)[:2]], ids=["empty", "two"]
)
@pytest.mark.parametrize("method", [Mwem, SmallDatabase])
def test_tables_of_few_rows_fail_in_nothing(table: Counts, method: Any) -> None:
    """Nobody, or two rows: whatever the noise is, counts are whole numbers of at least 0."""
    made = method.calibrate((2, 3), BOTH, 1, pure(Fraction(1, 2)), replace=False)
    for seed in range(30):
        found = made.run(table, SeededEntropy(seed)).histogram
        assert found.shape == (2, 3)
        assert found.dtype == np.int64
        assert (found >= 0).all()


def test_the_theorem_of_small_databases() -> None:
    """Some database of ln(2k)/(2α²) rows is within α of any table on k counts: here on all of 200 tables, with room to spare."""
    shape, parts, stream = (2, 3), parse_workload("marginals(2)", "ab"), np.random.default_rng(6)
    cells, alpha = 6, 0.3
    size = math.ceil(math.log(2 * cells) / (2 * alpha**2))
    assert size <= compute_largest_size(cells)
    every = enumerate_databases(cells, size) / size
    for _ in range(200):
        table = stream.dirichlet(np.full(cells, 0.3))
        assert np.abs(every - table).max(axis=1).min() < alpha
    assert len(parts) == 1
    assert shape == SHAPE


def test_the_utility_of_small_databases() -> None:
    """Beyond the best small database, the chosen one errs by no more than the theorem says, as often as it says."""
    table = np.array([[400, 30, 5], [7, 200, 90]])
    made = SmallDatabase.calibrate(SHAPE, PAIRS, 1, pure(Fraction(1)), replace=False, size=5)
    bound, total, worse = made.bound_shortfall(0.9), int(table.sum()), 0
    penalties = made.compute_penalties(table, total)
    best, entropy = min(penalties), SeededEntropy(8)
    for _ in range(200):
        chosen = made.selection.select_candidate([1] * len(penalties), penalties, entropy)
        worse += (penalties[chosen] - best) / made.size > bound
    assert worse <= 0.1 * 200 + 4 * math.sqrt(0.09 * 200)
    assert bound < total


@pytest.mark.parametrize("method", [Mwem, SmallDatabase])
def test_noise_beyond_all_whole_numbers_of_a_table_is_cut(method: Any) -> None:
    """At a loss that tells nothing there are so many rows that sums of 64 bits still hold them."""
    made = method.calibrate(SHAPE, PAIRS, 2**40, pure(Fraction(1, 10**9)), replace=False)
    found = {
        int(made.run(np.ones(SHAPE, np.int64), SeededEntropy(seed)).histogram.sum()) for seed in range(8)
    }
    assert max(found) == MOST_ROWS


def test_synthetic_tables_that_take_too_long_are_refused() -> None:
    """Whatever the data are: by the number of cells, marginals and rounds."""
    loss: LossShare = pure(Fraction(1))
    wide = tuple((a, b) for a in range(16) for b in range(a))
    for refused in (
        lambda: Mwem.calibrate((2,) * 16, wide, 1, loss, replace=False, rounds=100),
        lambda: SmallDatabase.calibrate((100, 20), ((0, 1),), 1, loss, replace=False),
        lambda: SmallDatabase.calibrate((3, 2), ((0, 1),), 1, loss, replace=False, size=60),
        lambda: SmallDatabase.calibrate((10, 10), ((0, 1),) * 60, 1, loss, replace=False),
    ):
        with pytest.raises(LossError):
            refused()
    fitting = Mwem.calibrate((2,) * 16, wide, 1, loss, replace=False)
    assert 1 <= fitting.rounds < 32


def test_multiplicative_weights_come_nearer() -> None:
    """An update towards the truth lessens the relative entropy by the lemma's amount, and the fit meets what it is given."""
    stream = np.random.default_rng(3)
    for _ in range(50):
        truth, weights = stream.dirichlet(np.ones(12)), stream.dirichlet(np.ones(12))
        query = stream.random(12) < 0.5
        error = float(truth[query].sum() - weights[query].sum())
        after = update_weights(weights, error / 2 * query)

        def entropy(of: NDArray[np.float64], truth: NDArray[np.float64] = truth) -> float:
            return float((truth * np.log(truth / of)).sum())

        assert entropy(weights) - entropy(after) >= error * error / 4 - 1e-12
    table = correlated(5, 5_000) / 5_000
    start = np.full(table.shape, 1 / table.size)
    pair = MeasuredMarginal((0, 1), compute_marginal(table, (0, 1)), 1e-4)
    some = np.zeros(table.shape, bool)
    some[0, :, 1] = True
    found = fit_weights(start, [pair, MeasuredCount(some, 0.2, 1e-4)], 400)
    assert np.abs(compute_marginal(found, (0, 1)) - pair.parts).max() < 0.01
    assert abs(float(found[some].sum()) - 0.2) < 0.01
    assert found.sum() == pytest.approx(1)


def test_whole_rows_are_all_there() -> None:
    """The number of rows is kept, and each cell has the whole number above or below its share."""
    stream = np.random.default_rng(4)
    for total in (0, 1, 17, 5_000):
        weights = stream.dirichlet(np.full(24, 0.4)).reshape(2, 3, 4)
        found = round_to_rows(weights, total, ((0, 1),))
        assert found.sum() == total
        assert (np.abs(found - weights * total) < 1 + 1e-6).all()
