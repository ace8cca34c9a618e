"""Totals and parts that agree: nearer to the truth than before, with intervals that hold as often as they say.

The entropy is the operating system's; a sound engine fails one of these tests with probability 1e-6 or less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from speeds import examples
from statistical.chance import least_share

import dpsql
from dpsql.engine.intervals.cells import compute_intervals
from dpsql.engine.intervals.simulation import simulate_intervals
from dpsql.engine.postprocess.consistency import make_consistent
from dpsql.engine.release.noise import draw_release
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan.expressions import ReleasedColumn
from dpsql.privacy.mechanisms import SystemEntropy

RUNS, MANY, CONFIDENCE = examples(320, least=60), examples(1300, least=400), 0.95
"""Releases of each statement, for shares and for moments."""

SETS = {
    "a rollup": "ROLLUP (a, b)",
    "a cube": "CUBE (a, b)",
    "sets": "GROUPING SETS (a, b)",
}
CALLS = "COUNT(*) AS n, SUM(x) AS s, AVG(x) AS m"


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """3,000 rows in six groups of different sizes, under either kind of noise."""
    data = duckdb.connect()
    data.execute(
        """CREATE TABLE t AS SELECT CASE WHEN r % 5 < 3 THEN 0 ELSE 1 END AS a, r // 5 % 3 AS b, r // 15 % 2 AS c,
                (r * 37 % 64) / 64 + 0.25 AS x FROM range(3000) AS t(r)"""
    )
    columns = {
        "a": {"type": "integer", "values": [0, 1], "nullable": False},
        "b": {"type": "integer", "values": [0, 1, 2], "nullable": False},
        "c": {"type": "integer", "values": [0, 1], "nullable": False},
        "x": {"type": "double", "bounds": [0, 2], "nullable": False},
    }
    policy = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 100, "delta": 1e-6, "accountant": request.param},
        "tables": {"t": {"unit": "row", "columns": columns}},
    }
    with dpsql.connect(data, policy=policy, ledger=":memory:") as opened:
        yield opened


def releases(
    con: dpsql.Connection, sql: str, runs: int
) -> Iterator[tuple[list[ReleasedTable], list[ReleasedTable]]]:
    """Tables as they are released, and as they are shown, again and again."""
    parts = con.explain(sql, epsilon=Fraction(1, 2)).prepared.releases
    exact = [con.engine.backend.run_statement(part.statement.sql) for part in parts]
    for _ in range(runs):
        tables = [
            draw_release(part.plan, part.statement, rows, SystemEntropy())
            for part, rows in zip(parts, exact, strict=True)
        ]
        yield tables, make_consistent(tables)


def truths(con: dpsql.Connection, sql: str, columns: int) -> list[list[tuple[float, ...]]]:
    """The exact aggregates of each release, group by group."""
    loud = con.explain(sql, epsilon=50).prepared
    found = []
    for part in loud.releases:
        by = [key.expr.name for key in part.release.keys]  # type: ignore[union-attr]
        grouping = f"GROUP BY {', '.join(by)} ORDER BY {', '.join(by)}" if by else ""
        rows, _ = con.engine.backend.read_public_rows(f"SELECT COUNT(*), SUM(x), AVG(x) FROM t {grouping}")
        found.append([tuple(float(each) for each in row[:columns]) for row in rows])
    return found


def cover(pairs: Sequence[tuple[float, float] | None], exact: Sequence[float]) -> list[bool]:
    """Whether intervals hold the exact values."""
    return [ends is not None and ends[0] <= true <= ends[1] for ends, true in zip(pairs, exact, strict=True)]


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
def test_intervals_hold_at_their_level(con: dpsql.Connection, sets: str) -> None:
    """Counts, sums, means and what is computed of them, group by group and in totals."""
    sql = f"SELECT a, b, {CALLS}, SUM(x) / COUNT(*) AS q FROM t GROUP BY {sets}"
    exact = truths(con, sql, 3)
    hits: dict[tuple[int, str], list[bool]] = {}
    for number, (_, shown) in enumerate(releases(con, sql, RUNS)):
        for place, (table, known) in enumerate(zip(shown, exact, strict=True)):
            rows = range(len(table.rows))
            for at, item in enumerate(table.plan.analysis.release.aggregations):
                found = compute_intervals(table.plan, table, item, rows, CONFIDENCE)
                hits.setdefault((place, item.function), []).extend(cover(found, [row[at] for row in known]))
            if number % 3 == 0:
                count, total = (
                    ReleasedColumn(item.name, item.type)
                    for item in table.plan.analysis.release.aggregations[:2]
                )
                ratio = dpsql.plan.functions.build_function_call("multiply", count, total)
                found = simulate_intervals(table.plan, table, ratio, rows, CONFIDENCE)
                hits.setdefault((place, "product"), []).extend(
                    cover(found, [row[0] * row[1] for row in known])
                )
    for (_, what), found in hits.items():
        # The groups of one run share their noise: a run is as many hits as the mean of its groups.
        runs = RUNS // 3 if what == "product" else RUNS
        assert np.mean(found) >= least_share(runs, CONFIDENCE)


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS)
def test_errors_match_their_law_and_are_smaller(con: dpsql.Connection, sets: str) -> None:
    """The mean squared error of each value is that which its law says, and the estimates have no bias."""
    sql = f"SELECT a, b, SUM(x) AS s FROM t GROUP BY {sets}"
    exact = truths(con, sql, 2)
    errors: dict[tuple[int, int], list[float]] = {}
    before: dict[tuple[int, int], list[float]] = {}
    for tables, shown in releases(con, sql, MANY):
        for place, known in enumerate(exact):
            for group, (_, true) in enumerate(known):
                errors.setdefault((place, group), []).append(shown[place].rows[group][-1] - true)  # type: ignore[operator]
                before.setdefault((place, group), []).append(tables[place].rows[group][-1] - true)  # type: ignore[operator]
    said = con.explain(sql, epsilon=Fraction(1, 2)).prepared.shown_plans
    for (place, _), found in errors.items():
        (measured,) = said[place].vectors
        step = said[place].analysis.measures[0].lattice.step  # type: ignore[union-attr]
        std = measured.compute_std(measured.vector.estimates[0][1]) * float(step)
        # The fourth moment of a sum of Laplace variables is at most six times the square of its second. Eight
        # standard errors, as their squares have long tails: beyond it lies 1e-8 of those of one such variable.
        assert np.mean(np.square(found)) == pytest.approx(std**2, rel=8 * math.sqrt(5 / MANY))
        assert abs(np.mean(found)) < 6.5 * std / math.sqrt(MANY)
    assert np.mean([np.square(each) for each in errors.values()]) < np.mean(
        [np.square(each) for each in before.values()]
    )


FAMILIES = {
    "sets that share nothing": "GROUPING SETS ((a, b), (c))",
    "single keys": "GROUPING SETS (a, b, c)",
    "sets that overlap": "GROUPING SETS ((a, b), (b, c))",
    "a ring": "GROUPING SETS ((a, b), (b, c), (a, c))",
    "a rollup": "ROLLUP (a, b, c)",
    "a cube": "CUBE (a, b)",
    "a table beside a key": "GROUPING SETS ((a, b), (c), ())",
}
NO_WORSE = 1.02
"""The most that keeping totals may add to a mean squared error, as `postprocess.consistency` promises."""
STRAYS = 2.5
"""By how many standard deviations of what was released the mean change of squared errors may stray.

The change has half of that deviation at most where its mean is near zero, and a long tail on the other side: one of sixty
or more runs is beyond that with a probability below 1e-10. The deviation of the sample would not do: it is next to
nothing where the tail is missed.
"""


def counts(
    con: dpsql.Connection, sets: str, epsilon: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
    """For each release: the errors of counts as they were released and as they are shown, whether intervals hold, and the noise's variance."""
    named = [key for key in "abc" if re.search(rf"\b{key}\b", sets)]
    sql = f"SELECT {', '.join(named)}, COUNT(*) AS n FROM t GROUP BY {sets}"
    loud = con.explain(sql, epsilon=90).prepared.releases  # whose noise is zero
    true = [
        [
            row[-1]
            for row in draw_release(
                part.plan,
                part.statement,
                con.engine.backend.run_statement(part.statement.sql),
                SystemEntropy(),
            ).rows
        ]
        for part in loud
    ]
    prepared = con.explain(sql, epsilon=epsilon).prepared
    exact = [con.engine.backend.run_statement(part.statement.sql) for part in prepared.releases]
    errors: list[tuple[list[list[float]], ...]] = [([], []) for _ in exact]
    hits: list[list[list[bool]]] = [[] for _ in exact]
    for _ in range(RUNS):
        tables = [
            draw_release(part.plan, part.statement, rows, SystemEntropy())
            for part, rows in zip(prepared.releases, exact, strict=True)
        ]
        for place, pair in enumerate(zip(tables, make_consistent(tables), strict=True)):
            for kept, table in zip(errors[place], pair, strict=True):
                kept.append([row[-1] - each for row, each in zip(table.rows, true[place], strict=True)])  # type: ignore[operator]
            shown = pair[1]
            (item,) = shown.plan.analysis.release.aggregations
            found = compute_intervals(shown.plan, shown, item, range(len(shown.rows)), CONFIDENCE)
            hits[place].append(cover(found, true[place]))
    for (before, after), kept_, part in zip(errors, hits, prepared.releases, strict=True):
        (measured,) = part.plan.vectors
        yield np.array(before), np.array(after), np.array(kept_), measured.mechanism.compute_variance()


def test_rounded_numbers_are_no_worse_than_released_ones(con: dpsql.Connection) -> None:
    """Least squares over any grouping sets gains more than rounding to consistent totals takes."""
    for sets in FAMILIES.values():
        for epsilon in (1, 4):
            for before, after, _, variance in counts(con, sets, epsilon):
                more = after**2 - NO_WORSE * before**2
                # The fourth moment of the two-sided geometric law is v + 6v², and that of the Gaussian one is less.
                spread = math.sqrt((variance + 5 * variance**2) / more.size)
                assert more.mean() <= STRAYS * spread


def test_intervals_hold_where_noise_is_small(con: dpsql.Connection) -> None:
    """Noise of a few steps or less follows no normal law."""
    for sets in FAMILIES.values():
        for epsilon in (1, 4):
            for _, _, kept, _ in counts(con, sets, epsilon):
                assert kept.mean() >= least_share(RUNS, CONFIDENCE)
