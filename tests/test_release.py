"""The step from exact to noisy: what is added to which cell, and which groups it lets out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from entropy import SeededEntropy
from hypothesis import given
from hypothesis import strategies as st
from worlds import Row, cells, close_all, person, prepared, world

from dpsql.backends import Exact
from dpsql.engine.query_run import QueryRun
from dpsql.engine.release.noise import draw_release
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan import aggregates
from dpsql.plan.aggregates.base import EstimateSeries
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Entropy, Mechanism

AGGREGATES = "COUNT(*), AVG(cost), SUM(age), COUNT(DISTINCT word)"
CROWDS: list[Row] = [
    *(person(who, word="crowd") for who in range(1000)),
    *(person(5000 + who, word="few") for who in range(3)),
]


class Counted(Mechanism):
    """Noise that is told beforehand, of which nothing is asked but draws."""

    def describe(self) -> str:
        """Its name."""
        return self.name

    def bound_sum_tail(self, *_: object) -> float:
        """Nobody asks."""
        raise NotImplementedError

    def compute_variance(self) -> float:
        """Nobody asks."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Numbered(Counted):
    """Draws `first`, then a step more each time, so that each draw is known again."""

    name: ClassVar[str] = "numbered"

    first: int
    step: int = 1

    def draw(self, size: int, entropy: Entropy) -> list[int]:  # noqa: ARG002  (the Protocol's)
        """`size` numbers in order."""
        return [self.first + self.step * index for index in range(size)]


@dataclass(frozen=True, slots=True)
class Elsewhere(Counted):
    """Draws the same number for each cell of a vector but one."""

    name: ClassVar[str] = "elsewhere"

    but: int
    dimensions: int
    number: int

    def draw(self, size: int, entropy: Entropy) -> list[int]:  # noqa: ARG002  (the Protocol's)
        """`size` numbers, vector by vector."""
        return [0 if index % self.dimensions == self.but else self.number for index in range(size)]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def noised(plan: MeasurementPlan, *firsts: int, step: int = 1) -> MeasurementPlan:
    """The plan with known noise: block b draws from the b-th of `firsts` on."""
    blocks = zip(plan.vectors, firsts, strict=True)
    return replace(
        plan, vectors=tuple(replace(block, mechanism=Numbered(first, step)) for block, first in blocks)
    )


def released(query: QueryRun, plan: MeasurementPlan, rows: Exact) -> ReleasedTable:
    """What is released of exact rows."""
    return draw_release(plan, query.statement, rows, SeededEntropy(1))


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("keys", ["", "city, ", "city, member, "])
def test_every_cell_has_its_own_draw(keys: str, unit: str) -> None:
    """No two cells share a draw, be they of one group or block or not; an empty group's have theirs too."""
    connection = world(person(1), person(2, city="Kiel"), unit=unit)
    group = f" GROUP BY {keys.rstrip(', ')}" if keys else ""
    query = prepared(connection, f"SELECT {keys}{AGGREGATES} FROM people{group}")
    exact = cells(connection, query)
    firsts = [10**15 * (1 + index) for index in range(len(query.plan.vectors))]
    table = released(
        query, noised(query.plan, *firsts), connection.engine.backend.run_statement(query.statement.sql)
    )
    width = len(query.statement.keys)
    noisy = {row[:width]: found for row, found in zip(table.rows, table.components, strict=True)}
    assert noisy.keys() == exact.keys()
    assert len(firsts) > 1
    for index, first in enumerate(firsts):
        added = [a - b for key in exact for a, b in zip(noisy[key][index], exact[key][index], strict=True)]
        assert sorted(added) == [first + number for number in range(len(added))]
    assert not keys or any(not any(map(any, blocks)) for blocks in exact.values()), "no group is empty"


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize(("noise", "shown"), [(10**18, ["crowd", "few"]), (0, ["crowd"]), (-(10**18), [])])
def test_noise_decides_which_keys_are_shown(noise: int, shown: list[str], unit: str) -> None:
    """A crowd is kept back if its noise is low enough, three people are shown if theirs is high enough."""
    connection = world(*CROWDS, unit=unit)
    query = prepared(connection, "SELECT word, COUNT(*) FROM people GROUP BY word")
    plan = noised(query.plan, *[noise for _ in query.plan.vectors], step=0)
    table = released(query, plan, connection.engine.backend.run_statement(query.statement.sql))
    assert [row[0] for row in table.rows] == shown


def test_only_the_count_of_units_selects_keys() -> None:
    """No other cell's noise in the block of the count shows a key or hides one."""
    connection = world(*CROWDS, budget={"epsilon": 50, "delta": 1e-6, "accountant": "pure"})
    query = prepared(connection, "SELECT word, COUNT(*), AVG(cost) FROM people GROUP BY word")
    (block,), chosen = query.plan.vectors, query.plan.selection
    assert block.vector.joint
    assert chosen is not None
    (units,) = chosen.components
    rows = connection.engine.backend.run_statement(query.statement.sql)
    for noise in (10**18, -(10**18)):
        plan = replace(
            query.plan,
            vectors=(replace(block, mechanism=Elsewhere(units, len(block.vector.components), noise)),),
        )
        assert [row[0] for row in released(query, plan, rows).rows] == ["crowd"]


@pytest.mark.parametrize(
    ("unit", "counts"),
    [("id", {"crowd": (5, 5), "alone": (4, 8)}), ("row", {"crowd": (5,), "alone": (4,)})],
)
def test_too_few_units_are_never_released(unit: str, counts: Mapping[str, tuple[int, ...]]) -> None:
    """The least frequency holds here for itself: in units, with any noise, without the engine's help."""
    connection = world(unit=unit, table={"min_frequency": 5})
    query = prepared(connection, "SELECT word, COUNT(*) FROM people GROUP BY word")
    rows: list[tuple[Any, ...]] = [(key, *moments) for key, moments in counts.items()]
    plan = noised(query.plan, *[10**18 for _ in query.plan.vectors])
    assert [row[0] for row in released(query, plan, Exact(rows)).rows] == ["crowd"]


_WHOLE = st.integers(-(10**25), 10**25)


@given(
    st.lists(st.tuples(_WHOLE, _WHOLE), min_size=1, max_size=5), st.integers(1, 10**9), st.integers(1, 10**9)
)
def test_columns_match_values_of_single_groups(
    numerators: list[tuple[int, int]], of: int, of_others: int
) -> None:
    """Values of many groups made at once are those that each group has, to the last bit."""
    entries = [entry for entry in aggregates.AGGREGATES.values() if entry.compute_column is not None]
    assert {"count_rows", "count", "sum", "avg"} <= {entry.name for entry in entries}
    series = [
        EstimateSeries(list(column), common)
        for column, common in zip(zip(*numerators, strict=True), (of, of_others), strict=True)
    ]
    for entry, kind in itertools.product(entries, (Type.INTEGER, Type.DOUBLE)):
        for interval in (Interval(Fraction(-7, 3), Fraction(11)), Interval(0, 10**20)):
            own = series[: len(entry.moments)]
            assert entry.compute_column is not None
            estimates = [[Fraction(each, common) for each in found] for found, common in own]
            expected = [
                entry.compute_value(dict(zip(entry.moments, each, strict=True)), interval, kind)
                for each in zip(*estimates, strict=True)
            ]
            found = entry.compute_column(own, interval, kind)
            assert list(map(repr, found)) == list(map(repr, expected))
