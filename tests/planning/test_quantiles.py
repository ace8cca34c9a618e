"""A value at a rank: one row moves its penalties no further apart than is derived, and somewhere as far."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.analysis.release_analysis import Lattice
from dpsql.planning.quantiles import QuantileSelection, RankWindow
from dpsql.privacy.mechanisms import Exponential
from tests.entropy import SeededEntropy

LATTICE = Lattice(0, -2, 4)
RANKS = [Fraction(text) for text in ("0", "1/100", "1/4", "1/2", "2/3", "9/10", "1")]
RATES = [Fraction(1, 100), Fraction(1), Fraction(40)]

every_rank = pytest.mark.parametrize("rank", RANKS, ids=str)
every_end = pytest.mark.parametrize("end", [0, -1, 1], ids=["value", "low", "high"])


def ranked(rank: Fraction, rate: Fraction, end: int = 0) -> QuantileSelection:
    """A choice among seven points."""
    return QuantileSelection(0, rank, LATTICE, Exponential(rate), end)


def window(values: tuple[int, ...]) -> RankWindow:
    """All of the values."""
    runs = tuple((value, values.count(value)) for value in sorted(set(values)))
    return RankWindow(len(values), 0, runs)


def penalties(chosen: QuantileSelection, seen: RankWindow) -> list[int]:
    """The penalty of each point, in order."""
    found = []
    for start, size, penalty in chosen.list_regions(seen):
        assert start == LATTICE.low + len(found)
        found += [penalty] * size
    assert len(found) == LATTICE.width + 1
    return found


def by_rows(chosen: QuantileSelection, values: tuple[int, ...], point: int) -> int:
    """The penalty as it is told in rows: how many steps of rank the point's own values are from it."""
    below = sum(value < point for value in values)
    through = sum(value <= point for value in values)
    rank, count = chosen.rank, len(values)
    wanted = rank * count + Fraction(chosen.interval_end * chosen.reach, chosen.steps_per_row)
    if min(rank, 1 - rank) <= Fraction(1, 10) and not chosen.interval_end:
        near = min(rank, 1 - rank)
        moved = Fraction(chosen.shift, chosen.steps_per_row) + near * count / 2
        inside = max(near * count, min(Fraction(count, 2), moved))
        wanted = inside if rank < Fraction(1, 2) else count - inside
    rows = max(
        Fraction(0),
        0 if (chosen.interval_end, point) == (-1, LATTICE.low) else below - wanted,
        0 if (chosen.interval_end, point) == (1, LATTICE.high) else wanted - through,
    )
    return min(chosen.cutoff, int(rows * chosen.steps_per_row))


@every_end
@every_rank
@pytest.mark.parametrize("rate", RATES, ids=str)
@given(st.lists(st.integers(-2, 4), max_size=20).map(tuple))
def test_penalties_are_distances_from_the_rank(
    rank: Fraction, rate: Fraction, end: int, values: tuple[int, ...]
) -> None:
    """Each point's penalty is the number of rows between it and the rank, in steps.

    Of an end that is so many rows further out; beyond the last point there are as many as it takes.
    """
    chosen = ranked(rank, rate, end)
    points = range(LATTICE.low, LATTICE.high + 1)
    assert penalties(chosen, window(values)) == [by_rows(chosen, values, point) for point in points]


@every_end
@every_rank
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_one_row_changes_penalty_differences_as_derived(rank: Fraction, rate: Fraction, end: int) -> None:
    """Over all databases of few rows and each further row; for some of them as far as that, or nearly."""
    chosen, worst = ranked(rank, rate, end), 0
    for size in (*range(5), 11):
        ends = (-2, 4) if size > 4 else (-2, 0, 1, 4)
        for values in combinations_with_replacement(ends, size):
            before = penalties(chosen, window(values))
            for value in range(LATTICE.low, LATTICE.high + 1):
                after = penalties(chosen, window((*values, value)))
                moves = [b - a for a, b in zip(before, after, strict=True)]
                worst = max(worst, max(moves) - min(moves))
    assert worst <= QuantileSelection.compute_step_range(rank)
    if rank == Fraction(1, 2) and rate == min(RATES) and not end:
        assert worst == QuantileSelection.compute_step_range(rank)


@every_rank
def test_penalties_are_limited(rank: Fraction) -> None:
    """No penalty passes `far`, which the number of points and the rate decide, and no row."""
    chosen = ranked(rank, Fraction(40))
    assert max(penalties(chosen, window((0,) * 1000))) == chosen.cutoff
    assert chosen.cutoff == ranked(rank, Fraction(40)).cutoff
    assert ranked(rank, Fraction(1, 10**40)).cutoff == 10**30


def test_a_sharp_choice_finds_the_value() -> None:
    """With hardly any noise the median, the least and the greatest value are found, ties among them."""
    entropy = SeededEntropy(3)
    values = (-2, -1, 0, 0, 0, 0, 1, 1, 3)
    for rank, found in ((Fraction(1, 2), 0), (Fraction(0), -2), (Fraction(1), 3), (Fraction(3, 4), 1)):
        assert {ranked(rank, Fraction(60)).select_point(window(values), entropy) for _ in range(50)} == {
            found
        }


@pytest.mark.parametrize("bits", [3, 30, 62])
@pytest.mark.parametrize("rate", [Fraction(1, 80), Fraction(1, 8), Fraction(25, 4)], ids=str)
@pytest.mark.parametrize("rank", [rank for rank in RANKS if min(rank, 1 - rank) <= Fraction(1, 10)], ids=str)
@given(st.lists(st.integers(-(2**9), 2**9), min_size=1, max_size=40), st.integers(1, 40))
def test_an_empty_side_is_never_chosen(
    bits: int, rank: Fraction, rate: Fraction, some: list[int], times: int
) -> None:
    """However many points it has: a value near an end stays among the values, or within e^-6 of it, by the law.

    Careless: with a margin that is the same for each number of points, they outweigh the values from some number on.
    """
    lattice = Lattice(0, -(2**bits), 2**bits)
    chosen = QuantileSelection(0, rank, lattice, Exponential(rate))
    held = tuple(max(lattice.low, min(lattice.high, value)) for value in sorted(some * times))
    seen = chosen.list_regions(window(held))
    least = min(penalty for _, _, penalty in seen)
    weights = [(start, size * math.exp(-float(rate) * (penalty - least))) for start, size, penalty in seen]
    beyond = sum(
        weight for start, weight in weights if (start < held[0] if rank < 1 / 2 else start > held[-1])
    )
    if chosen.steps_per_row * len(held) >= 2 * chosen.shift:
        assert least == 0
        assert beyond <= math.exp(-6) * sum(weight for _, weight in weights)
    # What is moved inside is made up for by further rows: of many, the rank is the one that was asked for.
    many = 4 * chosen.shift // max(1, chosen.steps_to_end) + 1
    if 0 < rank < 1:
        assert chosen.compute_offset(many) == chosen.steps_below * many


def test_without_values_every_point_is_as_good() -> None:
    """An empty group gives some point of the interval."""
    entropy = SeededEntropy(3)
    chosen = {ranked(Fraction(1, 2), Fraction(1)).select_point(RankWindow(), entropy) for _ in range(200)}
    assert chosen == set(range(LATTICE.low, LATTICE.high + 1))


def test_exact_values_show_nowhere() -> None:
    """A window says nothing of its values."""
    assert repr(window((1, 2, 3))) == "Window(…)"


@every_rank
@pytest.mark.parametrize("end", [-1, 1], ids=["low", "high"])
@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 3), Fraction(40)], ids=str)
@given(st.lists(st.integers(-2, 4), max_size=40), st.integers(1, 400))
def test_an_end_is_on_its_side_of_the_value(
    end: int, rank: Fraction, rate: Fraction, some: list[int], times: int
) -> None:
    """Of whatever values, with a probability of 97.5% or more, by the law of the choice."""
    values = sorted(some * times)
    chosen = ranked(rank, rate, end)
    seen = penalties(chosen, window(tuple(values)))
    weights = [math.exp(-float(rate) * (penalty - min(seen))) for penalty in seen]
    at = rank * len(values)
    # The values that a share `rank` lies below, of which there are two where it falls between them.
    exact = (
        {values[max(0, math.ceil(at) - 1)], values[min(len(values) - 1, math.floor(at))]} if values else {0}
    )
    edge = max(exact) if end < 0 else min(exact)
    points = range(LATTICE.low, LATTICE.high + 1)
    wrong = sum(weight for point, weight in zip(points, weights, strict=True) if (point - edge) * end < 0)
    assert not values or wrong <= 0.025 * sum(weights)
    if not values:
        assert weights[0 if end < 0 else -1] >= 0.975 * sum(weights)


class Recorder:
    """A mechanism that keeps what it chooses among, and takes each candidate in turn."""

    rate = Fraction(1)

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.seen: list[tuple[int, int]] = []

    def select_candidate(self, weights: list[int], penalties: list[int], _: SeededEntropy) -> int:
        """The region of the candidate whose turn it is."""
        self.seen = list(zip(weights, penalties, strict=True))
        return next(place for place, upto in enumerate(accumulate(weights)) if self.taken < upto)


@every_end
@every_rank
@given(
    st.lists(st.integers(-2, 4), max_size=12).map(tuple),
    st.sets(st.integers(-2, 4), min_size=1).map(lambda found: tuple(sorted(found))),
)
def test_public_values_are_the_candidates(
    rank: Fraction, end: int, values: tuple[int, ...], among: tuple[int, ...]
) -> None:
    """Each has the penalty that it has among all points, whichever values there are, and no other point is chosen."""
    law = replace(ranked(rank, Fraction(1), end), candidate_points=among)
    if law.is_public:
        return
    seen = window(values)
    assert law.candidates == len(among)
    for taken in range(len(among)):
        recorder = Recorder(taken)
        made = replace(law, mechanism=recorder)
        assert made.select_point(seen, SeededEntropy(taken)) in among
        for (weight, cost), (start, size, penalty) in zip(
            recorder.seen, made.list_regions(seen), strict=True
        ):
            assert cost == penalty
            assert weight == sum(start <= point < start + size for point in among)


def test_all_public_values_are_chosen() -> None:
    """Of a run of candidates each is as likely: none is left out, and margins are those of so few."""
    law = replace(ranked(Fraction(1, 2), Fraction(1)), candidate_points=(-1, 2, 3))
    entropy = SeededEntropy(5)
    assert {law.select_point(RankWindow(), entropy) for _ in range(200)} == {-1, 2, 3}
    wide = QuantileSelection(0, Fraction(1), Lattice(0, 0, 2**40), Exponential(Fraction(1)))
    assert replace(wide, candidate_points=(0, 5, 2**40)).shift * 3 < wide.shift
