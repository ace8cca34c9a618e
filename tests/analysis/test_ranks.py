"""A value at a rank: one row moves its penalties no further apart than is derived, and somewhere as far."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.analysis.lattice import Lattice
from dpsql.analysis.ranks import Ranked, Window
from dpsql.mechanisms import Exponential
from tests.entropy import SeededEntropy

LATTICE = Lattice(0, -2, 4)
RANKS = [Fraction(text) for text in ("0", "1/100", "1/4", "1/2", "2/3", "9/10", "1")]
RATES = [Fraction(1, 100), Fraction(1), Fraction(40)]

every_rank = pytest.mark.parametrize("rank", RANKS, ids=str)


def ranked(rank: Fraction, rate: Fraction) -> Ranked:
    """A choice among seven points."""
    return Ranked(0, rank, LATTICE, Exponential(rate))


def window(values: tuple[int, ...]) -> Window:
    """All of the values."""
    runs = tuple((value, values.count(value)) for value in sorted(set(values)))
    return Window(len(values), 0, runs)


def penalties(chosen: Ranked, seen: Window) -> list[int]:
    """The penalty of each point, in order."""
    found = []
    for start, size, penalty in chosen.regions(seen):
        assert start == LATTICE.low + len(found)
        found += [penalty] * size
    assert len(found) == LATTICE.width + 1
    return found


def by_rows(chosen: Ranked, values: tuple[int, ...], point: int) -> int:
    """The penalty as it is told in rows: how many steps of rank the point's own values are from it."""
    below = sum(value < point for value in values)
    through = sum(value <= point for value in values)
    rank, count = chosen.rank, len(values)
    wanted = rank * count
    if rank in (0, 1):
        inside = min(Fraction(chosen.shift, 8), Fraction(count, 8))
        wanted += inside if rank == 0 else -inside
    rows = max(Fraction(0), below - wanted, wanted - through)
    return min(chosen.far, int(rows * chosen.whole))


@every_rank
@pytest.mark.parametrize("rate", RATES, ids=str)
@given(st.lists(st.integers(-2, 4), max_size=20).map(tuple))
def test_penalties_are_distances_from_the_rank(
    rank: Fraction, rate: Fraction, values: tuple[int, ...]
) -> None:
    """Each point's penalty is the number of rows between it and the rank, in steps."""
    chosen = ranked(rank, rate)
    points = range(LATTICE.low, LATTICE.high + 1)
    assert penalties(chosen, window(values)) == [by_rows(chosen, values, point) for point in points]


@every_rank
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_one_row_moves_penalties_apart_as_derived(rank: Fraction, rate: Fraction) -> None:
    """Over all databases of few rows and each further row; for some of them as far as that, or nearly."""
    chosen, worst = ranked(rank, rate), 0
    for size in (*range(5), 11):
        ends = (-2, 4) if size > 4 else (-2, 0, 1, 4)
        for values in combinations_with_replacement(ends, size):
            before = penalties(chosen, window(values))
            for value in range(LATTICE.low, LATTICE.high + 1):
                after = penalties(chosen, window((*values, value)))
                moves = [b - a for a, b in zip(before, after, strict=True)]
                worst = max(worst, max(moves) - min(moves))
    assert worst <= Ranked.step_range(rank)
    if rank == Fraction(1, 2) and rate == min(RATES):
        assert worst == Ranked.step_range(rank)


@every_rank
def test_what_is_far_is_all_alike(rank: Fraction) -> None:
    """No penalty passes `far`, which the number of points and the rate decide, and no row."""
    chosen = ranked(rank, Fraction(40))
    assert max(penalties(chosen, window((0,) * 1000))) == chosen.far
    assert chosen.far == ranked(rank, Fraction(40)).far
    assert ranked(rank, Fraction(1, 10**40)).far == 10**30


def test_a_sharp_choice_finds_the_value() -> None:
    """With hardly any noise the median, the least and the greatest value are found, ties among them."""
    entropy = SeededEntropy(3)
    values = (-2, -1, 0, 0, 0, 0, 1, 1, 3)
    for rank, found in ((Fraction(1, 2), 0), (Fraction(0), -2), (Fraction(1), 3), (Fraction(3, 4), 1)):
        assert {ranked(rank, Fraction(60)).choose(window(values), entropy) for _ in range(50)} == {found}


def test_without_values_every_point_is_as_good() -> None:
    """An empty group gives some point of the interval."""
    entropy = SeededEntropy(3)
    chosen = {ranked(Fraction(1, 2), Fraction(1)).choose(Window(), entropy) for _ in range(200)}
    assert chosen == set(range(LATTICE.low, LATTICE.high + 1))


def test_exact_values_show_nowhere() -> None:
    """A window says nothing of its values."""
    assert repr(window((1, 2, 3))) == "Window(…)"
