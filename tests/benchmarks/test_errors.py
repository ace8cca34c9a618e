"""Errors are those of the definition: what is missing counts as an answer of 0."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from benchmarks.accuracy.data import answer
from benchmarks.accuracy.errors import errors, geometric_mean, quantile

TRUTH = {("a",): (10.0, 1.0), ("b",): (4.0, None), ("c",): (0.0, 2.0)}
"""Two numbers of three groups; the second of b is NULL."""


def test_root_mean_square_is_over_groups_and_answers() -> None:
    """Each cell of each answer weighs the same."""
    first = {("a",): (13.0, 1.0), ("b",): (4.0, 7.0), ("c",): (0.0, 2.0)}
    second = {("a",): (10.0, 1.0), ("b",): (0.0, 7.0), ("c",): (1.0, 2.0)}
    found = errors(TRUTH, [first, second], 0)
    assert found.rmse == pytest.approx(math.sqrt((9 + 16 + 1) / 6))
    assert found.missing == 0


def test_missing_cell_has_the_error_of_zero() -> None:
    """Withheld groups and numbers that are none cost their whole value, and relatively 1."""
    found = errors(TRUTH, [{("a",): (None, 1.0)}], 0)
    assert found.rmse == pytest.approx(math.sqrt((100 + 16) / 3))
    assert found.median == found.high == 1
    assert found.missing == 1


def test_cells_without_an_exact_value_are_left_out() -> None:
    """Neither groups that nobody is in nor cells whose exact value is NULL count."""
    found = errors(TRUTH, [{("a",): (10.0, 1.0), ("c",): (0.0, 2.0), ("nobody",): (99.0, 99.0)}], 1)
    assert (found.rmse, found.median, found.missing) == (0, 0, 0)


def test_standard_error_falls_with_the_number_of_answers() -> None:
    """It is the relative standard error of the root mean square: half that of the mean square."""
    source = random.Random(1)
    answers = [{("a",): (10 + source.gauss(0, 1),)} for _ in range(4000)]
    few, many = (errors({("a",): (10.0,)}, answers[:count], 0).doubt for count in (250, 4000))
    assert many == pytest.approx(math.sqrt(2) / 2 / math.sqrt(4000), rel=0.2)
    assert few > 2 * many


@pytest.mark.parametrize("share", [0, 0.05, 0.5, 0.95, 1])
def test_quantiles_match_numpy(share: float) -> None:
    """They are interpolated between neighbours."""
    values = sorted([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
    assert quantile(values, share) == pytest.approx(np.quantile(values, share))
    assert math.isnan(quantile([], share))


def test_geometric_mean_is_that_of_the_logs() -> None:
    """Twice and half as good are as good."""
    assert geometric_mean([2, 0.5]) == pytest.approx(1)
    assert math.isnan(geometric_mean([]))


def test_answer_has_texts_for_keys_and_finite_numbers() -> None:
    """Peers say NULL, NaN and infinities in their own ways."""
    rows = [[1, 2, None], ["b", "3.5", float("nan")], ["c", 0, float("inf")]]
    assert answer(rows, 1) == {("1",): (2.0, None), ("b",): (3.5, None), ("c",): (0.0, None)}
