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

from dpsql.accounting.partitions import boxes as parts
from dpsql.accounting.partitions import grid
from dpsql.accounting.partitions.boxes import WHOLE, Box, PartitionSpend, charged_exactly
from dpsql.accounting.partitions.ranges import (
    Ranges,
    complement,
    divided,
    intersection,
    joined,
    overlap,
    union,
)
from dpsql.accounting.spend import Spend
from dpsql.errors import IntegrityError
from dpsql.ledger.balance import partition_rows, partition_spend_of, partitions_digest

Place = Mapping[str, int | None]
NAMES, NUMBERS = ("x", "y"), (None, *range(-1, 6))
PLACES: list[Place] = [dict(zip(NAMES, at, strict=True)) for at in itertools.product(NUMBERS, repeat=2)]

ranges = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (min(pair), max(pair))),
    min_size=1,
    max_size=2,
).map(union)
boxes = st.dictionaries(st.sampled_from(NAMES), ranges).map(Box.of)
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
        assert covers(union((*some, *others)), number) == (covers(some, number) or covers(others, number))
        assert covers(intersection(some, others), number) == (covers(some, number) and covers(others, number))
        assert covers(complement(some), number) != covers(some, number)


@given(
    st.lists(ranges, max_size=3), ranges, st.sampled_from([(), ((None, 0),), ((5, None),), ((None, None),)])
)
def test_sets_are_divided_and_joined_again(sets: list[Ranges], cut: Ranges, beyond: Ranges) -> None:
    """What is divided is the intersection with the cut and with its complement; joined, the parts are what was divided."""
    cut = union((*cut, *beyond))
    for some, (inside, outside) in zip(sets, divided(sets, cut), strict=True):
        assert (inside, outside) == (intersection(some, cut), intersection(some, complement(cut)))
        assert joined([inside, outside]) == joined([outside, inside]) == some
        assert overlap(some, cut) == overlap(cut, some) == bool(inside)
    for inside, outside in divided([complement(cut), ((None, None),)], cut):
        assert joined([outside, inside]) == union((*inside, *outside))


@given(boxes, boxes)
def test_boxes_are_sets_of_places(some: Box, others: Box) -> None:
    """A meeting holds what both hold, a remainder what the other does not, once; a hull holds both."""
    shared, rest = some.meet(others), list(some.minus(others))
    for place in PLACES:
        both = holds(some, place) and holds(others, place)
        assert (shared is not None and holds(shared, place)) == both
        assert sum(holds(box, place) for box in rest) == (holds(some, place) and not holds(others, place))
        assert holds(some.hull(others), place) or not (holds(some, place) or holds(others, place))


@given(charges)
@settings(deadline=None)
def test_each_place_has_spent_what_was_charged_to_boxes_around_it(
    asked: list[tuple[Box, int, int]],
) -> None:
    """What is left of a box is what is left at the place in it that has spent the most, NULL's too."""
    spent, places = PartitionSpend(), [[0, 0] for _ in PLACES]
    for box, loss, delta in asked:
        inside = [own for own, place in zip(places, PLACES, strict=True) if holds(box, place)]
        assert spent.most(box) == Spend(max(own[0] for own in inside), max(own[1] for own in inside))
        spent = spent.charged(box, Spend(loss, delta))
        for own in inside:
            own[0], own[1] = own[0] + loss, own[1] + delta
        assert all(a.meet(b) is None for a, b in itertools.combinations(spent.cells, 2))
    for own, place in zip(places, PLACES, strict=True):
        cells = [cell for box, cell in spent.cells.items() if holds(box, place)]
        assert Spend(*own) == sum(cells, start=spent.base)


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
        spent, places = PartitionSpend(), [[0, 0] for _ in PLACES]
        for box, loss, delta in asked:
            before, here = spent.most(), spent.most(box) + Spend(loss, delta)
            spent = spent.charged(box, Spend(loss, delta))
            assert spent.most() == Spend(max(before.loss, here.loss), max(before.delta, here.delta))
            for own, place in zip(places, PLACES, strict=True):
                if holds(box, place):
                    own[0], own[1] = own[0] + loss, own[1] + delta
            assert len(spent.cells) <= most
            assert all(a.meet(b) is None for a, b in itertools.combinations(spent.cells, 2))
        for own, place in zip(places, PLACES, strict=True):
            kept = sum((cell for box, cell in spent.cells.items() if holds(box, place)), start=spent.base)
            assert Spend(*own).within(kept)


def scattered(rng: random.Random, most: int) -> Box:
    """A box of up to so many ranges in each of three dimensions."""
    sides = {}
    for name in ("x", "y", "z"):
        ends = sorted(rng.sample(range(10**6), 2 * rng.randint(1, most)))
        sides[name] = union(zip(ends[::2], ends[1::2], strict=True))
    return Box.of(sides)


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
        found = divided(sets, others)
        steps[-1] += sum(len(inside) + len(outside) for inside, outside in found) + len(others)
        return found

    for module, name in ((grid, "_apart"), (parts, "overlap")):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    monkeypatch.setattr(grid, "divided", dividing)
    rng, spent = random.Random(1), PartitionSpend()
    for _ in range(60):
        steps.append(0)
        box = scattered(rng, most)
        spent.most(box)
        spent = spent.charged(box, Spend(1, 1))
        assert len(spent.cells) <= grid.MOST_CELLS
        for name in ("x", "y", "z"):
            assert sum(map(len, {box.side(name) for box in spent.cells})) <= grid.MOST_RANGES
    assert max(steps[20:]) < 40_000


def test_the_rule_is_that_of_the_entries_that_there_are() -> None:
    """Entries of ledgers state the digest of all cells: after the same charges it is the same in each version."""
    rng, spent = random.Random(5), PartitionSpend()
    for most in (1, 3, 20, 60) * 6:
        amount = rng.choice([1, 3, 10**20])
        spent = spent.charged(scattered(rng, most), Spend(amount, rng.choice([0, amount])))
    assert partitions_digest(spent) == "649d8ebfbc21844c743f763b185f4d509844fa6b0687c6178dfdc6b70a02d625"


@pytest.mark.parametrize("most", [1, 20])
def test_what_is_stored_goes_on_as_what_is_remembered(most: int) -> None:
    """A process that reads cells back follows the same charges to the same cells as the one that has their grid."""
    rng, spent = random.Random(most), PartitionSpend()
    for number in range(24):
        stored = partition_spend_of(dict(partition_rows(spent)))
        box, amount = scattered(rng, most), rng.choice([1, 3, 10**20])
        box = WHOLE if number % 6 == 5 else box
        spend = Spend(amount, rng.choice([0, amount]))
        spent, again = spent.charged(box, spend), stored.charged(box, spend)
        assert spent == again
        assert partitions_digest(spent) == partitions_digest(again)


def test_small_charges_raise_no_place_by_more_than_they_are() -> None:
    """Who fills the grid with skew boxes spends of all places at most what whole tables would have cost."""
    rng, spent = random.Random(2), PartitionSpend()
    half = Box.of({"x": ((0, 499_999),)})
    quarter = Box.of({"x": ((500_000, 10**6),), "y": ((0, 499_999),)})
    rest = Box.of({"x": ((500_000, 10**6),), "y": ((500_000, 10**6),)})
    spent = spent.charged(half, Spend(10**9, 0)).charged(quarter, Spend(10**8, 0))
    for _ in range(60):
        spent = spent.charged(scattered(rng, 1), Spend(1, 0))
    for box, own in ((half, 10**9), (quarter, 10**8), (rest, 0)):
        assert own <= spent.most(box).loss <= own + 60
    spent = spent.charged(rest, Spend(10**9, 0))
    assert 10**9 <= spent.most().loss <= 10**9 + 60


def test_cells_of_an_older_ledger_are_taken_over() -> None:
    """Such as are cut apart as no grid is, and more of them than there may be now."""
    rng, old = random.Random(3), PartitionSpend()
    for _ in range(6):
        old = charged_exactly(old, scattered(rng, 1), Spend(3, 1))
    for before in (old, PartitionSpend(Spend(1, 0), dict(list(old.cells.items())[:20]))):
        for box in (scattered(rng, 1), WHOLE):
            after = before.charged(box, Spend(2, 0))
            assert len(after.cells) <= max(grid.MOST_CELLS, 20)
            assert before.most().within(after.most())
            for cell in before.cells:
                assert before.most(cell).within(after.most(cell))
                if cell.meet(box) == cell:
                    assert (before.most(cell) + Spend(2, 0)).within(after.most(cell))


def test_sides_of_many_ranges_or_dimensions_are_charged_wider() -> None:
    """The smallest gaps are charged too, and dimensions beyond the fourth as a whole; the price says so beforehand."""
    days = Box.of({"x": tuple((3 * day + (day >= 30), 3 * day + (day >= 30)) for day in range(60))})
    booked = PartitionSpend().booked(days)
    assert len(booked.side("x")) == parts.MOST_SIDE_RANGES
    assert booked.meet(days) == days
    spent = PartitionSpend().charged(days, Spend(1, 0))
    assert spent.most(booked).loss == 1
    assert spent.most(Box.of({"x": ((89, 89),)})).loss == 0
    many = Box.of({f"d{number}": ((0, 9),) for number in range(9)})
    assert len(PartitionSpend().booked(many).sides) == parts.MOST_SIDES
    assert PartitionSpend().charged(many, Spend(1, 0)).most(Box.of({"d8": ((50, 60),)})).loss == 1


def test_whole_tables_and_parts_add_up() -> None:
    """A charge to the whole counts at each place, before and after a part is charged."""
    january = Box.of({"day": ((1, 31),)})
    spent = (
        PartitionSpend().charged(WHOLE, Spend(1, 0)).charged(january, Spend(2, 0)).charged(WHOLE, Spend(4, 0))
    )
    assert (spent.most(), spent.most(january)) == (Spend(7, 0), Spend(7, 0))
    assert spent.most(Box.of({"day": ((32, 40),)})) == Spend(5, 0)
