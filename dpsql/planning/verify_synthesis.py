"""The loss of a synthetic table or a stream, derived again from its laws, without the formulas that calibrated it."""

from __future__ import annotations

from fractions import Fraction

from dpsql.errors import VerificationError
from dpsql.privacy.accounting.numerics.rigorous import ln_up
from dpsql.privacy.mechanisms import DiscreteGaussian, Exponential, Geometric, Mechanism
from dpsql.privacy.synthesis.mechanism import SmallDatabase
from dpsql.privacy.synthesis.methods import SyntheticMethod
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import WeightsStream


def derive_synthesis_loss(
    found: SyntheticMethod | WeightsStream | RandomizedTable, l1: Fraction, *, replaced: bool
) -> dict[str, Fraction]:
    """Return the loss of each kind of step for a histogram that one unit moves by at most `l1`, from the laws."""
    spent = dict.fromkeys(("pure", "gaussian", "range"), Fraction(0))

    def add_loss(noise: Mechanism, moved: Fraction, length: Fraction, times: int = 1) -> None:
        if isinstance(noise, Geometric):
            spent["pure"] += times * moved / noise.scale
        elif isinstance(noise, DiscreteGaussian):
            spent["gaussian"] += times * length / (2 * noise.variance)
        else:
            raise VerificationError(f"verification has no rule for {noise.name} noise of a synthetic table")

    if isinstance(found, WeightsStream):
        spent |= derive_synthesis_loss(found.start, l1, replaced=replaced)
        # The noise of the threshold makes up for a unit once, that of the score which is above for it twice.
        spent["pure"] += found.updates * (l1 / found.test.near.scale + 2 * l1 / found.test.far.scale)
        add_loss(found.count, l1, l1**2, found.updates)
        return spent
    if isinstance(found, RandomizedTable):
        # Each row that a unit moves is answered anew: the product of the odds, of all columns, and the number of rows by one.
        logs = (ln_up(max(odds, 1 / odds)) for odds in found.odds)
        spent["pure"] += l1 * (sum(logs, Fraction(0)) + 1 / found.count.scale)
        return spent
    distances = l1 * len(found.workload)
    add_loss(found.check, distances, distances**2)
    if isinstance(found, SmallDatabase):
        add_loss(found.count, l1, l1**2)
        spent["range"] += found.selection.compute_range(1) * 2 * l1 * found.size
        return spent
    # A replaced unit takes its rows out of one cell of a marginal, and puts as many into another.
    squared = 2 * (l1 / 2) ** 2 if replaced else l1**2
    if isinstance(found, Mst):
        # A tree of c columns has c - 1 pairs, each of which is measured once, and chosen where there are others.
        pairs = len(found.shape) - 1
        add_loss(found.noise, l1, squared, pairs + 1)
        add_loss(found.pair_noise, l1, squared, pairs)
        spent["range"] += _derive_range(found.selection, 2 * l1, pairs if pairs > 1 else 0)
        return spent
    add_loss(found.noise, l1, squared, len(found.shape) + found.rounds)
    spent["range"] += _derive_range(found.selection, 2 * l1, found.rounds)
    return spent


def _derive_range(selection: Exponential | None, moved: Fraction, times: int) -> Fraction:
    """Return the bounded range of `times` choices together, whose scores one unit moves apart by at most `moved`."""
    if selection is None and times:
        raise VerificationError("a choice of a synthetic table has no mechanism")
    return Fraction(0) if selection is None else selection.compute_range(1) * moved * times
