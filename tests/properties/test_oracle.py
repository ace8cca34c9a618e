"""No neighbour moves the statistics of any plan further than was derived for it.

Plans come from the whole accepted language, databases are tiny and full of special values, and every
neighbour of each is tried. A failure is printed as a query, the policy's rules and two databases.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given, reject, seed, settings
from hypothesis.strategies import SearchStrategy
from properties.expressions import result_types
from properties.kinds import EVERY_KIND, kinds
from properties.oracle import Bench, Case, cases
from properties.plans import applied
from properties.profiles import DEEP, DRAWN, FAST, FEATURED

from dpsql.errors import QueryRejected
from dpsql.plan.functions import FUNCTIONS

BENCH = Bench()


@pytest.mark.parametrize("part", range(4))
def test_no_neighbour_moves_a_drawn_statistic_beyond_its_sensitivity(part: int) -> None:
    """The laws of the oracle hold for plans of all kinds."""
    search(FAST, f"part {part}", cases(BENCH), BENCH.check)


@pytest.mark.deep
@pytest.mark.parametrize("function", [name for name in FUNCTIONS if result_types(name)])
def test_no_neighbour_moves_a_statistic_of_a_function_beyond_its_sensitivity(function: str) -> None:
    """The same for plans of which at least every third applies one function, for each function."""
    applying: list[bool] = []

    def law(case: Case) -> None:
        try:
            BENCH.check(case)
        except QueryRejected as error:  # every value drawn lies beyond its type, so that it is always NULL
            if error.code != "unbounded":
                raise
            reject()
        applying.append(function in applied(case.outer.release))

    search(FEATURED, function, cases(BENCH, function), law)
    assert sum(applying) >= len(applying) / 3


@pytest.mark.deep
@pytest.mark.parametrize("deepest", [2, 3])
def test_no_neighbour_of_a_long_search_exceeds_the_sensitivity(deepest: int) -> None:
    """The same over new cases in each run, with deeper expressions too."""
    DEEP(given(cases(BENCH, deepest=deepest))(BENCH.check))()


@pytest.mark.deep
def test_search_covers_every_kind() -> None:
    """Every aggregate, node, unit, neighbouring relation, block and noise is among the cases drawn."""
    seen: set[str] = set()

    def look(case: Case) -> None:
        seen.update(kinds(case, BENCH.prepare(case).plan))
        if seen >= EVERY_KIND:
            raise AllSeenError

    with suppress(AllSeenError):
        search(DRAWN, "kinds", cases(BENCH), look)
    assert sorted(EVERY_KIND - seen) == []


class AllSeenError(Exception):
    """Ends a search that has nothing left to find."""


def search(length: settings, name: str, strategy: SearchStrategy[Case], law: Callable[[Case], None]) -> None:
    """Runs a law over cases, under a name the same ones in each run."""
    seed(crc32(name.encode()))(length(given(strategy)(law)))()
