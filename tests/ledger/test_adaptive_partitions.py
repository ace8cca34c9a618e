"""Parts compose in parallel under every accountant, for units that lie in one part, and for no others.

The best adversary, who chooses each question and its part after the last answer, is enumerated exactly. Without the
enforced constancy of a unit, whose rows are then read in two parts, the same filter is caught.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from ledger.adversaries import (
    Budget,
    Filter,
    Release,
    assert_private,
    gaussian,
    leak,
    response,
)

from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges

BUDGET: Budget = (Fraction(1), Fraction(1, 10**3))
PLACES, MANY = (0, 1), 8
every_accountant = pytest.mark.parametrize("accountant", [kind() for kind in ACCOUNTANTS.values()], ids=str)


@dataclass(frozen=True, slots=True)
class Parted(Release):
    """A release that is charged to a box."""

    box: Box = WHOLE

    def read_by(self, places: Iterable[int]) -> Parted:
        """What it tells of a unit with rows at these places: nothing, where its box holds none of them."""
        if any(self.box.intersect_box(part(place)) is not None for place in places):
            return self
        return Parted(self.event, self.here, self.here, self.box)

    @property
    def mirrored(self) -> Parted:
        """The same with the neighbours exchanged."""
        return Parted(self.event, self.there, self.here, self.box)


def part(place: int) -> Box:
    """The box of one place."""
    return Box.from_sides({"region": ((place, place),)})


def parts_filter(accountant: Accountant) -> Filter:
    """The ledger's: what is spent at no place passes the limit."""
    limit = accountant.compute_limit(*BUDGET)

    def admits(path: tuple[Release, ...]) -> bool:
        spent = PartitionCharges()
        for release in path:
            assert isinstance(release, Parted)
            spent = spent.with_charge(release.box, accountant.compute_charge(release.event))
        return spent.compute_largest_charge().is_within(limit)

    return admits


def menu(accountant: Accountant) -> list[Parted]:
    """Releases of several kinds, at the limit and at half of it, to each part and to the whole."""
    limit = accountant.compute_limit(*BUDGET)
    found: list[Release] = []
    for share in (1, 2):
        epsilon = search_largest_epsilon(accountant.compute_charge, limit.loss // share)
        found.append(response(epsilon))
    rho = accountant.find_gaussian_rho(epsilon)
    found.append(leak(limit.delta_fraction / 2) if rho is None else gaussian(rho, (-1, 1)))
    return [
        Parted(release.event, release.here, release.there, box)
        for release in found
        for box in (*map(part, PLACES), WHOLE)
    ]


@every_accountant
@pytest.mark.parametrize("place", PLACES)
def test_a_unit_of_one_part_keeps_the_budget(accountant: Accountant, place: int) -> None:
    """Whatever is asked of its part, of others, and of all, in whatever order, tells no more than the budget."""
    asked = [release.read_by([place]) for release in menu(accountant)]
    assert_private(parts_filter(accountant), asked, BUDGET, depth=3)


@every_accountant
def test_a_unit_of_several_parts_would_pass_the_budget(accountant: Accountant) -> None:
    """So the engine leaves it out: the same filter admits an answer of the whole budget from each of its parts."""
    epsilon = search_largest_epsilon(accountant.compute_charge, accountant.compute_limit(*BUDGET).loss)
    told = response(epsilon)
    asked = [Parted(told.event, told.here, told.there, part(place)) for place in range(MANY)]
    admitted = parts_filter(accountant)

    def in_order(path: tuple[Release, ...]) -> bool:
        placed = [release.box for release in path if isinstance(release, Parted)]
        return placed == [part(place) for place in range(len(path))] and admitted(path)

    assert_private(in_order, [release.read_by([0]) for release in asked], BUDGET, depth=MANY)
    with pytest.raises(AssertionError, match="δ ="):
        assert_private(in_order, asked, BUDGET, depth=MANY)
