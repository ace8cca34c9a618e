"""Events are exact, frozen and written the same way for ever."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import IntegrityError, LossError
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
    from_json,
    to_json,
)

POSITIVE = st.fractions(min_value=Fraction(1, 10**12), max_value=100)
CHANCE = st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(999, 1000))
SIMPLE: st.SearchStrategy[Event] = st.one_of(
    POSITIVE.map(Pure),
    POSITIVE.map(Gaussian),
    POSITIVE.map(BoundedRange),
    CHANCE.map(Selection),
    st.builds(Approximate, POSITIVE, CHANCE),
)
EVENTS: st.SearchStrategy[Event] = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: Composed(tuple(parts)))
)


@pytest.mark.parametrize("kind", [Pure, Gaussian, Selection, BoundedRange])
@pytest.mark.parametrize(
    "value",
    [0, -1, Fraction(0), Fraction(-1, 3), math.nan, math.inf, 0.5, True, "1/2", None, Fraction(1, 2**5000)],
)
def test_no_event_holds_a_loss_that_is_none(kind: type, value: Any) -> None:
    """Zero, negatives, NaN, infinities, floats and oversized numbers never become an event (A23)."""
    with pytest.raises(LossError):
        kind(value)


def test_selection_is_a_probability() -> None:
    """A release with delta of 1 would protect nobody; nor is a δ of 0, or none, one of its numbers."""
    with pytest.raises(LossError):
        Selection(Fraction(1))
    for delta in (0, 1, 0.5, Fraction(-1, 2)):
        with pytest.raises(LossError):
            Approximate(Fraction(1), delta)  # type: ignore[arg-type]


def test_composition_holds_events_only() -> None:
    """An empty composition and a composition of other things are refused."""
    for parts in [(), (Fraction(1, 2),), ("pure",)]:
        with pytest.raises(LossError):
            Composed(parts)  # type: ignore[arg-type]


def test_events_are_frozen() -> None:
    """An event cannot be changed after it was charged."""
    with pytest.raises(FrozenInstanceError):
        Pure(Fraction(1)).epsilon = Fraction(2)  # type: ignore[misc]


@given(EVENTS)
def test_json_round_trip(event: Event) -> None:
    """What is written is what is read, exactly."""
    assert from_json(to_json(event)) == event


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Pure(Fraction(1, 10)), '{"epsilon":"1/10","type":"pure","v":1}'),
        (BoundedRange(Fraction(1, 4)), '{"epsilon":"1/4","type":"bounded_range","v":1}'),
        (
            Approximate(Fraction(1, 2), Fraction(1, 9)),
            '{"delta":"1/9","epsilon":"1/2","type":"approximate","v":1}',
        ),
        (Gaussian(Fraction(2)), '{"rho":"2/1","type":"gaussian","v":1}'),
        (Selection(Fraction(1, 3)), '{"delta":"1/3","type":"selection","v":1}'),
        (
            Composed((Pure(Fraction(1)),)),
            '{"events":[{"epsilon":"1/1","type":"pure"}],"type":"composed","v":1}',
        ),
    ],
)
def test_an_event_is_written_the_same_for_ever(event: Event, text: str) -> None:
    """These texts lie in ledgers: a release of dpsql that changes them is wrong."""
    assert to_json(event) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{}",
        "null",
        '{"v":2,"type":"pure","epsilon":"1/2"}',
        '{"v":1,"type":"other","epsilon":"1/2"}',
        '{"v":1,"type":"pure","epsilon":"1/0"}',
        '{"v":1,"type":"pure","epsilon":"0/1"}',
        '{"v":1,"type":"pure","epsilon":0.5}',
        '{"v":1,"type":"pure","epsilon":"1/2","rho":"1/2"}',
        '{"v":1,"type":"pure","epsilon":"' + "9" * 5000 + '/1"}',
        '{"v":1,"type":"approximate","epsilon":"1/2"}',
        '{"v":1,"type":"approximate","epsilon":"1/2","delta":0.1}',
        '{"v":1,"type":"composed","events":[]}',
        '{"v":1,"type":"composed","events":[1]}',
        "[" * 100_000,
    ],
)
def test_other_texts_are_no_events(text: str) -> None:
    """A text that dpsql did not write is an IntegrityError, never a guess."""
    with pytest.raises(IntegrityError):
        from_json(text)
