"""Simulated intervals: of which cells there are any, and that they are computed as released values are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from entropy import SeededEntropy
from worlds import Row, close_all, person, prepared, spent, words_drawn, world

import dpsql
from dpsql.engine.intervals import simulation
from dpsql.engine.intervals.simulation import simulate_values
from dpsql.engine.release.noise import draw_release
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.privacy.mechanisms import Entropy, SystemEntropy
from dpsql.results.result import Result

PEOPLE: list[Row] = [
    person(who, city=("Bonn", "Kiel")[who % 2], age=who % 90, cost=who / 3) for who in range(300)
]
CALLS = {
    "count_rows": "COUNT(*)",
    "count": "COUNT(cost)",
    "count_units": "COUNT(DISTINCT id)",
    "count_distinct": "COUNT(DISTINCT age)",
    "sum_distinct": "SUM(DISTINCT age)",
    "sum": "SUM(age)",
    "avg": "AVG(cost)",
}
DERIVED = {
    "a ratio": "SUM(cost) / COUNT(*)",
    "two of one block": "AVG(cost) * COUNT(cost)",
    "a key": "CASE WHEN city = 'Bonn' THEN COUNT(*) ELSE SUM(age) END",
    "a function": "LN(COUNT(*)) + ABS(SUM(age))",
    "a power": "COUNT(*) * COUNT(*)",
    "an inverse": "1 / COUNT(*)",
    "a deviation": "STDDEV(age)",
    "a regression": "REGR_SLOPE(cost, age)",
    "a choice": "GREATEST(COUNT(*), SUM(age), AVG(cost))",
    "whole division": "SUM(age) // COUNT(*)",
}
UNKNOWN = {
    "another release": "COUNT(*) - (SELECT COUNT(*) FROM people)",
    "no number": "COUNT(*) > SUM(age)",
    "a text": "CAST(COUNT(*) + SUM(age) AS VARCHAR)",
    "a key alone": "LENGTH(city) + 1",
    "a choice among many": "GREATEST(COUNT(*), SUM(age), COUNT(cost), SUM(cost), AVG(cost))",
    "a value that was chosen": "MEDIAN(age) + COUNT(*)",
    "an end of an interval": "DP_INTERVAL_LOW(COUNT(*)) + SUM(age)",
}


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def asked(what: str, rows: list[Row] = PEOPLE, epsilon: float = 1) -> Result:
    """What is released of each city."""
    return world(*rows).query(f"SELECT {what} FROM people GROUP BY city", epsilon=epsilon)


def test_every_aggregate_is_covered_by_this_module() -> None:
    """An aggregate that the registry gains has its values simulated, or is left out for a reason."""
    added = {name for name, entry in AGGREGATES.items() if Moment.ORDER_STATISTIC not in entry.moments}
    assert CALLS.keys() == added


@pytest.mark.parametrize("people", [0, 3, 300])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_simulated_values_equal_released_values(call: str, people: int) -> None:
    """From the same noisy cells, few or many, both ways compute the same value, or none."""
    connection = world(*PEOPLE[:people])
    query = prepared(connection, f"SELECT city, {call}, SUM(cost) FROM people GROUP BY city")
    rows = connection.engine.backend.run_statement(query.statement.sql)
    item = query.plan.analysis.release.aggregations[0]
    for number in range(20):
        table = draw_release(query.plan, query.statement, rows, SeededEntropy(number))
        cells = np.array([[cell for block in found for cell in block] for found in table.components], float)
        wanted = [np.nan if row[1] is None else row[1] for row in table.rows]
        for moved in (0.0, 7.0):
            shift = np.full((1, cells.shape[1]), moved)
            found = simulate_values(query.plan, item, cells + moved, shift)[:, 0]
            assert found == pytest.approx(wanted, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("what", DERIVED.values(), ids=DERIVED)
def test_expression_over_one_row_has_an_interval(what: str) -> None:
    """It holds the released value, grows with its confidence and is the same when it is asked for again."""
    result = asked(f"city, {what}")
    seen = 0
    for (city, value), (none, narrow), (_, wide) in zip(
        result.rows, result.intervals(0.5), result.intervals(0.99), strict=True
    ):
        assert none is None
        if city is None or value is None:
            continue
        seen += 1
        assert narrow is not None
        assert wide is not None
        assert wide[0] <= narrow[0] <= value <= narrow[1] <= wide[1]  # type: ignore[operator]
        assert wide[0] < wide[1]
    assert seen == 2
    assert asked(f"city, {what}").intervals(0.5) == result.intervals(0.5)
    assert set(sum(result.scales, ())) == {None}


@pytest.mark.parametrize("what", UNKNOWN.values(), ids=UNKNOWN)
def test_value_without_a_noise_law_has_no_interval(what: str) -> None:
    """What other releases decide, or is no number, has none rather than one that is too narrow."""
    assert {ends for (ends,) in asked(what).intervals()} == {None}


def test_value_beside_the_largest_numbers_has_an_end() -> None:
    """An expression that is near the largest number on both sides is followed without an overflow."""
    line = np.array([1e308, -1.7e308, 1.7e308, -1e308, -1.5e308])
    assert simulation._estimate_minimum(line) < -1.7e308


def test_null_has_no_interval() -> None:
    """Where noise leaves no rows to divide by, nothing is known."""
    result = asked("city, STDDEV(cost)", [], 0.01)
    assert [ends is None for _, ends in result.intervals()] == [value is None for _, value in result.rows]
    assert None in [value for _, value in result.rows]


def test_quotient_by_a_possibly_zero_divisor_is_unbounded() -> None:
    """Where noise may have changed a divisor's sign there are no ends but those of the expression itself."""
    what = "SUM(cost) / COUNT(DISTINCT age), STDDEV_POP(cost), AVG(cost) * 2 - AVG(age)"
    seen = 0
    for epsilon in (0.05, 0.5, 1, 1.01, 1.02):
        result = asked(what, [], epsilon)
        for row, (ratio, deviation, _) in zip(result.rows, result.intervals(), strict=True):
            if None not in row[:2]:
                seen += 1
                assert ratio == (-np.inf, np.inf)
                assert deviation is not None
                assert 0 <= deviation[0] <= deviation[1] <= 105 / 2
    assert seen > 0


def test_rows_are_simulated_independently() -> None:
    """A part of the rows at a time, or all at once, they have the same intervals."""
    result = asked(DERIVED["a key"])
    (part,) = result._interval_of.__self__.parts  # type: ignore[attr-defined]
    expr, rows = part.provenance.outputs[0], part.origin
    alone = [simulation.simulate_intervals(part.plan, part.table, expr, [row], 0.95)[0] for row in rows]
    assert alone == [ends for (ends,) in result.intervals()]
    assert len(set(alone)) == len(alone) > 1


def test_excessive_confidence_has_no_simulated_interval() -> None:
    """Beyond what the draws can show there is none, where a law gives one there still is."""
    result = asked("COUNT(*), COUNT(*) / SUM(age)")
    assert [[ends is None for ends in row] for row in result.intervals(0.99999)] == [[False, True]] * len(
        result
    )


def test_simulation_draws_no_entropy_and_charges_nothing() -> None:
    """Asking for intervals takes no entropy and no budget, and noise never comes from the public words."""
    connection = world(*PEOPLE)
    result = connection.query("SELECT SUM(age) / COUNT(*) FROM people")
    before = (spent(connection), words_drawn(connection))
    result.intervals()
    assert before == (spent(connection), words_drawn(connection))
    assert isinstance(
        dpsql.engine.engine.Engine.__dataclass_fields__["entropy"].default_factory(), SystemEntropy
    )  # type: ignore[operator]


def test_public_words_pass_as_random() -> None:
    """The stream is the same for everybody, does not repeat, and sets each of 64 bits in half of its words."""
    stream: Entropy = simulation._PublicWords()
    again: Entropy = simulation._PublicWords()
    words = [stream.draw_words(10_000), stream.draw_words(10_000)]
    assert [again.draw_words(10_000).tolist() for _ in range(2)] == [part.tolist() for part in words]
    together = np.concatenate(words)
    assert len(set(together.tolist())) == 20_000
    for bit in range(64):
        assert abs(int((together >> np.uint64(bit) & np.uint64(1)).sum()) - 10_000) < 8 * 71
