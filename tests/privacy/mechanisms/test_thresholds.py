"""The threshold that a tail passes is the same however it is looked for."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import pytest

from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, LInfinityMechanism, Mechanism, Staircase
from dpsql.privacy.mechanisms.base import search_smallest, search_tail_threshold

LAWS: dict[str, Mechanism] = {
    "little geometric": Geometric(Fraction(1, 20)),
    "geometric": Geometric(Fraction(61, 3)),
    "great geometric": Geometric(Fraction(10**15)),
    "little gaussian": DiscreteGaussian(Fraction(1, 50)),
    "gaussian": DiscreteGaussian(Fraction(401, 3)),
    "great gaussian": DiscreteGaussian(Fraction(10**30)),
    "staircase": Staircase.calibrate(17, 1, Fraction(1, 2)),
    "cube": LInfinityMechanism.calibrate(Fraction(30), Fraction(1, 3), 4),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "probability", [Fraction(9, 10), Fraction(1, 3), Fraction(1, 10**9), Fraction(1, 2**800)]
)
@pytest.mark.parametrize("terms", [1, 3])
def test_interpolation_and_halving_find_the_same(law: str, probability: Fraction, terms: int) -> None:
    """They find it for each law and any probability."""
    noise = LAWS[law]
    tail = partial(noise.bound_sum_tail, terms)
    expected = search_smallest(lambda t: Fraction(tail(t)) <= probability)
    assert search_tail_threshold(tail, probability, math.ceil(noise.std)) == expected
    assert noise.compute_sum_threshold(terms, probability) == expected


@pytest.mark.parametrize("start", [1, 10, 10**6, 10**30])
def test_any_start_will_do(start: int) -> None:
    """Where the search begins decides how long it takes, and nothing else."""
    tail = partial(Geometric(Fraction(1000)).bound_sum_tail, 1)
    assert search_tail_threshold(tail, Fraction(1, 10**6), start) == search_smallest(
        lambda t: tail(t) <= Fraction(1, 10**6)
    )
