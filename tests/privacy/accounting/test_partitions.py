"""The algebra of parts, against places that are counted one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import IntegrityError
from dpsql.ledger.balance import compute_partitions_digest, from_charges_by_box, to_charges_by_box
from dpsql.privacy.accounting.events import Charge
from dpsql.privacy.accounting.partitions import boxes as parts
from dpsql.privacy.accounting.partitions import grid
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges
from dpsql.privacy.accounting.partitions.grid import (
    EVERYWHERE,
    Ranges,
    compute_complement,
    has_overlap,
    intersect_ranges,
    join_disjoint_ranges,
    merge_ranges,
    split_ranges,
)

Place = Mapping[str, int | None]
NAMES, NUMBERS = ("x", "y"), (None, *range(-1, 6))
PLACES: list[Place] = [dict(zip(NAMES, at, strict=True)) for at in itertools.product(NUMBERS, repeat=2)]

ranges = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (min(pair), max(pair))),
    min_size=1,
    max_size=2,
).map(merge_ranges)
boxes = st.dictionaries(st.sampled_from(NAMES), ranges).map(Box.from_sides)
charges = st.lists(st.tuples(boxes, st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6)


def covers(found: Ranges, number: int | None) -> bool:
    """Whether ranges hold a number, or NULL."""
    if number is None:
        return bool(found) and found[0][0] is None
    return any((low is None or low <= number) and (high is None or number <= high) for low, high in found)


def holds(box: Box, place: Place) -> bool:
    """Whether a place lies in a box."""
    return all(covers(side, place[name]) for name, side in box.sides)


@given(ranges, ranges)
def test_ranges_are_sets_of_numbers_and_null(some: Ranges, others: Ranges) -> None:
    """Unions, intersections and complements hold the numbers that they should; NULL is in what is outside."""
    for number in NUMBERS:
        assert covers(merge_ranges((*some, *others)), number) == (
            covers(some, number) or covers(others, number)
        )
        assert covers(intersect_ranges(some, others), number) == (
            covers(some, number) and covers(others, number)
        )
        assert covers(compute_complement(some), number) != covers(some, number)


@given(
    st.lists(ranges, max_size=3), ranges, st.sampled_from([(), ((None, 0),), ((5, None),), ((None, None),)])
)
def test_sets_are_divided_and_joined_again(sets: list[Ranges], cut: Ranges, beyond: Ranges) -> None:
    """What is divided is the intersection with the cut and with its complement; joined, the parts are what was divided."""
    cut = merge_ranges((*cut, *beyond))
    for some, (inside, outside) in zip(sets, split_ranges(sets, cut), strict=True):
        assert (inside, outside) == (
            intersect_ranges(some, cut),
            intersect_ranges(some, compute_complement(cut)),
        )
        assert join_disjoint_ranges([inside, outside]) == join_disjoint_ranges([outside, inside]) == some
        assert has_overlap(some, cut) == has_overlap(cut, some) == bool(inside)
    for inside, outside in split_ranges([compute_complement(cut), ((None, None),)], cut):
        assert join_disjoint_ranges([outside, inside]) == merge_ranges((*inside, *outside))


@given(boxes, boxes)
def test_boxes_are_sets_of_places(some: Box, others: Box) -> None:
    """An intersection holds the places of both boxes, and a hull those of either."""
    shared = some.intersect_box(others)
    for place in PLACES:
        both = holds(some, place) and holds(others, place)
        assert (shared is not None and holds(shared, place)) == both
        assert holds(some.compute_hull(others), place) or not (holds(some, place) or holds(others, place))


@given(charges)
@settings(deadline=None)
def test_each_place_has_spent_the_charges_of_its_boxes(
    asked: list[tuple[Box, int, int]],
) -> None:
    """What is left of a box is what is left at the place in it that has spent the most, NULL's too."""
    spent, places = PartitionCharges(), [[0, 0] for _ in PLACES]
    for box, loss, delta in asked:
        inside = [own for own, place in zip(places, PLACES, strict=True) if holds(box, place)]
        assert spent.compute_largest_charge(box) == Charge(
            max(own[0] for own in inside), max(own[1] for own in inside)
        )
        spent = spent.with_charge(box, Charge(loss, delta))
        for own in inside:
            own[0], own[1] = own[0] + loss, own[1] + delta
        assert all(a.intersect_box(b) is None for a, b in itertools.combinations(spent.cells, 2))
    for own, place in zip(places, PLACES, strict=True):
        cells = [cell for box, cell in spent.cells.items() if holds(box, place)]
        assert Charge(*own) == sum(cells, start=spent.base)


@given(boxes)
def test_a_box_is_read_back_from_its_text(box: Box) -> None:
    """Text and box say the same."""
    assert Box.parse(str(box)) == box


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", '{"x":[]}', '{"x":[[2,1]]}', '{"x":[[1,2],[2,3]]}', '{"x": [[1,2]]}', '{"x":[[1.0,2]]}',
     '{"y":[[1,2]],"x":[[1,2]]}', '{"x":[[null,null]]}', '{"x":[[true,2]]}', '{"x":[[1]]}', "{" * 9],
)  # fmt: skip
def test_text_that_is_no_box_is_refused(text: str) -> None:
    """Nothing but what dpsql writes is read as a box."""
    with pytest.raises(IntegrityError, match="not a box"):
        Box.parse(text)


@given(charges, st.integers(1, 12))
@settings(deadline=None, max_examples=examples(40))
def test_a_coarser_grid_counts_no_place_for_less_and_none_for_more_than_the_most(
    asked: list[tuple[Box, int, int]], most: int
) -> None:
    """However few cells there may be: no place counts for less than it has spent, and a charge raises no total but its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "MOST_CELLS", most)
        spent, places = PartitionCharges(), [[0, 0] for _ in PLACES]
        for box, loss, delta in asked:
            before, here = (
                spent.compute_largest_charge(),
                spent.compute_largest_charge(box) + Charge(loss, delta),
            )
            spent = spent.with_charge(box, Charge(loss, delta))
            assert spent.compute_largest_charge() == Charge(
                max(before.loss, here.loss), max(before.delta, here.delta)
            )
            for own, place in zip(places, PLACES, strict=True):
                if holds(box, place):
                    own[0], own[1] = own[0] + loss, own[1] + delta
            assert len(spent.cells) <= most
            assert all(a.intersect_box(b) is None for a, b in itertools.combinations(spent.cells, 2))
        for own, place in zip(places, PLACES, strict=True):
            kept = sum((cell for box, cell in spent.cells.items() if holds(box, place)), start=spent.base)
            assert Charge(*own).is_within(kept)


def scattered(rng: random.Random, most: int) -> Box:
    """A box of up to so many ranges in each of three dimensions."""
    sides = {}
    for name in ("x", "y", "z"):
        ends = sorted(rng.sample(range(10**6), 2 * rng.randint(1, most)))
        sides[name] = merge_ranges(zip(ends[::2], ends[1::2], strict=True))
    return Box.from_sides(sides)


@pytest.mark.parametrize("most", [1, 100])
def test_work_is_bounded_whatever_was_charged(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells, ranges and steps of a charge after sixty skew ones are no more than after twenty."""
    steps = list[int]()

    def counted(call: Any) -> Any:
        def counting(some: Any, others: Any) -> Any:
            steps[-1] += len(some) + len(others)
            return call(some, others)

        return counting

    def dividing(sets: Any, others: Any) -> Any:
        found = split_ranges(sets, others)
        steps[-1] += sum(len(inside) + len(outside) for inside, outside in found) + len(others)
        return found

    for module, name in ((grid, "_compute_largest_difference"), (parts, "has_overlap")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    monkeypatch.setattr(grid, "split_ranges", dividing)
    rng, spent = random.Random(1), PartitionCharges()
    for _ in range(60):
        steps.append(0)
        box = scattered(rng, most)
        spent.compute_largest_charge(box)
        spent = spent.with_charge(box, Charge(1, 1))
        assert len(spent.cells) <= grid.MOST_CELLS
        for name in ("x", "y", "z"):
            assert (
                sum(map(len, {dict(box.sides).get(name, EVERYWHERE) for box in spent.cells}))
                <= grid.MOST_RANGES
            )
    assert max(steps[20:]) < 40_000


def test_the_rule_is_that_of_the_entries_that_there_are() -> None:
    """Entries of ledgers state the digest of all cells: after the same charges it is the same in each version."""
    rng, spent = random.Random(5), PartitionCharges()
    for most in (1, 3, 20, 60) * 6:
        amount = rng.choice([1, 3, 10**20])
        spent = spent.with_charge(scattered(rng, most), Charge(amount, rng.choice([0, amount])))
    assert (
        compute_partitions_digest(spent) == "649d8ebfbc21844c743f763b185f4d509844fa6b0687c6178dfdc6b70a02d625"
    )


@pytest.mark.parametrize("most", [1, 20])
def test_stored_cells_continue_as_the_grid_in_memory(most: int) -> None:
    """A process that reads cells back follows the same charges to the same cells as the one that has their grid."""
    rng, spent = random.Random(most), PartitionCharges()
    for number in range(24):
        stored = from_charges_by_box(dict(to_charges_by_box(spent)))
        box, amount = scattered(rng, most), rng.choice([1, 3, 10**20])
        box = WHOLE if number % 6 == 5 else box
        spend = Charge(amount, rng.choice([0, amount]))
        spent, again = spent.with_charge(box, spend), stored.with_charge(box, spend)
        assert spent == again
        assert compute_partitions_digest(spent) == compute_partitions_digest(again)


def test_small_charges_raise_no_place_beyond_their_sum() -> None:
    """Who fills the grid with skew boxes spends of all places at most what whole tables would have cost."""
    rng, spent = random.Random(2), PartitionCharges()
    half = Box.from_sides({"x": ((0, 499_999),)})
    quarter = Box.from_sides({"x": ((500_000, 10**6),), "y": ((0, 499_999),)})
    rest = Box.from_sides({"x": ((500_000, 10**6),), "y": ((500_000, 10**6),)})
    spent = spent.with_charge(half, Charge(10**9, 0)).with_charge(quarter, Charge(10**8, 0))
    for _ in range(60):
        spent = spent.with_charge(scattered(rng, 1), Charge(1, 0))
    for box, own in ((half, 10**9), (quarter, 10**8), (rest, 0)):
        assert own <= spent.compute_largest_charge(box).loss <= own + 60
    spent = spent.with_charge(rest, Charge(10**9, 0))
    assert 10**9 <= spent.compute_largest_charge().loss <= 10**9 + 60


def test_sides_of_many_ranges_or_dimensions_are_charged_wider() -> None:
    """The smallest gaps are charged too, and dimensions beyond the fourth as a whole; the price says so beforehand."""
    days = Box.from_sides({"x": tuple((3 * day + (day >= 30), 3 * day + (day >= 30)) for day in range(60))})
    booked = PartitionCharges().compute_charged_box(days)
    assert len(dict(booked.sides)["x"]) == parts.MOST_SIDE_RANGES
    assert booked.intersect_box(days) == days
    spent = PartitionCharges().with_charge(days, Charge(1, 0))
    assert spent.compute_largest_charge(booked).loss == 1
    assert spent.compute_largest_charge(Box.from_sides({"x": ((89, 89),)})).loss == 0
    many = Box.from_sides({f"d{number}": ((0, 9),) for number in range(9)})
    assert len(PartitionCharges().compute_charged_box(many).sides) == parts.MOST_SIDES
    assert (
        PartitionCharges()
        .with_charge(many, Charge(1, 0))
        .compute_largest_charge(Box.from_sides({"d8": ((50, 60),)}))
        .loss
        == 1
    )


def test_whole_tables_and_parts_add_up() -> None:
    """A charge to the whole counts at each place, before and after a part is charged."""
    january = Box.from_sides({"day": ((1, 31),)})
    spent = (
        PartitionCharges()
        .with_charge(WHOLE, Charge(1, 0))
        .with_charge(january, Charge(2, 0))
        .with_charge(WHOLE, Charge(4, 0))
    )
    assert (spent.compute_largest_charge(), spent.compute_largest_charge(january)) == (
        Charge(7, 0),
        Charge(7, 0),
    )
    assert spent.compute_largest_charge(Box.from_sides({"day": ((32, 40),)})) == Charge(5, 0)
