"""Noise mechanisms: exact samplers, tail bounds and privacy losses of the noise that is added to integers.

A mechanism is a frozen value that names an exact law on the integers; `MECHANISMS` lists them all, and
the law tests run over it. One file a mechanism; all randomness comes through `Entropy`, and every draw
through `sampler`.
"""

from __future__ import annotations

from dpsql.mechanisms.base import Mechanism, Refinement, Sensitivity
from dpsql.mechanisms.combined import CombinedNoise
from dpsql.mechanisms.consistency import ConsistencyNoise
from dpsql.mechanisms.cube import Cube
from dpsql.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.mechanisms.gaussian import DiscreteGaussian
from dpsql.mechanisms.geometric import Geometric
from dpsql.mechanisms.partition_selection import PartitionSelection
from dpsql.mechanisms.records import register
from dpsql.mechanisms.selection import Exponential, PermuteAndFlip
from dpsql.mechanisms.staircase import Staircase

MECHANISMS: tuple[type[Mechanism], ...] = (Geometric, DiscreteGaussian, Cube, Staircase)
"""The additive noise mechanisms that plans may have."""

register(*MECHANISMS, CombinedNoise)

__all__ = [
    "MECHANISMS",
    "CombinedNoise",
    "ConsistencyNoise",
    "Cube",
    "DiscreteGaussian",
    "Entropy",
    "Exponential",
    "Geometric",
    "Mechanism",
    "PartitionSelection",
    "PermuteAndFlip",
    "Refinement",
    "Sensitivity",
    "Staircase",
    "SystemEntropy",
]
