"""Trees of pairs: what is read of private rows moves as derived, transcripts lose what is charged, and rows follow the tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from privacy.synthesis.losses import neighbours, pure, zcdp

from dpsql.errors import QueryRejected
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric
from dpsql.privacy.synthesis.mechanism import MOST_ROWS, compute_marginal_sensitivity
from dpsql.privacy.synthesis.mst import (
    MOST_CELLS,
    MOST_INVENTED,
    MergedColumn,
    Mst,
    _filter_joining_pairs,
    count_rows,
    list_read_marginals,
    merge_table,
    project_onto_simplex,
    project_onto_sums,
    require_small_tables,
)
from dpsql.privacy.synthesis.workload import (
    Counts,
    Marginal,
    compute_marginal,
    compute_marginal_distance,
    parse_workload,
)
from tests.entropy import SeededEntropy

SHAPE = (2, 3, 2)
CASES = [(1, False), (2, False), (1, True), (2, True)]
"""Rows of a unit, and whether it is replaced."""
LARGE = Fraction(10**7)


def tables_of(histogram: Counts, parts: Sequence[Marginal] = ()) -> dict[Marginal, Counts]:
    """What is read of a table."""
    return {part: compute_marginal(histogram, part) for part in list_read_marginals(histogram.ndim, parts)}


def made_for(rows: int, *, replace: bool, epsilon: int = 1, shape: tuple[int, ...] = SHAPE) -> Mst:
    """A synthesis for units of so many rows, under ε alone."""
    parts, l1 = parse_workload("marginals(2)", "abcdefgh"[: len(shape)]), rows * (2 if replace else 1)
    return Mst.calibrate(shape, parts, l1, pure(Fraction(epsilon)), replace=replace)


@pytest.mark.parametrize("total", [40, MOST_ROWS])
@pytest.mark.parametrize(("rows", "replace"), CASES)
def test_no_neighbour_moves_what_is_read_further_than_derived(rows: int, replace: bool, total: int) -> None:
    """Tables in both norms, by value and by bin, scores and distances; and each bound is attained."""
    made = replaced(made_for(rows, replace=replace, shape=SHAPE[:2]), workload=list_read_marginals(2, ()))
    norms, most = compute_marginal_sensitivity(made.l1, replace=replace), made.l1
    columns = [np.array([30.0, 10.0]), np.array([20.0, 2.0, 1.0])]
    merged = [MergedColumn.from_noisy_counts(found, 4.0) for found in columns]
    assert [bins.size for bins in merged] == [2, 2]
    invented, numbers = np.array([[0, 1], [1, 2]]), np.array([5, 7])
    worst = dict.fromkeys(("l1", "l2", "score", "distance"), 0)
    for pair in neighbours(made.shape, rows, replace=replace, seed=rows):
        one, two = map(tables_of, pair)
        for part in one:
            moved = [one[part] - two[part]]
            if len(part) == 2:
                a, b = (merged[axis] for axis in part)
                moved.append(merge_table(one[part], a, b) - merge_table(two[part], a, b))
            worst["l1"] = max(worst["l1"], *(int(np.abs(off).sum()) for off in moved))
            worst["l2"] = max(worst["l2"], *(int((off * off).sum()) for off in moved))
        scores = (made.compute_scores(found, columns, merged, total) for found in (one, two))
        worst["score"] = max(worst["score"], *(abs(a - b) for a, b in zip(*scores, strict=True)))
        apart = abs(
            made.compute_workload_distance(one, invented, numbers)
            - made.compute_workload_distance(two, invented, numbers)
        )
        worst["distance"] = max(worst["distance"], apart)
    assert worst["l1"] == norms.l1
    assert worst["l2"] == norms.l2_squared
    assert most <= 2 * worst["score"] <= 2 * most
    assert most < worst["distance"] <= most * len(made.workload)


class Recorded(Mst):
    """A synthesis that writes down what it releases on its way."""

    transcript: list[tuple[Any, ...]]

    def measure_column(self, tables: Any, axis: int, entropy: Any) -> Any:
        found = Mst.measure_column(self, tables, axis, entropy)
        self.transcript.append(("column", axis, found))
        return found

    def measure_pair(self, tables: Any, pair: Any, merged: Any, entropy: Any) -> Any:
        found = Mst.measure_pair(self, tables, pair, merged, entropy)
        self.transcript.append(("pair", pair, merged, found))
        return found

    def compute_scores(self, tables: Any, columns: Any, merged: Any, total: int) -> list[int]:
        self.transcript.append(("scores", columns, merged, total))
        return Mst.compute_scores(self, tables, columns, merged, total)

    def select_pair(self, scores: Any, entropy: Any) -> int:
        found = Mst.select_pair(self, scores, entropy)
        self.transcript.append(("choice", found))
        return found


def recorded(
    made: Mst, tables: Mapping[Marginal, Counts], entropy: Any, **changed: Any
) -> tuple[Recorded, Any]:
    """One run with its transcript."""
    found = Recorded(**{**vars(made), **changed})
    object.__setattr__(found, "transcript", [])
    return found, found.run(tables, entropy)


def log_law(noise: Geometric | DiscreteGaussian, off: NDArray[Any]) -> float:
    """The log of the probability of these draws, but for a constant."""
    if isinstance(noise, Geometric):
        return -float(np.abs(off.astype(float)).sum()) / float(noise.scale)
    return -float((off.astype(float) ** 2).sum()) / (2 * float(noise.variance))


def log_probability(made: Recorded, tables: Mapping[Marginal, Counts], released: Any) -> float:
    """The log of the probability of a transcript, by the formulae of the laws, but for a constant."""
    total, gains, left = 0.0, {}, list(itertools.combinations(range(len(made.shape)), 2))
    measured: dict[Marginal, None] = {}
    for item in made.transcript:
        match item:
            case ("column", axis, noisy):
                total += log_law(made.noise, noisy - tables[axis,])
            case ("scores", columns, merged, rows):
                for a, b in left:
                    parts = [
                        project_onto_simplex(
                            merged[axis].sum_bins(columns[axis]), float(rows), merged[axis].value_counts
                        )
                        for axis in (a, b)
                    ]
                    sums = [part.sum() for part in parts]
                    parts = [part / of if of else 1 + 0 * part for part, of in zip(parts, sums, strict=True)]
                    parts = [part / part.sum() for part in parts]
                    estimate = np.rint(np.outer(*parts) * rows).astype(np.int64)
                    off = merge_table(tables[a, b], merged[a], merged[b]) - estimate
                    cost = made.pair_noise.std * math.sqrt(2 / math.pi) * off.size
                    gains[a, b] = int(np.abs(off).sum()) - round(cost)
            case ("choice", chosen):
                assert made.selection is not None
                rates = [float(made.selection.rate) * gains[pair] for pair in left]
                total += rates[chosen] - max(rates) - math.log(sum(math.exp(r - max(rates)) for r in rates))
            case ("pair", (a, b), merged, noisy):
                total += log_law(made.pair_noise, noisy - merge_table(tables[a, b], merged[a], merged[b]))
                measured[a, b] = None
                left = _filter_joining_pairs(measured, left)
    off = released.distance - made.compute_workload_distance(tables, released.rows, released.numbers)
    return total + log_law(made.check, np.array([off]))


def worst_of(made: Mst, rows: int, *, replace: bool, step: int, **changed: Any) -> float:
    """The largest change of the log of a transcript's probability between neighbours."""
    entropy, worst = SeededEntropy(rows), 0.0
    for pair in itertools.islice(neighbours(made.shape, rows, replace=replace, seed=3), 0, None, step):
        one, two = map(tables_of, pair)
        found, released = recorded(made, one, entropy, **changed)
        ratio = log_probability(found, one, released) - log_probability(found, two, released)
        worst = max(worst, abs(ratio))
    return worst


@pytest.mark.parametrize(("rows", "replace"), CASES)
def test_transcripts_lose_no_more_than_is_charged(rows: int, replace: bool) -> None:
    """Under ε alone, the probability of all that was released changes by a factor within e^ε for each neighbour, and by much."""
    made = made_for(rows, replace=replace, epsilon=2, shape=(2, 2, 2))
    found = worst_of(made, rows, replace=replace, step=1 if rows == 1 and not replace else 23)
    assert 2 / 4 < found <= 2 * (1 + 1e-9)


def test_transcripts_of_a_naive_one_lose_more() -> None:
    """With noise for the share of one table, as if each pair had the whole, a transcript tells more than ε."""
    made = made_for(1, replace=False, shape=(2, 2, 2))
    careless = Geometric(Fraction(1))
    assert worst_of(made, 1, replace=False, step=1, noise=careless, pair_noise=careless) > 1.5


def test_a_choice_follows_its_law() -> None:
    """By χ² at 0.1%: pair i is chosen in proportion to e^(rate·score)."""
    made, scores, entropy = made_for(1, replace=False, epsilon=8), [3, 9, -4], SeededEntropy(2)
    assert made.selection is not None
    found = np.bincount([made.select_pair(scores, entropy) for _ in range(2_000)], minlength=3)
    expected = np.exp(float(made.selection.rate) * np.array(scores, float))
    expected *= 2_000 / expected.sum()
    assert expected.min() > 5
    assert float(((found - expected) ** 2 / expected).sum()) < 13.8


@pytest.mark.parametrize("loss", [pure, zcdp])
def test_at_a_large_loss_each_pair_of_the_tree_is_that_of_the_table(loss: Any) -> None:
    """With hardly any noise the pairs of the tree are met but for rounding, and it is the tree of the largest distances."""
    stream = np.random.default_rng(2)
    a = stream.integers(0, 4, 3_000)
    b, c = (a + stream.integers(0, 2, 3_000)) % 4, a // 2
    d = np.where(stream.random(3_000) < 0.8, c, 1 - c)
    table = np.zeros((4, 4, 2, 2), np.int64)
    np.add.at(table, (a, b, c, d), 1)
    made = Mst.calibrate(table.shape, parse_workload("marginals(2)", "abcd"), 1, loss(LARGE), replace=False)
    found, released = recorded(made, tables_of(table), SeededEntropy(4))
    pairs = [item[1] for item in found.transcript if item[0] == "pair"]
    assert pairs[0] == (0, 1)
    assert set(pairs) == {(0, 1), (0, 2), (2, 3)}
    for pair in pairs:
        off = count_rows(released.rows, released.numbers, table.shape, pair) - compute_marginal(table, pair)
        assert np.abs(off).max() <= 2
    assert released.numbers.sum() == 3_000


@pytest.mark.parametrize("width", [1, 2, 3])
def test_tables_of_few_rows_fail_in_nothing(width: int) -> None:
    """Nobody, or one row: whatever the noise is, rows have values of their columns and stand for numbers of at least 1."""
    shape = SHAPE[:width]
    for table in (np.zeros(shape, np.int64), np.eye(1, math.prod(shape), dtype=np.int64).reshape(shape)):
        for seed in range(10):
            made = made_for(1, replace=False, shape=shape) if width > 1 else None
            made = made or Mst.calibrate(shape, ((0,),), 1, zcdp(Fraction(1, 2)), replace=False)
            found = made.run(tables_of(table), SeededEntropy(seed))
            assert found.rows.shape == (len(found.numbers), width)
            assert (found.numbers > 0).all()
            assert (found.rows >= 0).all()
            assert (found.rows < np.array(shape)).all()


def test_each_synthetic_row_stands_for_several_beyond_the_limit() -> None:
    """At a loss that tells nothing there may be 2^50 of them, which no memory holds."""
    for epsilon in (Fraction(1, 10**9), Fraction(1, 10**30)):
        made = Mst.calibrate((2, 2), ((0, 1),), 2**40, pure(epsilon), replace=False)
        table = tables_of(np.ones((2, 2), np.int64))
        found = [made.run(table, SeededEntropy(seed)).numbers for seed in range(2)]
        assert max(int(numbers.sum()) for numbers in found) == MOST_ROWS
        assert max(map(len, found)) == MOST_INVENTED


def test_the_distance_is_released_with_noise() -> None:
    """By the law of `check`: what is released differs from the distance of the rows, over any workload, as widely as it says."""
    made, off = replaced(made_for(1, replace=False, epsilon=2), workload=((0, 1, 2), (1,))), []
    table = np.arange(12).reshape(SHAPE)
    tables = tables_of(table, made.workload)
    for seed in range(60):
        found, synthetic = made.run(tables, SeededEntropy(seed)), np.zeros(SHAPE, np.int64)
        np.add.at(synthetic, tuple(found.rows.T), found.numbers)
        exact = sum(compute_marginal_distance(table, synthetic, part) for part in made.workload)
        assert exact == made.compute_workload_distance(tables, found.rows, found.numbers)
        off.append(found.distance - exact)
    assert 0.5 < np.std(off) / made.check.std < 2


def test_each_marginal_has_noise_and_merged_bins_follow() -> None:
    """Columns and pairs are as far off as their laws say, and bins are those of the noisy counts."""
    made, tables = made_for(1, replace=False, epsilon=2), tables_of(np.arange(12).reshape(SHAPE))
    off: dict[str, list[int]] = {"column": [], "pair": []}
    for seed in range(40):
        found, _ = recorded(made, tables, SeededEntropy(seed))
        noisy: list[Any] = []
        for item in found.transcript:
            match item:
                case ("column", axis, counts):
                    noisy.append(counts)
                    off["column"].extend(counts - tables[axis,])
                case ("pair", (a, b), merged, table):
                    again = [
                        MergedColumn.from_noisy_counts(counts.astype(float), 3 * made.noise.std)
                        for counts in noisy
                    ]
                    assert all(map(np.array_equal, (m.bins for m in merged), (m.bins for m in again)))
                    off["pair"].extend((table - merge_table(tables[a, b], merged[a], merged[b])).ravel())
    for name, noise in (("column", made.noise), ("pair", made.pair_noise)):
        assert 0.7 < np.std(np.array(off[name], float)) / noise.std < 1.4


def test_large_tables_are_refused() -> None:
    """One of too many cells, or too many together, whatever the data are."""
    require_small_tables((MOST_CELLS, 1), ((0, 1),))
    for shape, parts in (
        ((MOST_CELLS + 1,), ((0,),)),
        ((400, 300), ((0, 1),)),
        ((60, 60, 60), ((0, 1, 2),)),
        ((200,) * 9, ((0,),)),
    ):
        with pytest.raises(QueryRejected) as caught:
            Mst.calibrate(shape, parts, 1, pure(Fraction(1)), replace=False)
        assert caught.value.code == "synthetic_domain"


def test_a_tree_joins_all_columns() -> None:
    """Whatever is chosen, there are as many pairs as columns but one, and no path joins two columns twice."""
    stream = np.random.default_rng(1)
    for width in (2, 3, 7):
        left, pairs = list(itertools.combinations(range(width), 2)), {}
        while left:
            pairs[left[stream.integers(len(left))]] = None
            left = _filter_joining_pairs(pairs, left)
        assert len(pairs) == width - 1
        assert set(itertools.chain.from_iterable(pairs)) == set(range(width))


def test_projections_are_the_nearest() -> None:
    """No other values of that sum, and no other table with these sums, is nearer."""
    stream = np.random.default_rng(0)
    for _ in range(20):
        values, variances = stream.normal(0, 3, 5), stream.uniform(0.5, 3, 5)
        found = project_onto_simplex(values, 4.0, variances)
        assert found.sum() == pytest.approx(4)
        assert (found >= 0).all()
        others = stream.dirichlet(np.ones(5), 200) * 4
        near = ((found - values) ** 2 / variances).sum()
        assert (((others - values) ** 2 / variances).sum(axis=1) >= near - 1e-9).all()
    table, truth = stream.normal(2, 3, (4, 3)), stream.dirichlet(np.ones(12)).reshape(4, 3) * 20
    rows, columns = truth.sum(axis=1), truth.sum(axis=0)
    made = project_onto_sums(table, rows, columns)
    assert np.allclose(made.sum(axis=1), rows)
    assert np.allclose(made.sum(axis=0), columns, atol=0.01)
    # Towards any other table with these sums the squared distance grows, as far as the sums of columns hold.
    assert float(((truth - made) * (made - table)).sum()) > -0.1
