"""Randomised tables: their exact law on tiny ones, the loss by it, the naive variants, and estimates that hold."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from privacy.synthesis.losses import pure
from scipy import stats

from dpsql.errors import LossError
from dpsql.privacy.synthesis.randomized import RandomizedTable
from tests.entropy import SeededEntropy

Law = dict[tuple[int, ...], float]
MOST = 9
"""Rows that are shown at most where laws are computed: more are as likely on neighbours but for the noise of their number."""


def answers(made: RandomizedTable, cell: int) -> np.ndarray:
    """The probabilities of the cells of a row's answer, by the formula."""
    found = np.ones(1)
    for axis, (value, size, odds) in enumerate(
        zip(np.unravel_index(cell, made.shape), made.shape, made.odds, strict=True)
    ):
        each = np.ones(size)
        each[value] = float(odds)
        if axis in made.rounded:
            share = value / (size - 1)
            each = np.zeros(size)
            each[0], each[-1] = 1 - share + share / float(odds), share + (1 - share) / float(odds)
        found = np.outer(found, each / each.sum()).ravel()
    return found


def convolved(law: Law, row: np.ndarray) -> Law:
    """The law of histograms with one more row."""
    found: Law = defaultdict(float)
    for counts, chance in law.items():
        for cell, part in enumerate(row):
            more = list(counts)
            more[cell] += 1
            found[tuple(more)] += chance * part
    return found


def law_of(made: RandomizedTable, rows: Sequence[int], *, noisy: bool = True) -> Law:
    """The probabilities of all shown histograms of up to `MOST` rows; without `noisy`, of a table that shows as many as there are."""
    cells, total = math.prod(made.shape), defaultdict(float)
    nothing: Law = {(0,) * cells: 1.0}
    at_random = np.mean([answers(made, cell) for cell in range(cells)], axis=0)
    rate = math.exp(-1 / float(made.count.scale))
    for shown in range(MOST + 1):
        if shown == 0:
            number = rate ** len(rows) / (1 + rate)
        else:
            number = (1 - rate) / (1 + rate) * rate ** abs(shown - len(rows))
        if not noisy:
            number = float(shown == len(rows))
        chosen = list(itertools.combinations(rows, min(shown, len(rows))))
        for share in chosen:
            law = nothing
            for cell in share:
                law = convolved(law, answers(made, cell))
            for _ in range(shown - len(share)):
                law = convolved(law, at_random)
            for counts, chance in law.items():
                total[counts] += number * chance / len(chosen)
    return total


def worst(one: Law, two: Law) -> float:
    """The largest absolute log-ratio of two laws."""
    return max(abs(math.log(one[key] / two[key])) for key in one if one[key] or two[key])


@pytest.mark.parametrize(
    ("shape", "rounded"), [((3,), ()), ((2, 2), ()), ((3,), (0,)), ((2, 2), (1,))], ids=str
)
def test_one_row_changes_a_table_by_no_more_than_its_loss(
    shape: tuple[int, ...], rounded: tuple[int, ...]
) -> None:
    """Exactly, over all tables of up to two rows, and all rows that may come; and by nearly as much at the worst."""
    made = RandomizedTable.calibrate(shape, 1, pure(Fraction(2)), replace=False, rounded=rounded)
    cells = math.prod(shape)
    assert float(made.loss) <= 2
    found = 0.0
    for size in range(3):
        for rows in itertools.combinations_with_replacement(range(cells), size):
            before = law_of(made, rows)
            for row in range(cells):
                found = max(found, worst(before, law_of(made, (*rows, row))))
    assert 0.6 * float(made.loss) < found <= float(made.loss) + 1e-9


def test_a_unit_of_two_rows_has_twice_the_changes() -> None:
    """Added, removed, or replaced: the loss of one row is a half, or a quarter, of the whole."""
    one = RandomizedTable.calibrate((3,), 1, pure(Fraction(2)), replace=False)
    two = RandomizedTable.calibrate((3,), 2, pure(Fraction(2)), replace=False)
    assert two.odds[0] < one.odds[0]
    assert worst(law_of(two, ()), law_of(two, (0, 0))) <= 2
    assert worst(law_of(two, (1, 2)), law_of(two, (0, 0))) <= 4  # removed and added
    moved = RandomizedTable.calibrate((3,), 4, pure(Fraction(2)), replace=True)
    assert worst(law_of(moved, (1, 2)), law_of(moved, (0, 0))) <= 2


@pytest.mark.parametrize("rounded", [(), (0,)], ids=str)
def test_draws_follow_the_law(rounded: tuple[int, ...]) -> None:
    """5,000 tables of two rows are as often what the law says, also where a value in the middle is rounded at random."""
    made = RandomizedTable.calibrate((3,), 1, pure(Fraction(4)), replace=False, rounded=rounded)
    law, entropy = law_of(made, (0, 1)), SeededEntropy(5)
    table, number = np.array([1, 1, 0]), 5_000
    seen = Counter(tuple(made.run(table, entropy).histogram.tolist()) for _ in range(number))
    likely = [key for key, chance in law.items() if chance * number > 8]
    counts = [*(seen[key] for key in likely), number - sum(seen[key] for key in likely)]
    expected = [*(law[key] * number for key in likely)]
    expected.append(number - sum(expected))
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_a_number_of_rows_that_is_exact_tells_of_one() -> None:
    """The naive table shows as many rows as there are: with one more, every table is impossible that was possible before."""
    made = RandomizedTable.calibrate((3,), 1, pure(Fraction(2)), replace=False)
    one, two = law_of(made, (0,), noisy=False), law_of(made, (0, 0), noisy=False)
    assert not {key for key, chance in one.items() if chance} & {key for key, chance in two.items() if chance}


def test_answers_at_full_odds_fail() -> None:
    """Each column with the whole loss, as if the answers of one row did not add up, tells more than is charged."""
    made = RandomizedTable.calibrate((2, 2), 1, pure(Fraction(2)), replace=False)
    odds = Fraction(math.exp(1.8)).limit_denominator(1000)
    careless = RandomizedTable(**{**vars(made), "odds": (odds, odds)})
    assert worst(law_of(careless, (0,)), law_of(careless, (0, 3))) > 1.2 * 2


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_few_rows_fail_in_nothing(rows: int) -> None:
    made = RandomizedTable.calibrate((2, 3), 1, pure(Fraction(1)), replace=False)
    for seed in range(40):
        table = np.zeros((2, 3), np.int64)
        table[1, 2] = rows
        found = made.run(table, SeededEntropy(seed)).histogram
        assert found.min() >= 0
        assert found.shape == (2, 3)


def test_meaningless_loss_is_refused() -> None:
    with pytest.raises(LossError):
        RandomizedTable.calibrate((2, 3), 1, pure(Fraction(1, 10**6)), replace=False)
