"""The algebra of parts, against places that are counted one by one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.accounting import parts
from dpsql.accounting.parts import WHOLE, Box, Parts, Ranges, complement, intersection, union
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.errors import IntegrityError

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
    spent, places = Parts(), [[0, 0] for _ in PLACES]
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


def test_too_many_parts_are_charged_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be cut too finely is one charge to everything, and its price is said beforehand."""
    monkeypatch.setattr(parts, "MOST_CELLS", 3)
    monkeypatch.setattr(parts, "_FEW_CELLS", 0)
    spent = Parts()
    for day in range(3):
        spent = spent.charged(Box.of({"x": ((day, day),)}), Spend(2, 0))
    beside = Box.of({"x": ((9, 9),)})
    assert spent.most(beside).loss == 2
    assert spent.charged(beside, Spend(1, 0)) == Parts(Spend(1, 0), spent.cells)
    known = Box.of({"x": ((1, 1),)})
    assert spent.most(known).loss == 2
    assert spent.charged(known, Spend(1, 0)).base == NOTHING


def test_whole_tables_and_parts_add_up() -> None:
    """A charge to the whole counts at each place, before and after a part is charged."""
    january = Box.of({"day": ((1, 31),)})
    spent = Parts().charged(WHOLE, Spend(1, 0)).charged(january, Spend(2, 0)).charged(WHOLE, Spend(4, 0))
    assert (spent.most(), spent.most(january)) == (Spend(7, 0), Spend(7, 0))
    assert spent.most(Box.of({"day": ((32, 40),)})) == Spend(5, 0)
