"""Mechanisms: a public library of published mechanisms, and the noise laws that the engine draws.

- `LIBRARY`, for use without SQL: `LaplaceMechanism`, `RandomizedResponse`, `ExponentialMechanism` and more take a loss and a
  sensitivity, and give samples, variance, intervals, the privacy profile and the event for an accountant.
- `MECHANISMS`, for plans: a law is a frozen value on the integers, in lattice steps, with tail bounds and its loss for a
  sensitivity; the law tests run over it. One file a law.

All randomness comes through `Entropy`, and every draw through `sampler`.

>>> noise = LaplaceMechanism(epsilon=0.5, sensitivity=1)
>>> round(noise.variance, 2), noise.event()
(8.0, Pure(epsilon=Fraction(1, 2)))
"""

from __future__ import annotations

from dpsql.privacy.mechanisms.base import Mechanism, Refinement, Sensitivity, register_mechanisms
from dpsql.privacy.mechanisms.combined import CombinedNoise, ConsistencyNoise
from dpsql.privacy.mechanisms.cube import LInfinityMechanism
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.gaussian import DiscreteGaussian
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.library import (
    LIBRARY,
    CubeMechanism,
    DiscreteGaussianMechanism,
    ExponentialMechanism,
    GaussianMechanism,
    GeometricMechanism,
    LaplaceMechanism,
    LibraryMechanism,
    LocalMechanism,
    NoiseMechanism,
    PermuteAndFlipMechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SecondMoments,
    SelectionMechanism,
    StaircaseMechanism,
    UnaryEncoding,
    VectorMechanism,
    WishartMechanism,
)
from dpsql.privacy.mechanisms.selection import Exponential, PartitionSelection, PermuteAndFlip
from dpsql.privacy.mechanisms.staircase import Staircase

MECHANISMS: tuple[type[Mechanism], ...] = (Geometric, DiscreteGaussian, LInfinityMechanism, Staircase)
"""The additive noise mechanisms that plans may have."""

register_mechanisms(*MECHANISMS, CombinedNoise)

__all__ = [
    "LIBRARY",
    "MECHANISMS",
    "CombinedNoise",
    "ConsistencyNoise",
    "CubeMechanism",
    "DiscreteGaussian",
    "DiscreteGaussianMechanism",
    "Entropy",
    "Exponential",
    "ExponentialMechanism",
    "GaussianMechanism",
    "Geometric",
    "GeometricMechanism",
    "LInfinityMechanism",
    "LaplaceMechanism",
    "LibraryMechanism",
    "LocalMechanism",
    "Mechanism",
    "NoiseMechanism",
    "PartitionSelection",
    "PermuteAndFlip",
    "PermuteAndFlipMechanism",
    "RandomizedResponse",
    "Refinement",
    "ReportNoisyMax",
    "SecondMoments",
    "SelectionMechanism",
    "Sensitivity",
    "Staircase",
    "StaircaseMechanism",
    "SystemEntropy",
    "UnaryEncoding",
    "VectorMechanism",
    "WishartMechanism",
]
