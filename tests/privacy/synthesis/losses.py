"""Losses for synthesis, and histograms of tiny tables with their neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from dpsql.planning.choose import LossShare
from dpsql.privacy.accounting.accountants import ZcdpAccountant
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.events import BoundedRange, Pure
from dpsql.privacy.synthesis.workload import Counts

ZCDP = ZcdpAccountant()


def pure(epsilon: Fraction) -> LossShare:
    """The loss under an accountant that adds ε up."""
    return LossShare(epsilon, None, Fraction(0))


def zcdp(epsilon: Fraction) -> LossShare:
    """The loss under zCDP."""
    units = ZCDP.compute_charge(Pure(epsilon)).loss

    def ranged(share: Fraction) -> Fraction:
        return search_largest_epsilon(ZCDP.compute_charge, int(units * share), BoundedRange)

    def whole(share: Fraction) -> Fraction:
        return search_largest_epsilon(ZCDP.compute_charge, int(units * share))

    return LossShare(epsilon, ZCDP.find_gaussian_rho(epsilon), Fraction(0), ranged, pure_of=whole)


def neighbours(
    shape: tuple[int, ...], rows: int, *, replace: bool, seed: int
) -> Iterator[tuple[Counts, Counts]]:
    """Histograms that differ in a unit of at most so many rows, wherever these are, in both directions."""
    stream = np.random.default_rng(seed)
    cells = int(np.prod(shape))
    shares = [
        share
        for size in range(rows + 1)
        for share in itertools.combinations_with_replacement(range(cells), size)
    ]
    for base in ([0] * cells, stream.integers(0, 4, cells).tolist(), stream.integers(0, 90, cells).tolist()):
        for share in shares:
            others = [shares[at] for at in stream.integers(0, len(shares), 6)] if replace else [()]
            for other in others:
                one, two = np.array(base), np.array(base)
                np.add.at(one, list(share), 1)
                np.add.at(two, np.array(other, int), 1)
                yield one.reshape(shape), two.reshape(shape)
                yield two.reshape(shape), one.reshape(shape)
