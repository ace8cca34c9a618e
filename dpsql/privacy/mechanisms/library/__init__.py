"""The mechanisms of the literature, for use without SQL: a loss and a sensitivity in, the exact law out.

`LIBRARY` lists them; the law tests and the gallery of the documents run over it. The noise laws that plans of the engine
have (`dpsql.privacy.mechanisms.MECHANISMS`) are integers in lattice steps and know no sensitivity; a mechanism here is such a law bound
to a sensitivity and a loss, and draws with the same samplers.
"""

from __future__ import annotations

from dpsql.privacy.mechanisms.library.base import LibraryMechanism, NoiseMechanism
from dpsql.privacy.mechanisms.library.gaussian import DiscreteGaussianMechanism, GaussianMechanism
from dpsql.privacy.mechanisms.library.laplace import GeometricMechanism, LaplaceMechanism, StaircaseMechanism
from dpsql.privacy.mechanisms.library.norms import CubeMechanism, VectorMechanism
from dpsql.privacy.mechanisms.library.responses import LocalMechanism, RandomizedResponse, UnaryEncoding
from dpsql.privacy.mechanisms.library.second_moments import SecondMoments, WishartMechanism
from dpsql.privacy.mechanisms.library.selection import (
    ExponentialMechanism,
    PermuteAndFlipMechanism,
    ReportNoisyMax,
    SelectionMechanism,
)

LIBRARY: tuple[type[LibraryMechanism], ...] = (
    RandomizedResponse,
    UnaryEncoding,
    LaplaceMechanism,
    GeometricMechanism,
    GaussianMechanism,
    DiscreteGaussianMechanism,
    StaircaseMechanism,
    CubeMechanism,
    VectorMechanism,
    WishartMechanism,
    ExponentialMechanism,
    PermuteAndFlipMechanism,
    ReportNoisyMax,
)
"""The mechanisms of the library, in the order of the gallery."""

__all__ = [
    "LIBRARY",
    "CubeMechanism",
    "DiscreteGaussianMechanism",
    "ExponentialMechanism",
    "GaussianMechanism",
    "GeometricMechanism",
    "LaplaceMechanism",
    "LibraryMechanism",
    "LocalMechanism",
    "NoiseMechanism",
    "PermuteAndFlipMechanism",
    "RandomizedResponse",
    "ReportNoisyMax",
    "SecondMoments",
    "SelectionMechanism",
    "StaircaseMechanism",
    "UnaryEncoding",
    "VectorMechanism",
    "WishartMechanism",
]
