"""Second-moment matrices: sensitivities by brute force, predicted errors against drawn ones, semidefinite results."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.errors import DataError
from dpsql.privacy.mechanisms import (
    CubeMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    SecondMoments,
    VectorMechanism,
)
from tests.entropy import SeededEntropy


def directions(dimensions: int) -> np.ndarray:
    """Rows of length 1: at random, along the axes, and along the diagonals."""
    draw = np.random.default_rng(dimensions)
    drawn = draw.normal(size=(3_000, dimensions))
    diagonal = np.sign(draw.normal(size=(50, dimensions)))
    rows = np.concatenate([drawn, np.eye(dimensions), diagonal])
    found: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_a_row_moves_the_entries_as_derived(dimensions: int) -> None:
    """In each norm by no more than the mechanism is calibrated to, and at the worst as far, for rows of length `bound`."""
    made = SecondMoments(epsilon=1, delta=1e-6, bound=3, dimensions=dimensions)
    above = np.triu_indices(dimensions)
    outer = 9 * np.einsum("ri,rj->rij", directions(dimensions), directions(dimensions))[:, above[0], above[1]]
    scaled = outer * np.where(above[0] == above[1], 1, 2**0.5)
    norms = {
        LaplaceMechanism: np.abs(outer).sum(axis=1).max(),
        CubeMechanism: np.abs(outer).max(),
        VectorMechanism: np.linalg.norm(scaled, axis=1).max(),
        GaussianMechanism: np.linalg.norm(scaled, axis=1).max(),
    }
    for law in made.candidates:
        assert norms[type(law)] == pytest.approx(float(law.sensitivity), rel=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dimensions", "delta"), [(1, None), (2, None), (4, None), (2, 1e-6), (9, 1e-6)])
def test_the_error_is_as_predicted_and_the_least(dimensions: int, delta: float | None) -> None:
    """Of 40 releases of a large matrix, which a projection does not change; and it is less than all others'."""
    made = SecondMoments(epsilon=2, delta=delta, dimensions=dimensions)
    assert made.errors[made.chosen.name] == min(made.errors.values())
    exact = 100_000 * np.eye(dimensions)
    squares = [((made.release(exact, entropy=SeededEntropy(seed)) - exact) ** 2).sum() for seed in range(40)]
    assert np.sqrt(np.mean(squares)) == pytest.approx(made.errors[made.chosen.name], rel=0.5)


def test_the_kind_of_noise_follows_the_prediction() -> None:
    """Few dimensions: the l2 norm. Many: Gaussian where δ allows. The corrected Wishart is never the least."""
    assert isinstance(SecondMoments(epsilon=1, dimensions=3).chosen, VectorMechanism)
    assert isinstance(SecondMoments(epsilon=1, dimensions=10).chosen, (LaplaceMechanism, CubeMechanism))
    many = SecondMoments(epsilon=1, delta=1e-6, dimensions=10)
    assert isinstance(many.chosen, GaussianMechanism)
    for dimensions in (2, 5, 10):
        errors = SecondMoments(epsilon=1, delta=1e-6, dimensions=dimensions).errors
        assert errors["Wishart"] > min(errors.values())


@pytest.mark.parametrize("epsilon", [0.05, 1])
def test_released_matrices_are_positive_semidefinite_and_nearer(epsilon: float) -> None:
    """Also of nobody's rows; the projection brings it no further from the exact matrix."""
    made = SecondMoments(epsilon=epsilon, dimensions=4)
    for exact in (np.zeros((4, 4)), np.ones((4, 4)) * 30):
        for seed in range(20):
            found = made.release(exact, entropy=SeededEntropy(seed))
            assert np.linalg.eigvalsh(found).min() > -1e-6
            assert (found == found.T).all()
    assert made.event() == made.chosen.event()


@pytest.mark.parametrize("matrix", [[[1]], [[1, 2], [3]], [[float("nan"), 0], [0, 1]]], ids=str)
def test_invalid_matrices_are_refused(matrix: Any) -> None:
    with pytest.raises(DataError):
        SecondMoments(epsilon=1, dimensions=2).release(matrix)


def test_entries_are_exact() -> None:
    """Fractions enter as they are, and an entry below the diagonal is not read."""
    made = SecondMoments(epsilon=10**6, dimensions=2)
    found = made.release([[Fraction(1, 3), Fraction(1, 7)], ["x", 5]])  # type: ignore[list-item]
    assert np.allclose(found, [[1 / 3, 1 / 7], [1 / 7, 5]], atol=1e-3)
