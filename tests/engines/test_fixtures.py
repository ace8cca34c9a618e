"""One law for all engines: an accepted query gives the same exact integers on PostgreSQL as on DuckDB, or is refused there.

Noise is off: the exact results of the statements are compared, before anything is drawn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from engines.loading import database, grant, load
from postgres import Server

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine import lookups
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query
from tests.sql.fixture_files import Fixture, accepted
from tests.sql.study import NO_NOISE, NOON, POLICY, clinic

LACKING = ("place.city", "place.at.floor")
"""Columns of the clinic that PostgreSQL does not have: fields of a STRUCT."""
UNREAD = frozenset({"engine", "engine_function"})
_LONGER_WORK = {"functions: LOWER and UPPER"}
"""Fixtures whose texts take more steps than one statement may: the server maps letters through all of Unicode."""


@dataclass(frozen=True)
class Pair:
    """The clinic on two engines."""

    duckdb: Connection
    other: Connection


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[Pair]:
    policy = copy.deepcopy(POLICY)
    for column in LACKING:
        del policy["tables"]["devices"]["columns"][column]
    with database(server, "clinic") as (url, owner), clinic() as source:
        load(source, owner)
        grant(owner)
        options: dict[str, Any] = {"ledger": ":memory:", "epsilon": NO_NOISE}
        with (
            dpsql.connect(clinic(), policy=POLICY, **options) as ours,
            dpsql.connect(url, policy=policy, **options) as theirs,
        ):
            yield Pair(ours, theirs)


def prepared(connection: Connection, fixture: Fixture, loss: int) -> QueryRun:
    asked = Query(fixture.query, fixture.parameters, None, default=Fraction(loss), time=NOON)
    return plan_and_match(connection.engine, asked)


def exact(connection: Connection, query: QueryRun) -> list[list[Any]]:
    """The rows of each release's statement, put in order by their text."""
    backend = connection.engine.backend
    return [
        sorted((listed(row) for row in backend.run_statement(part.statement.sql).reveal()), key=str)
        for part in query.releases
    ]


def listed(value: Any) -> Any:
    return tuple(map(listed, value)) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_statements_give_the_same_integers(pair: Pair, fixture: Fixture) -> None:
    """The exact result of each release is that of DuckDB; a query that is refused has a code that says so."""
    wanted = prepared(pair.duckdb, fixture, NO_NOISE)
    try:
        found = prepared(pair.other, fixture, NO_NOISE)
    except dpsql.QueryRejected as error:
        reads_lacking = any(column.split(".")[0] in fixture.query for column in LACKING)
        if error.code == "too_long":
            assert str(fixture) in _LONGER_WORK, error  # noqa: PT017
            return
        assert error.code in UNREAD or reads_lacking or "memory." in fixture.query, error  # noqa: PT017
        return
    if found.releases:
        assert exact(pair.other, found) == exact(pair.duckdb, wanted)
    else:
        public = answer_query(pair.other.engine, found).rows
        assert sorted(public, key=str) == sorted(answer_query(pair.duckdb.engine, wanted).rows, key=str)


@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_selected_clamps_have_the_same_histograms(pair: Pair, fixture: Fixture) -> None:
    """Where clamps are selected, histograms agree, except for the group in which a unit is counted."""
    histograms_agree(pair, fixture, exact)


def histograms_agree(
    pair: Pair, fixture: Fixture, read: Callable[[Connection, QueryRun], list[list[Any]]]
) -> None:
    """Asserts that histograms agree, but for the group in which a unit is counted.

    That is the first in the order of a hash, which each engine computes in its own way; over all groups it is one.
    """
    try:
        wanted, found = (prepared(side, fixture, 1) for side in (pair.duckdb, pair.other))
    except dpsql.Error:
        return  # the other test says why
    for mine, theirs, part in zip(
        read(pair.duckdb, wanted), read(pair.other, found), wanted.releases, strict=True
    ):
        if not part.statement.histograms:
            continue
        names = list(part.statement.columns)
        places = [names.index(name) for name in part.statement.histograms]
        if any(clamp.amount.name == "GROUPS" for clamp in part.plan.clamps):
            continue  # the whole histogram is of ranks in that order
        assert [without_units(row, places) for row in mine] == [without_units(row, places) for row in theirs]
        assert units_of(mine, places) == units_of(theirs, places)


MANY_CLAMPS = [f"SELECT {', '.join(f'SUM(cost + {place})' for place in range(12))} FROM visits"]
MANY_CLAMPS.append(f"{MANY_CLAMPS[0]} GROUP BY plan")
"""Questions with more clamps than pairs are added up by the intervals of all together."""


@pytest.mark.parametrize("sql", MANY_CLAMPS)
def test_many_clamps_have_the_same_histograms(pair: Pair, sql: str) -> None:
    """They agree also where each pair becomes a row for each histogram."""
    many_histograms_agree(pair, sql, exact)


def many_histograms_agree(
    pair: Pair, sql: str, read: Callable[[Connection, QueryRun], list[list[Any]]]
) -> None:
    """Asserts that many histograms agree, which are learnt of the question."""
    asked = Fixture("", "many clamps", sql, ())
    (part,) = prepared(pair.other, asked, 1).releases
    assert len(part.statement.histograms) >= 12
    histograms_agree(pair, asked, read)


def without_units(row: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    """A row with the totals of each interval of its histograms, without the numbers of units."""
    return tuple(totals(value) if place in places else value for place, value in enumerate(row))


def totals(intervals: Any) -> dict[int, tuple[int, ...]]:
    """The totals of each interval but the last one, added up where an interval is there several times."""
    found: dict[int, tuple[int, ...]] = {}
    for interval, *parts, _ in intervals or ():
        before = found.get(interval, (0,) * len(parts))
        found[interval] = tuple(first + second for first, second in zip(before, parts, strict=True))
    return found


def units_of(rows: list[tuple[Any, ...]], places: list[int]) -> list[int]:
    """How many units each histogram counts, in all groups together."""
    return [sum(interval[-1] for row in rows for interval in row[place] or ()) for place in places]


_PRICED = "(SELECT plan, AVG(price) AS p, MAX(price) AS most, COUNT(*) AS n FROM prices{} GROUP BY plan) g"
PUBLIC_GROUPS = (
    f"SELECT COUNT(*), SUM(cost) FROM visits v JOIN {_PRICED.format('')} ON v.plan = g.plan WHERE g.p > 1.25 AND n < 3",
    f"SELECT n, COUNT(*), SUM(most) FROM visits v LEFT JOIN {_PRICED.format('')} ON v.plan = g.plan GROUP BY n",
    f"SELECT COUNT(g.n) FROM visits v LEFT JOIN {_PRICED.format(' WHERE price > 9')} ON v.plan = g.plan",
    (
        "SELECT COUNT(*) FROM visits v WHERE region < (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM regions GROUP BY country) c) OR "
        "v.plan IN (SELECT plan FROM prices)"
    ),
    (
        "SELECT COUNT(*) FROM visits JOIN (SELECT plan AS p, COUNT(*) AS n FROM prices "
        "WHERE price > (SELECT AVG(price) - 1 FROM prices) GROUP BY plan) ON plan = p"
    ),
)
"""Questions to private rows that are joined to groups of public ones, all of them, some, or none."""


@pytest.mark.parametrize("sql", PUBLIC_GROUPS)
def test_groups_of_public_rows_match_duckdb(pair: Pair, sql: str) -> None:
    """Groups of public rows that private rows are joined to are those that DuckDB makes, as constants."""
    groups_are_duckdb_s(pair, sql, exact)


def groups_are_duckdb_s(pair: Pair, sql: str, read: Callable[[Connection, QueryRun], Any]) -> None:
    """Asserts that of a question."""
    wanted, found = (
        plan_and_match(side.engine, Query(sql, epsilon=Fraction(NO_NOISE)))
        for side in (pair.duckdb, pair.other)
    )
    assert found.single_release.groups
    assert not wanted.single_release.groups
    assert read(pair.other, found) == read(pair.duckdb, wanted)


def test_too_many_groups_of_public_rows_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would make a statement too long."""
    monkeypatch.setattr(lookups, "MOST_GROUPS", 1)
    plan_and_match(pair.duckdb.engine, Query(PUBLIC_GROUPS[0], epsilon=Fraction(NO_NOISE)))
    with pytest.raises(dpsql.QueryRejected) as caught:
        plan_and_match(pair.other.engine, Query(PUBLIC_GROUPS[0], epsilon=Fraction(NO_NOISE)))
    assert caught.value.code == "engine"


SAMPLED = "SELECT plan, COUNT(*), COUNT(DISTINCT patient_id), SUM(cost) FROM visits TABLESAMPLE UNITS (50%) GROUP BY plan"
"""Two of five samples have the same sums with a probability of 10^-9, and the same counts with one of 1 / 50."""


def test_each_answer_draws_a_new_sample(pair: Pair) -> None:
    """A unit is in a sample with all of its six rows; each answer samples another half of the 60 units."""
    drawn_anew(pair.other, 5)


def drawn_anew(connection: Connection, times: int) -> None:
    """Asserts that of a sample of half of the units."""
    found = [connection.query(SAMPLED, replay=False).rows for _ in range(times)]
    assert len(set(found)) == times
    for rows in found:
        assert 6 < sum(units for _, _, units, _ in rows) < 54  # but for one of 10^9
        assert all(count == 6 * units for _, count, units, _ in rows)
