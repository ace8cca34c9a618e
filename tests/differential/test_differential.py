"""Random statements mean here what they mean in plain DuckDB, where no noise is left and nothing is cut.

The same statements in each run, or with `--speed deep` others, whose first number is printed. On some of them: common
tables mean what they say, a condition splits rows into three parts that are the whole (Rigger, Su 2020), and the
charge is what `explain` told.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from differential.chains import chained, conditioned, empty_groups, of_floats
from differential.documented import QUANTILES_OF_NOBODY, SUMS_OF_NOBODY
from differential.grammar import Statement, about_keys, of_nobody, statement
from differential.oracle import Refusal, agree, differs
from differential.regressions import MISMATCHES
from differential.search import search, small
from differential.world import WHO, World, open_world
from speeds import examples

BLOCK = examples(72, least=16)
"""Statements of one test, of which about fifty are answered."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One database for all statements of this file."""
    with open_world() as opened:
        yield opened


@pytest.mark.parametrize("block", range(10))
def test_statements_match_duckdb(world: World, block: int) -> None:
    """The answers are DuckDB's, row by row, and most statements are answered."""
    found, counts = search(world, range(block * BLOCK, (block + 1) * BLOCK))
    assert found is None, str(found)
    assert counts["compared"] > BLOCK / 2, counts


@pytest.mark.parametrize("block", range(2))
def test_aggregates_of_nobody_are_null(world: World, block: int) -> None:
    """Empty groups, FILTER and cells of PIVOT are NULL exactly where DuckDB's are."""
    found, counts = search(world, range(block * BLOCK, (block + 1) * BLOCK), draw=of_nobody)
    assert found is None, str(found)
    assert counts["compared"] > BLOCK / 2, counts


@pytest.mark.parametrize("block", range(4))
def test_keys_match_duckdb(world: World, block: int) -> None:
    """Groups by keys finer than the unit are DuckDB's, and no key is shown that a condition excludes."""
    found, counts = search(world, range(block * BLOCK, (block + 1) * BLOCK), draw=about_keys)
    assert found is None, str(found)
    assert counts["compared"] > BLOCK / 2, counts


@pytest.mark.parametrize(
    "draw", [chained, conditioned, of_floats, empty_groups], ids=lambda draw: draw.__name__
)
def test_chains_and_conditions_match_duckdb(world: World, draw: Callable[[random.Random], Statement]) -> None:
    """Groups of groups, keys and FLOAT under conditions, and sets of rare groups are DuckDB's."""
    found, counts = search(world, range(BLOCK), draw=draw)
    assert found is None, str(found)
    assert counts["compared"] > BLOCK / 2, counts


@pytest.mark.deep
@pytest.mark.parametrize("block", range(6))
@pytest.mark.parametrize(
    "draw",
    [statement, about_keys, of_nobody, chained, conditioned, of_floats, empty_groups],
    ids=lambda draw: draw.__name__,
)
def test_other_statements_match_duckdb(
    world: World, draw: Callable[[random.Random], Statement], block: int
) -> None:
    """250 new random statements are DuckDB's, too: 10,500 in all, in parts that can be run apart."""
    first = block * 10**9 + random.SystemRandom().randrange(10**9)
    print("first", first)
    found, counts = search(world, range(first, first + 1_000), most=250, draw=draw)
    assert found is None, f"from {first} on: {found}"
    assert counts["compared"] == 250, counts


@pytest.mark.parametrize("sql", MISMATCHES.values(), ids=MISMATCHES.keys())
def test_former_finds_match_duckdb(world: World, sql: str) -> None:
    """Each earlier find is DuckDB's answer now, or is refused."""
    try:
        found = differs(world, sql)
    except Refusal:
        return
    assert found is None, str(found)


def test_standard_deviation_is_as_near_as_its_variance() -> None:
    """A zero variance may be off by a lattice step; larger deviations are found."""
    assert agree(("a",), [(0.000149,)], [(0.0,)], roots=True)
    assert not agree(("a",), [(0.000149,)], [(0.0,)])
    assert not agree(("a",), [(0.01,)], [(0.0,)], roots=True)
    assert not agree(("a",), [(5.001,)], [(5.0,)], roots=True)
    assert not agree(("a",), [(-5.0,)], [(5.0,)], roots=True)
    assert not agree(("n",), [(1,)], [(0,)], roots=True)


def test_no_noise_is_left(world: World) -> None:
    """Counts and sums are exact, so a difference of one row is seen."""
    sql = "SELECT COUNT(*) AS n, SUM(cost) AS c, COUNT(DISTINCT pid) AS u FROM visits"
    assert differs(world, sql) is None
    ((rows, total, units),) = world.plain.execute(sql).fetchall()
    assert not agree(("n", "c", "u"), [(rows + 1, total, units)], [(rows, total, units)])


def test_only_empty_groups_may_be_additional() -> None:
    """A missing row of DuckDB's is forgiven only for empty groups; other rows, NULLs and order are not."""
    names = ("k0", "n0")
    assert agree(names, [("a", 1), ("b", 0)], [("a", 1)])
    assert not agree(names, [("a", 1), ("b", 2)], [("a", 1)])
    assert not agree(names, [("a", 1)], [("a", 1), ("b", 0)])
    assert not agree(("k0", "a1"), [("a", 0)], [("a", None)])
    assert not agree(("k0", "a1"), [("1", 1)], [(1, 1)])
    assert not agree(names, [("b", 1), ("a", 1)], [("a", 1), ("b", 1)], ordered=True)


def test_mild_look_forgives_what_is_told() -> None:
    """A smaller statement may lose its count of values, so that a quantile of nobody is at random; a wrong value is found."""
    for names in (("v1",), ("MIN(lvl)",)):
        assert agree(names, [(3,)], [(None,)], mild=True, told={QUANTILES_OF_NOBODY})
        assert not agree(names, [(3,)], [(None,)], mild=True, told=set())
        assert not agree(names, [(3,)], [(4,)], mild=True)
    assert agree(("q1",), [(3,)], [(4,)], mild=True)
    assert agree(("c",), [(0,)], [(None,)], mild=True, told={SUMS_OF_NOBODY})


def test_find_is_minimized(world: World) -> None:
    """The other parts of a statement with one difference are dropped."""
    sql = "SELECT COUNT(*) AS a, SUM(t.weight + 1) AS s FROM tags t LEFT JOIN people p ON p.pid = t.pid WHERE t.weight >= 0"
    with open_world(without=[WHO]) as other:
        wrong = World(world.connection, other.plain)
        found = differs(wrong, sql)
        assert found is not None
        assert len(small(wrong, found).sql) < 60
