"""What a query moves between the tasks of Spark: how often rows are shuffled, and how many rows of one unit meet in one task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from engines import sparks

import dpsql
from dpsql.backends.spark.connection import SparkBackend

pytestmark = [*sparks.WARNINGS, pytest.mark.deep]
UNITS, ROWS, PARTS = 2_000, 500_000, 8
MOST = "SELECT AVG(m) FROM (SELECT person, MAX(x) AS m FROM visits GROUP BY person) AS t"
LATER = """SELECT COUNT(*) FROM
    (SELECT ROW_NUMBER() OVER (PARTITION BY person ORDER BY x) AS r FROM visits) AS t WHERE r > 1"""
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "database": "shuffles",
    "budget": {"epsilon": 10**6, "delta": 1e-6},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {"plan": {"type": "varchar", "values": ["a", "b"]}},
        },
        "visits": {
            "link": {"column": "person", "references": "people.id"},
            "rows_per_unit": 20,
            "max_groups": 3,
            "columns": {
                "k": {"type": "varchar"},
                "d": {"type": "integer", "values": [0, 1, 2, 3]},
                "x": {"type": "double", "bounds": [0, 100]},
            },
        },
    },
}
# Shuffles that a plan needs, where no side of a join is small enough to be sent to all:
PAIRS = 1  # rows are added up by unit and group, once
CUT = 1  # pairs by unit, among whose pairs these are ranked, and added up for its norms
JOINT = 1  # pairs by group and the intervals of their contributions to all clamps; what they add up to is in one task
HISTOGRAM = 1  # units in each interval, for each clamp that is chosen of secret groups
GROUPS = 1  # units are added up by group
ORDER = 1  # a release of secret groups is ordered by its keys
ALL = 1  # what is left of each task is added up by one
TABLES = 2  # both sides of a join of tables
WITHIN = 1  # what is grouped or numbered within a unit
KEYS = GROUPS + ORDER  # groups are counted, to choose those that are shown
SHOWN = 2  # these and all groups are joined


@pytest.fixture(scope="module")
def skewed(spark: Any) -> Iterator[Any]:
    """A schema in which one unit has nine rows in ten."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS shuffles")
    spark.catalog.setCurrentDatabase("shuffles")
    for table in ("people", "visits"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(
        f"CREATE TABLE people USING parquet AS SELECT id, IF(id % 2 = 0, 'a', 'b') AS plan FROM range({UNITS})"
    )
    spark.sql(
        "CREATE TABLE visits USING parquet AS SELECT IF(id % 10 = 0, id DIV 10 % "
        f"{UNITS}, 7) AS person, CONCAT('k', id % 7) AS k, CAST(id % 4 AS INT) AS d, CAST(id AS DOUBLE) / "
        f"{ROWS // 100} AS x "
        f"FROM range(0, {ROWS}, 1, {PARTS})"
    )
    yield spark
    spark.catalog.setCurrentDatabase("default")


@pytest.fixture
def con(skewed: Any) -> Iterator[Any]:
    with dpsql.connect(skewed, policy=POLICY, ledger=":memory:", epsilon=1) as connection:
        session = connection.engine.backend._runner.session
        # Plans are whole before they run, and no table is small.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        yield connection


@dataclass
class Seen:
    """The physical plans of the statements of a query over private rows."""

    plans: list[str] = field(default_factory=list)

    @property
    def shuffles(self) -> int:
        """Exchanges that are not read again, and are no copy for all tasks."""
        return sum(
            line.lstrip(" :+-").startswith("Exchange ") for plan in self.plans for line in plan.splitlines()
        )


@contextmanager
def watched(backend: SparkBackend) -> Iterator[Seen]:
    """Within it the plans of statements and of rows that are held are noted."""
    seen = Seen()

    runner = backend._runner

    def noting(work: Any) -> Any:
        def wrapped(sql: str) -> Any:
            if sql.startswith(("SELECT", "WITH")):
                plan = runner.session.sql(sql)._jdf.queryExecution().executedPlan().toString()
                seen.plans.append(str(plan))
            return work(sql)

        return wrapped

    with (
        mock.patch.object(runner, "query_rows", noting(runner.query_rows)),
        mock.patch.object(runner, "checkpoint_query", noting(runner.checkpoint_query)),
    ):
        yield seen


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("SELECT COUNT(*) FROM visits", PAIRS + ALL),
        ("SELECT d, COUNT(*) FROM visits GROUP BY d", PAIRS + CUT + GROUPS),
        ("SELECT d, COUNT(*), SUM(x) FROM visits GROUP BY d", PAIRS + CUT + JOINT),
        (
            "SELECT plan, COUNT(*) FROM visits JOIN people ON person = id GROUP BY plan",
            TABLES + PAIRS + CUT + GROUPS,
        ),
        (
            "SELECT plan, SUM(x) FROM visits JOIN people ON person = id GROUP BY plan",
            TABLES + PAIRS + CUT + JOINT,
        ),
        (
            "SELECT k, COUNT(*), SUM(x) FROM visits GROUP BY k",
            PAIRS + CUT + 2 * HISTOGRAM + KEYS + GROUPS + ORDER + SHOWN,
        ),
        ("SELECT SUM(x) FROM visits", PAIRS + JOINT),
        (MOST, WITHIN + PAIRS + ALL),
    ],
)
def test_shuffles_are_no_more_than_the_plan_needs(con: Any, sql: str, needed: int) -> None:
    """All statements of a query together shuffle at most as often as its groupings and joins need."""
    with watched(con.engine.backend) as seen:
        con.query(sql)
    assert 0 < seen.shuffles <= needed


def most_records(session: Any, work: Any) -> int:
    """The most records that a task of the stages of `work` reads from a shuffle."""
    context = session.sparkContext
    store = context._jsc.sc().statusStore()
    gateway = context._gateway
    quantiles = gateway.new_array(gateway.jvm.double, 1)
    quantiles[0] = 1.0

    def stages() -> dict[int, Any]:
        context._jsc.sc().listenerBus().waitUntilEmpty()
        found = store.stageList(None, False, False, gateway.new_array(gateway.jvm.double, 0), None)
        return {found.apply(i).stageId(): found.apply(i) for i in range(found.size())}

    before = set(stages())
    work()
    most = 0
    for number, stage in stages().items():
        if number not in before and stage.numCompleteTasks():
            summary = store.taskSummary(number, stage.attemptId(), quantiles)
            if summary.isDefined():
                most = max(most, int(summary.get().shuffleReadMetrics().readRecords().apply(0)))
    return most


@pytest.mark.parametrize(
    ("sql", "meet"),
    [
        ("SELECT COUNT(*) FROM visits", False),
        ("SELECT d, COUNT(*), SUM(x) FROM visits GROUP BY d", False),
        ("SELECT k, COUNT(*), SUM(x) FROM visits GROUP BY k", False),
        (MOST, False),
        ("SELECT COUNT(DISTINCT k) FROM visits", False),
        (LATER, True),
        ("SELECT plan, COUNT(*) FROM visits JOIN people ON person = id GROUP BY plan", True),
    ],
)
def test_rows_of_a_unit_are_summed_before_shuffles(con: Any, sql: str, meet: bool) -> None:
    """No task reads a dominant unit's rows, except for windows, quantiles and large joins."""
    most = most_records(con.engine.backend._runner.session, lambda: con.query(sql))
    assert most > 0
    assert (most > ROWS // 2) == meet
