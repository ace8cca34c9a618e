"""How fast noise is drawn: `python -m benchmarks.noise`.

Prints million draws a second of each exact sampler, over the operating system's entropy, and next to it
how many times as fast numpy draws the continuous law of the same scale, inexactly and from a seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, SystemEntropy
from dpsql.privacy.mechanisms.sampler import sample_discrete_gaussian, sample_two_sided_geometric

SCALES = (1, 10, 2**20, 2**31)
DRAWS = 10**6


def throughput(draw: Callable[[int], object], size: int = DRAWS, repeats: int = 3) -> float:
    """Draws a second, the best of `repeats` runs of `size` draws after a short one to warm up."""
    draw(size // 100)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        draw(size)
        times.append(time.perf_counter() - start)
    return size / min(times)


def samplers(scale: int) -> list[tuple[str, Callable[[int], object], Callable[[int], object]]]:
    """Each mechanism's name, its exact sampler and numpy's continuous one, at `scale` lattice steps."""
    entropy, generator, exact = SystemEntropy(), np.random.default_rng(), Fraction(scale)
    return [
        (
            Geometric.name,
            lambda size: sample_two_sided_geometric(exact, size, entropy),
            lambda size: generator.laplace(scale=scale, size=size),
        ),
        (
            DiscreteGaussian.name,
            lambda size: sample_discrete_gaussian(exact * exact, size, entropy),
            lambda size: generator.normal(scale=scale, size=size),
        ),
    ]


def main() -> None:
    """Print the table."""
    print(f"{'mechanism':<18} {'scale':>12} {'M draws/s':>10} {'numpy is faster by':>20}")
    for scale in SCALES:
        for name, exact, inexact in samplers(scale):
            rate = throughput(exact)
            ratio = throughput(inexact) / rate
            print(f"{name:<18} {scale:>12} {rate / 1e6:>10.2f} {ratio:>19.1f}x")


if __name__ == "__main__":
    main()
