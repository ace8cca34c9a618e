"""Keys alone: one unit changes as many groups as are paid for, each by one, and each is shown as often as its law says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from attacks.releases import RUNS, shown
from properties.oracle import _tossed_apart, within
from properties.pairs import Case, pairs_of
from properties.worlds import World, policy
from scipy import stats
from worlds import close_all, person, world

from dpsql.planning.group_selection import OptimalPartitionSelection

KEYS = {"domain": False, "accountant": "pure"}
CASES = [
    *(
        Case(sql, ("k", "s"), KEYS | unit | neighbours)
        for sql in ("SELECT k FROM t GROUP BY k", "SELECT DISTINCT k, s FROM t")
        for unit in ({}, {"unit": "row"}, {"rows": 3, "groups": 1})
        for neighbours in ({}, {"neighbors": "replace"})
    ),
    Case("SELECT s FROM t WHERE i > 2 GROUP BY s", ("s", "i"), KEYS),
    Case("SELECT DISTINCT k FROM t", ("k",), KEYS | {"min_frequency": 2}),
    Case("SELECT DISTINCT k FROM t", ("k",), {"accountant": "pure", "min_frequency": 2}),
]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_neighbour_changes_more_groups_than_charged(case: Case) -> None:
    """The groups that differ share the loss, and differ by one unit each."""
    tiny = World(policy(**case.rules))
    prepared = tiny.prepare(case.sql, case.max_groups)
    chosen = prepared.plan.selection
    assert isinstance(chosen, OptimalPartitionSelection)
    most = 0
    for before, after in pairs_of(case, 100):
        old, new = tiny.statistics(prepared, before), tiny.statistics(prepared, after)
        within(prepared.plan, old, new)
        most = max(most, _tossed_apart(chosen, old, new))
    assert 2 * most >= chosen.groups, "the loss is shared among more groups than can change"


def test_group_is_shown_at_its_stated_frequency() -> None:
    """The share of releases that show a group follows from its number of people."""
    sizes = {"lone": 1, "under": 10, "half": 14, "over": 18, "crowd": 40}
    rows = [
        person(1000 * at + who, word=word)
        for at, (word, size) in enumerate(sizes.items())
        for who in range(size)
    ]
    connection = world(
        *rows, table={"max_groups": 1}, budget={"epsilon": 100, "delta": 1e-4, "accountant": "pure"}
    )
    sql = "SELECT word FROM people GROUP BY word"
    chosen = connection.explain(sql).prepared.plan.selection
    assert isinstance(chosen, OptimalPartitionSelection)
    assert chosen.groups == 1
    assert chosen.mechanism.epsilon == 1
    seen = Counter(key for keys in shown(connection, sql) for (key,) in keys)
    for word, size in sizes.items():
        chance = float(chosen.mechanism.bound_probability(size, 20)[0])
        assert stats.binomtest(seen[word], RUNS, chance).pvalue > 1e-6
    assert seen["lone"] == 0
    assert seen["crowd"] == RUNS
    assert 0 < seen["half"] < RUNS


def test_minimum_number_of_people_is_kept() -> None:
    """A group of fewer than the policy asks for is shown by no toss, of many more by each."""
    rows = [
        *(person(who, word="crowd") for who in range(200)),
        *(person(300 + who, word="few") for who in range(60)),
    ]
    connection = world(
        *rows,
        table={"max_groups": 1, "min_frequency": 61},
        budget={"epsilon": 100, "delta": 0.9, "accountant": "pure"},
    )
    plan = connection.explain("SELECT DISTINCT word FROM people", delta="0.5").prepared.plan
    assert isinstance(plan.selection, OptimalPartitionSelection)
    assert plan.selection.delta == Fraction(1, 4)
    assert all(
        keys == [("crowd",)] for keys in shown(connection, "SELECT DISTINCT word FROM people", Fraction(8))
    )
