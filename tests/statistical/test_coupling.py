"""Refined noise against its joint law: chi-squared on (V1, V2) and on V2 alone, of draws by both samplers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from statistical.chance import FALSE_ALARM
from statistical.test_samplers import geometric_p_value, p_value

from dpsql.privacy.mechanisms import Geometric
from dpsql.privacy.mechanisms.entropy import SystemEntropy
from dpsql.privacy.mechanisms.geometric import Coupling

DRAWS = 200_000
CASES = [
    Coupling(Fraction(2), Fraction(1)),
    Coupling(Fraction(3), Fraction(29, 10)),
    Coupling(Fraction(8), Fraction(1)),
    Coupling(Fraction(1, 2), Fraction(1, 3)),
    Coupling(Fraction(400), Fraction(100)),
]


def drawn(law: Coupling) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of first and refined noise."""
    first = Geometric(law.old).draw(DRAWS, SystemEntropy())
    return np.array(first), np.array(law.refine(first, SystemEntropy()))


def joint(law: Coupling, first: int, second: int) -> float:
    """P(V1 = first, V2 = second) as V1 = V2 + W has it."""
    a, b = math.exp(-1 / float(law.old)), math.exp(-1 / float(law.new))
    kept = (1 - a) ** 2 * b / ((1 - b) ** 2 * a)
    step = (1 - kept) * (1 - a) / (1 + a) * a ** abs(first - second) + kept * (first == second)
    return (1 - b) / (1 + b) * b ** abs(second) * step


def joint_p_value(law: Coupling, first: np.ndarray, second: np.ndarray) -> float:
    """Cells are the pairs that expect 100 draws or more, and one for all others."""
    reach = range(-60, 61)
    law_of = {(one, two): joint(law, one, two) for one in reach for two in reach}
    cells = {pair: chance for pair, chance in law_of.items() if chance * DRAWS >= 100}
    seen = dict.fromkeys(cells, 0)
    for pair in zip(first.tolist(), second.tolist(), strict=True):
        if pair in seen:
            seen[pair] += 1
    counts, chances = [*seen.values()], [*cells.values()]
    return p_value(
        np.array([*counts, len(first) - sum(counts)]), np.array([*chances, 1 - math.fsum(chances)])
    )


@pytest.mark.parametrize("law", CASES, ids=repr)
def test_refined_noise_has_the_law_of_the_smaller_scale(law: Coupling) -> None:
    """V2 is geometric of the new scale, and V1 of the old one."""
    first, second = drawn(law)
    assert geometric_p_value(law.new, second) > FALSE_ALARM
    assert geometric_p_value(law.old, first) > FALSE_ALARM


@pytest.mark.parametrize("law", CASES[:4], ids=repr)
def test_released_and_refined_noise_have_their_joint_law(law: Coupling) -> None:
    """V1 = V2 + W with W independent of V2."""
    assert joint_p_value(law, *drawn(law)) > FALSE_ALARM


def test_independent_noise_is_distinguished_from_refined_noise() -> None:
    """The joint test sees noise of the right law that was drawn afresh."""
    law = CASES[1]
    first, _ = drawn(law)
    fresh = np.array(Geometric(law.new).draw(DRAWS, SystemEntropy()))
    assert joint_p_value(law, first, fresh) < FALSE_ALARM
