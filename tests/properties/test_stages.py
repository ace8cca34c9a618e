"""Releases in stages: the same histograms, sums and tables as by the one statement, whatever is chosen, and nothing is left."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from properties.test_clamps import CASES, ROWS_OF_A_UNIT, Case, learning, points
from properties.worlds import DEFAULT, KEYS, Database, I, Row, World, X, policy

import dpsql
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.release.exact_rows import UnreleasedGroups, read_groups
from dpsql.engine.release.noise import (
    GroupRows,
    StagedSource,
    _SelectedGroups,
    draw_release,
    draw_release_in_stages,
)
from dpsql.engine.release.released_table import Keys
from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import BackendError, InternalError
from dpsql.planning.build_clamps import BY_GROUP, BY_NORM
from dpsql.planning.clamp_histogram import count_units_beyond, list_clamp_targets
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import ROWS
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.staged_statement import PAIRS, UNITS, Stages
from dpsql.sql.compile.statement import emit_release
from tests.entropy import SeededEntropy

GROUPED = [case for case in CASES if "GROUP BY" in case.sql]
_MANY = ", ".join(f"SUM(x + {place})" for place in range(9))
UNGROUPED = [
    Case(f"SELECT {what} FROM t WHERE u > 0", rules)
    for what, rules in (
        (_MANY, {}),
        (f"{_MANY}, COUNT(*), AVG(i), COUNT(DISTINCT i), MEDIAN(x)", {}),
        (f"{_MANY}, COUNT(*) FILTER (WHERE i > 1), SUM(x) FILTER (WHERE i > 1)", {"neighbors": "replace"}),
    )
]
"""Of all rows, with more clamps than one statement adds up by the intervals of all together."""
SECRET = Case("SELECT s, i, SUM(x), COUNT(*) FROM t WHERE u > 0 GROUP BY s, i", {"domain": False})
MORE = [
    Case("SELECT k, SUM(x), COUNT(DISTINCT i), COUNT(*) FROM t WHERE u > 0 GROUP BY k"),
    Case("SELECT k, i, COUNT(*), MEDIAN(x), SUM(x) FROM t WHERE u > 0 GROUP BY k, i", {"domain": False}),
    Case("SELECT k, SUM(x) FROM t WHERE u > 0 GROUP BY k", {"min_frequency": 3}),
    SECRET,
    *(
        Case("SELECT COUNT(*), AVG(x) FROM t WHERE u > 0 GROUP BY k", scope=scope, together=True)
        for scope in (BY_GROUP, BY_NORM)
    ),
]
LEFT = "SELECT table_name FROM duckdb_tables() WHERE temporary"


def databases(seed: str) -> Iterator[Database]:
    """Databases of few and of many rows, with units beyond all bounds, and none."""
    dice = random.Random(seed)
    yield ()
    for units, rows in ((2, 3), (3, 2 * ROWS_OF_A_UNIT), (9, 6)):
        yield tuple(
            Row(unit, dice.choice(KEYS), dice.choice(X), dice.choice(I))
            for unit in range(1, units + 1)
            for _ in range(dice.randrange(rows + 1))
        )


def stages_of(part: PreparedRelease) -> Stages:
    """The stages of a release, which it has."""
    assert part.statement.stages is not None
    return part.statement.stages


def measured(plan: MeasurementPlan, groups: UnreleasedGroups) -> list[list[int]]:
    """The exact numbers of units, and all components, in each group."""
    components = [component for part in plan.vectors for component in part.vector.components]
    series = [
        groups.get_unit_counts(plan),
        *(component.compute_exact_series(groups.moments) for component in components),
    ]
    return [list(values) for values in series]


@pytest.mark.parametrize("case", [*GROUPED, *MORE, *UNGROUPED], ids=str)
def test_stages_match_the_single_statement(case: Case) -> None:
    """The numbers of units by which each clamp is chosen, and the clamped sums for all points, exactly."""
    stages_agree(case)


@pytest.mark.parametrize("case", [*GROUPED, *MORE, *UNGROUPED], ids=str)
def test_stages_match_with_ordered_groups(case: Case) -> None:
    """No table of units is made then, and units beyond a bound are not found before."""
    stages_agree(case, in_order=True)


def stages_agree(case: Case, *, in_order: bool = False) -> None:
    """Stages give what the one statement of DuckDB gives, also where they are written for an engine that ranks all groups."""
    world = World(policy(rows=ROWS_OF_A_UNIT, **case.rules))
    prepared, plan = learning(world, case.sql, case.scope, together=case.together)
    part, engine = prepared.single_release, world.engine.backend
    one = part.statement
    if in_order:
        dialect = replace(DUCKDB, capabilities=replace(DUCKDB.capabilities, ranks_all_groups=True))
        made = emit_release(Compiler(dialect), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)
        part = replace(part, dialect=dialect, statement=made)
        assert [name for name, _ in stages_of(part).tables] == [PAIRS]
    for rows in databases(str(case)):
        world.hold(rows)
        whole = read_groups(plan, one, engine.run_statement(one.sql))
        with engine.stage_tables(stages_of(part).tables):
            staged = StagedSource.from_histograms(
                plan, engine.run_statement(stages_of(part).histograms), lambda *_: pytest.fail("unread")
            )
            for place, target in enumerate(list_clamp_targets(plan.clamps)):
                clamp = plan.clamps[target.clamp]
                first = [one.clamp for one in list_clamp_targets(plan.clamps)].index(target.clamp)
                if place - first < len(clamp.sides):
                    each = [group.clamp_histograms[place] for group in whole]
                    assert count_units_beyond(clamp, each) == count_units_beyond(
                        clamp, [staged.histograms[place]]
                    )
            for clamps in points(plan.clamps):
                sums = part.emit_group_sums(replace(plan, clamps=clamps))
                found = read_groups(plan, sums, engine.run_statement(sums.sql))
                assert (found.keys, found.windows) == (whole.keys, whole.windows)
                assert measured(plan, found.with_clamped_moments(clamps)) == measured(
                    plan, whole.with_clamped_moments(clamps)
                )


def test_unclamped_columns_are_read_with_clamped_ones() -> None:
    """The numbers of rows, where only a total is clamped."""
    world = World(policy(rows=ROWS_OF_A_UNIT))
    prepared, plan = learning(world, "SELECT k, SUM(x), COUNT(*) FROM t WHERE u > 0 GROUP BY k", BY_NORM)
    total, rows = plan.vectors
    assert (total.clamp, rows.clamp) == (0, 1)
    chosen = replace(plan.clamps[0], chosen=(1,) * len(plan.clamps[0].sides))
    plan = replace(plan, vectors=(total, replace(rows, clamp=None)), clamps=(chosen,))
    part, engine = prepared.single_release, world.engine.backend
    for rows_of_units in databases("unclamped"):
        world.hold(rows_of_units)
        whole = read_groups(plan, part.statement, engine.run_statement(part.statement.sql))
        with engine.stage_tables(stages_of(part).tables):
            sums = part.emit_group_sums(plan)
            found = read_groups(plan, sums, engine.run_statement(sums.sql)).with_clamped_moments(plan.clamps)
        assert (found.keys, found.moments[ROWS]) == (whole.keys, whole.moments[ROWS])


@pytest.mark.parametrize("case", [GROUPED[0], GROUPED[-1], *MORE, *UNGROUPED], ids=str)
def test_equal_noise_gives_the_same_table(case: Case) -> None:
    """The tables are equal with selected and with other groups."""
    world = World(policy(rows=ROWS_OF_A_UNIT, **case.rules))
    prepared, plan = learning(world, case.sql, case.scope)
    part, engine = prepared.single_release, world.engine.backend

    def read(chosen: MeasurementPlan, selected: Sequence[Keys] | None = None) -> GroupRows:
        sums = part.emit_group_sums(chosen, selected)
        return sums, engine.run_statement(sums.sql)

    for seed, rows in enumerate(databases(case.sql)):
        world.hold(tuple(row._replace(u=row.u + 20 * at) for at in range(9) for row in rows))
        whole = draw_release(
            plan, part.statement, engine.run_statement(part.statement.sql), SeededEntropy(seed)
        )
        with engine.stage_tables(stages_of(part).tables):
            histograms = engine.run_statement(stages_of(part).histograms)
            table = draw_release_in_stages(plan, histograms, read, SeededEntropy(seed))
        assert table == whole
        assert table.plan.clamps == whole.plan.clamps


TEXTS = [None, "", "NULL", "a,b", '"', "\\", '\\"', "it's", "[x]", " y ", "\n", "é☃"]


def secret_groups(asked: Case) -> tuple[World, PreparedRelease, MeasurementPlan]:
    """A database with groups of such texts and of NULL, and a query of them whose clamps are chosen."""
    world = World(policy(rows=ROWS_OF_A_UNIT, **asked.rules))
    prepared, plan = learning(world, asked.sql, asked.scope)
    chosen = [replace(each, chosen=(1,) * len(each.sides)) for each in plan.clamps]
    escaped = (text and text.replace("'", "''") for text in TEXTS)
    each = enumerate(itertools.product(escaped, (1, None)), start=1)
    world.hold(tuple(DEFAULT._replace(u=unit, s=text, i=number) for unit, (text, number) in each))
    return world, prepared.single_release, replace(plan, clamps=tuple(chosen))


def test_only_selected_groups_are_read() -> None:
    """Their rows are those among all groups, whatever the keys are; no selected group has no rows."""
    world, part, plan = secret_groups(SECRET)
    engine, dice = world.engine.backend, random.Random(1)
    with engine.stage_tables(stages_of(part).tables):
        whole = engine.run_statement(part.emit_group_sums(plan).sql).reveal()
        assert len(whole) == 2 * len(TEXTS)
        for number in (0, 1, 7, len(whole)):
            rows = [whole[place] for place in sorted(dice.sample(range(len(whole)), number))]
            sums = part.emit_group_sums(plan, [row[:2] for row in rows])
            assert engine.run_statement(sums.sql).reveal() == rows


@pytest.mark.parametrize("more", ["COUNT(DISTINCT i)", "MEDIAN(x)"])
def test_other_columns_are_read_for_all_groups(more: str) -> None:
    """Distinct values and quantiles are of groups of their own, so all are read."""
    case = replace(SECRET, sql=SECRET.sql.replace("COUNT(*)", f"COUNT(*), {more}"))
    world, part, plan = secret_groups(case)
    with world.engine.backend.stage_tables(stages_of(part).tables):
        whole = world.engine.backend.run_statement(part.emit_group_sums(plan).sql).reveal()
        found = world.engine.backend.run_statement(part.emit_group_sums(plan, [whole[0][:2]]).sql).reveal()
    assert [row[:2] for row in found] == [row[:2] for row in whole]


def test_unselected_groups_are_refused() -> None:
    """A statement that does not find a selected group gives no sums."""
    world, part, plan = secret_groups(SECRET)
    engine = world.engine.backend

    def read(chosen: MeasurementPlan, _: Sequence[Keys] | None = None) -> GroupRows:
        sums = part.emit_group_sums(chosen)
        return sums, engine.run_statement(sums.sql)

    with engine.stage_tables(stages_of(part).tables):
        staged = StagedSource.from_histograms(plan, engine.run_statement(stages_of(part).histograms), read)
        found = staged.read_groups(plan)
        assert staged.read_groups(plan, _SelectedGroups([2], [found.keys[2]])).keys == [found.keys[2]]
        with pytest.raises(InternalError):
            staged.read_groups(plan, _SelectedGroups([2], [("other", 1)]))


ASKED = "SELECT k, SUM(x) FROM t WHERE u > 0 GROUP BY k"


@pytest.fixture
def study() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    with ExitStack() as stack:
        database = stack.enter_context(duckdb.connect())
        database.execute("CREATE TABLE t AS SELECT i % 9 AS u, 'A' AS k, 1.0 AS x FROM range(99) r(i)")
        rules = policy(rows=ROWS_OF_A_UNIT)
        rules["tables"]["t"]["columns"] = {name: rules["tables"]["t"]["columns"][name] for name in ("k", "x")}
        rules["tables"].pop("p")
        yield (
            database,
            stack.enter_context(dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=1)),
        )


def tables(database: duckdb.DuckDBPyConnection) -> list[Any]:
    """The temporary tables that there are."""
    return database.execute(LEFT).fetchall()


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in the owner's transaction"])
def test_stages_leave_no_tables(
    study: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], *, within: bool
) -> None:
    """No table is left after an answer; the owner's transaction goes on."""
    database, connection = study
    if within:
        database.execute("BEGIN")
    assert plan_and_match(
        connection.engine, dpsql.policy.request.query.Query(ASKED, epsilon=1)
    ).single_release.statement.stages
    seen: list[Any] = []
    run = connection.engine.backend.run_statement

    def looking(sql: str) -> Any:
        seen.append({name for (name,) in tables(database)})
        return run(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.engine.backend, "run_statement", looking)
        connection.execute(ASKED)
    assert seen == [{PAIRS.strip('"'), UNITS.strip('"')}] * 2
    assert tables(database) == []
    if within:
        database.execute("COMMIT")


class BrokenError(Exception):
    """What a test raises between two stages."""


@pytest.mark.parametrize("raised", [BackendError, KeyboardInterrupt, BrokenError])
@pytest.mark.parametrize("stage", [0, 1])
def test_failed_stages_leave_no_tables(
    study: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], raised: type[BaseException], stage: int
) -> None:
    """Whichever stage fails or is interrupted, the tables are gone, and the next query is answered."""
    database, connection = study
    run, count = connection.engine.backend.run_statement, itertools.count()

    def failing(sql: str) -> Any:
        if next(count) == stage:
            raise raised
        return run(sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.engine.backend, "run_statement", failing)
        with pytest.raises((raised, dpsql.Error)):
            connection.execute(ASKED)
    assert tables(database) == []
    assert len(connection.query(ASKED, epsilon=0.5)) > 0


def test_stage_tables_cannot_be_named(study: tuple[duckdb.DuckDBPyConnection, dpsql.Connection]) -> None:
    """No query can name them, even while they exist."""
    _, connection = study
    backend = connection.engine.backend
    with backend.stage_tables([(PAIRS, "SELECT 1 AS u"), (UNITS, f"SELECT u FROM {PAIRS}")]):
        assert not {PAIRS.strip('"'), UNITS.strip('"')} & backend.read_schema().keys()
        for name in (PAIRS, UNITS, f"temp.{PAIRS}"):
            with pytest.raises(dpsql.QueryRejected) as caught:
                connection.execute(f"SELECT COUNT(*) FROM {name}")
            assert caught.value.code == "table"
