"""Streams: any number of answers at one price, an end that holds, and an error that is bounded."""

from __future__ import annotations

import copy
import math
import os
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from privacy.synthesis.losses import ZCDP, neighbours, pure, zcdp

from dpsql.errors import LossError, OperationalError
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.mechanisms import Geometric
from dpsql.privacy.synthesis.stream import RunningStream, WeightsStream
from dpsql.privacy.synthesis.workload import Counts, parse_workload
from tests.entropy import RecordingEntropy, SeededEntropy

SHAPE = (2, 3)


def stream_of(histogram: Counts, epsilon: int, seed: int = 1, **changed: Any) -> RunningStream:
    """A stream with two updates."""
    terms = {"updates": 2, "queries": 50} | changed
    parts = parse_workload("marginals(1)", [str(axis) for axis in range(histogram.ndim)])
    made = WeightsStream.calibrate(histogram.shape, parts, 1, pure(Fraction(epsilon)), replace=False, **terms)
    return RunningStream.start_stream(made, histogram, SeededEntropy(seed))


def diagonal(rows: int) -> Counts:
    """A table whose columns are alike, so that a hypothesis of independent ones is wrong."""
    return np.diag([rows, rows, rows]).astype(np.int64)


def cell(histogram: Counts, *place: int) -> np.ndarray:
    """One cell."""
    found = np.zeros(histogram.shape, bool)
    found[place] = True
    return found


@pytest.mark.parametrize("loss", [pure, zcdp])
def test_the_price_is_that_of_a_query(loss: Any) -> None:
    made = WeightsStream.calibrate(
        (4, 3),
        parse_workload("marginals(2)", "ab"),
        2,
        loss(Fraction(1)),
        replace=True,
        updates=7,
        queries=100,
    )
    if loss is zcdp:
        assert ZCDP.compute_charge(made.event).is_within(ZCDP.compute_charge(Pure(Fraction(1))))
        assert 100 * ZCDP.compute_charge(made.event).loss > 99 * ZCDP.compute_charge(Pure(Fraction(1))).loss
    else:
        spent, left = Fraction(0), [made.event]
        while left:
            event = left.pop()
            left += getattr(event, "events", ())
            spent += getattr(event, "epsilon", 0)
        assert spent == 1


def test_an_answer_that_is_wrong_is_counted_once() -> None:
    """The hypothesis learns from it, so that the same query, and others on the same cells, are right and free."""
    table = diagonal(5_000)
    running, entropy = stream_of(table, 20), SeededEntropy(2)
    first = running.answer_query(cell(table, 0, 0), entropy)
    assert first.counted
    assert abs(first.value - 5_000) < 50
    again = running.answer_query(cell(table, 0, 0), entropy)
    assert (again.value, again.repeated, running.updates_left) == (first.value, True, 1)
    beside = ~cell(table, 0, 0)
    found = running.answer_query(beside, entropy)
    assert not found.counted
    assert abs(found.value - 10_000) < 200


def test_each_mistake_has_a_threshold_of_its_own() -> None:
    """Both noises of a mistake are drawn: its count differs from the exact one, and the noisy threshold from the one before."""
    table, counts, thresholds = diagonal(5_000), set(), set()
    for seed in range(6):
        running, entropy = stream_of(table, 20, seed=seed), SeededEntropy(seed)
        before = running._threshold
        found = running.answer_query(cell(table, 0, 0), entropy)
        assert found.counted
        counts.add(found.value - 5_000)
        thresholds.add(running._threshold - before)
    assert counts != {0}
    assert thresholds != {0}


def test_a_stream_ends_when_its_updates_are_used() -> None:
    """Then nothing more is tested, whoever asks; what was counted is still answered, and the hypothesis is there."""
    table = diagonal(5_000)
    running, entropy = stream_of(table, 20), RecordingEntropy(SeededEntropy(2))
    assert running.answer_query(cell(table, 0, 0), entropy).counted
    assert running.answer_query(cell(table, 1, 1), entropy).counted
    drawn = entropy.total
    for place in np.ndindex(3, 3):
        if place not in ((0, 0), (1, 1)):
            with pytest.raises(OperationalError) as caught:
                running.answer_query(cell(table, *place), entropy)
            assert caught.value.code == "stream_ended"
    assert running.answer_query(cell(table, 0, 0), entropy).repeated
    assert entropy.total == drawn
    assert running.round_hypothesis().sum() == running.rows


def test_right_answers_are_without_number() -> None:
    """Two thousand answers within the bound, at the price that was charged before the first, and no update used up."""
    table = np.full((4, 5), 300, np.int64)
    running, entropy = stream_of(table, 4, queries=2_000), SeededEntropy(3)
    stream, bound = np.random.default_rng(1), running.mechanism.bound_error(0.999999)
    for _ in range(2_000):
        cells = stream.random((4, 5)) < 0.5
        found = running.answer_query(cells, entropy)
        assert abs(found.value - int(table[cells].sum())) <= bound
    assert running.updates_left == 2


def test_a_stream_is_one() -> None:
    """It is not copied, pickled or forked: twice the same noisy threshold would be two streams at the price of one."""
    running = stream_of(diagonal(100), 1)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            attempt(running)
    running._process = os.getpid() + 1
    with pytest.raises(OperationalError):
        running.answer_query(cell(diagonal(1), 0, 0), SeededEntropy(1))
    assert "100" not in repr(running)


def test_interrupt_ends_the_stream() -> None:
    """An interrupt between a test and its update would otherwise give tests that nobody paid for."""
    table = diagonal(5_000)
    running = stream_of(table, 20)

    class Interrupted(SeededEntropy):
        def draw_words(self, count: int) -> Any:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return super().draw_words(count)

    for allowed in range(8):
        source = Interrupted(4)
        source.left = allowed  # type: ignore[attr-defined]
        running = stream_of(table, 20)
        try:
            running.answer_query(cell(table, 0, 0), source)
        except KeyboardInterrupt:
            with pytest.raises(OperationalError, match="interrupted"):
                running.answer_query(cell(table, 0, 0), SeededEntropy(1))
        else:
            break
    else:
        pytest.fail("an answer takes few words")
    assert allowed > 0


def test_answers_lose_no_more_than_is_charged() -> None:
    """Of the first two tests and the count after them, exactly, over neighbours and the hypothesis that they share."""
    made = WeightsStream.calibrate(
        SHAPE, parse_workload("marginals(1)", "ab"), 1, pure(Fraction(8)), replace=False, updates=1, queries=9
    )
    test, reach = made.test, 300
    places = np.arange(-reach, reach + 1)

    def law(noise: Geometric) -> np.ndarray:
        rate = math.exp(-1 / float(noise.scale))
        return (1 - rate) / (1 + rate) * rate ** np.abs(places)

    assert isinstance(made.count, Geometric)
    far = np.cumsum(law(test.far)[::-1])[::-1]
    stream, worst = np.random.default_rng(2), 0.0
    queries = [stream.random(SHAPE) < 0.5 for _ in range(2)]
    for one, two in neighbours(SHAPE, 1, replace=False, seed=1):
        for guesses in ((3, 20), (60, 0)):
            logs = []
            for table in (one, two):
                total = law(test.near)
                for at, (cells, guess) in enumerate(zip(queries, guesses, strict=True)):
                    gap = test.threshold + places - abs(int(table[cells].sum()) - guess)
                    above = far[np.clip(gap, -reach, reach) + reach]
                    total = total * (above if at else 1 - above)
                shown = 40 - int(table[queries[1]].sum())
                logs.append(math.log(total.sum()) - abs(shown) / float(made.count.scale))
            worst = max(worst, abs(logs[0] - logs[1]))
    charged = test.compute_epsilon(1) + made.count.compute_epsilon(Fraction(1))
    assert 0.3 * float(charged) < worst <= float(charged) + 1e-9
    assert charged == 4  # half of the loss; the other half makes the first hypothesis


def test_streams_that_take_too_long_are_refused() -> None:
    parts = parse_workload("marginals(1)", "ab")
    for terms in ({"updates": 0}, {"updates": 1_001}, {"updates": 1_000, "shape": (100, 100)}):
        shape = terms.pop("shape", (4, 4))
        with pytest.raises(LossError):
            WeightsStream.calibrate(shape, parts, 1, pure(Fraction(1)), replace=False, queries=10, **terms)  # type: ignore[arg-type]
