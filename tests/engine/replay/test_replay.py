"""What was released is answered again: equal, free, and told as such, whoever asks in whatever process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from clinic import POLICY, database
from entropy import RecordingEntropy, ScriptedEntropy, SeededEntropy
from small_study import write_study

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.errors import BackendError
from dpsql.policy.request.query import Query

COUNT = "SELECT COUNT(*) AS n FROM visits"
QUERIES = [
    COUNT,
    "SELECT plan, AVG(cost) AS mean, COUNT(*) FROM visits GROUP BY plan",
    "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    "SELECT MEDIAN(cost), MAX(day) FROM visits",
    "SELECT days FROM visits GROUP BY days ORDER BY SUM(cost) DESC LIMIT 2",
    "SELECT ward FROM visits GROUP BY ward",
    "SELECT ROLLUP.n FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan)) AS rollup",
    "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
    (
        "SELECT plan, COUNT(*) FROM visits WHERE plan IN (SELECT plan FROM visits GROUP BY plan HAVING AVG(cost) > 0)"
        " GROUP BY plan"
    ),
    "SELECT SUM(days) / COUNT(*), STDDEV_POP(cost) FROM visits JOIN wards ON ward = name WHERE beds > 10",
]


def opened(ledger: str | Path = ":memory:", **policy: Any) -> Connection:
    """The clinic."""
    return dpsql.connect(database(), policy=POLICY | policy, ledger=ledger, analyst="ana", epsilon=1)


@pytest.fixture
def con() -> Iterator[Connection]:
    """The clinic, with a ledger in memory."""
    with opened() as connection:
        yield connection


def history(connection: Connection) -> list[str]:
    """The digests of all that was charged."""
    return [entry.digest for entry in connection.engine.ledger.list_entries()]


@pytest.mark.parametrize("accountant", ["zcdp", "pure", "gdp", "basic"])
@pytest.mark.parametrize("sql", QUERIES)
def test_equal_query_is_replayed_free(sql: str, accountant: str) -> None:
    """Values, intervals, scales and columns are equal, the ledger and the budget are what they were."""
    with opened(budget={"epsilon": 30, "delta": 1e-6, "accountant": accountant}) as connection:
        first = connection.query(sql)
        charged, budget = history(connection), connection.budget()
        again = connection.query(sql)
        assert (history(connection), connection.budget()) == (charged, budget)
    assert again == type(again)(
        **{name: getattr(first, name) for name in first.__slots__} | {"receipt": again.receipt}
    )
    assert (again.intervals(), str(again)) == (first.intervals(), str(first))
    assert (again.receipt.entries, again.receipt.loss) == ((), None)
    assert again.receipt.replayed == (first.receipt.entries[0]["id"],)
    assert again.receipt.mechanisms == first.receipt.mechanisms
    assert (first.receipt.replayed, again.receipt.plan) == ((), first.receipt.plan)


def test_replay_reads_no_private_row_and_draws_no_noise(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time the engine is asked nothing and the entropy gives nothing."""
    first = con.query(QUERIES[1]).rows

    def run(*_: object) -> None:
        raise AssertionError("private rows are read")

    monkeypatch.setattr(DuckDBBackend, "run_statement", run)
    object.__setattr__(con.engine, "entropy", ScriptedEntropy([]))
    assert con.query(QUERIES[1]).rows == first
    with pytest.raises(BackendError):
        con.query(QUERIES[1], replay=False)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT n FROM (SELECT COUNT(*) AS n FROM visits AS v) AS t",
        "SELECT COUNT(*) + 0 FROM visits ORDER BY 1 LIMIT 1",
        "WITH x AS (SELECT COUNT(*) AS n FROM visits) SELECT n FROM x WHERE n > -1000000",
        "SELECT COUNT(1) FROM visits",
    ],
)
def test_other_post_processing_of_a_release_is_free(con: Connection, other: str) -> None:
    """Other words above the release boundary are a replay, too."""
    assert con.query(COUNT).rows == con.query(other).rows
    assert len(history(con)) == 1


@pytest.mark.parametrize(
    ("sql", "terms"),
    [
        (COUNT, {"epsilon": 0.5}),
        (COUNT + " WHERE cost > 5", {}),
        (COUNT, {"replay": False}),
        ("SELECT COUNT(*), AVG(cost) FROM visits", {}),
    ],
    ids=str,
)
def test_different_measurement_is_charged(con: Connection, sql: str, terms: dict[str, Any]) -> None:
    """Another loss, another condition, another statistic; and whoever asks for noise of its own."""
    con.query(COUNT)
    con.query(sql, **terms)
    assert len(history(con)) == 2


def test_released_part_of_a_statement_is_not_charged(con: Connection) -> None:
    """Of a statement with two releases the new one alone is charged, at its own share."""
    both = f"SELECT a.n, b.n FROM ({COUNT}) AS a, ({COUNT} WHERE cost > 5) AS b"
    parts = plan_and_match(con.engine, Query(both)).releases
    epsilon = parts[0].loss_share.epsilon
    first = con.query(COUNT, epsilon=epsilon)
    result = con.query(both)
    assert result.rows[0][0] == first.rows[0][0]
    assert result.receipt.replayed == (1,)
    (entry,) = result.receipt.entries
    assert Fraction(entry["loss"]) == Fraction(first.receipt.entries[0]["loss"])
    assert len(con.engine.ledger.list_entries()[-1].details["mechanisms"]) == 1
    assert con.query(f"{COUNT} WHERE cost > 5", epsilon=epsilon).rows[0][0] == result.rows[0][1]


def test_subquery_value_is_part_of_the_fingerprint(con: Connection) -> None:
    """The inner answer decides which outer release is meant: with another one, the outer is asked anew."""
    sql = "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)"
    first = con.query(sql)
    con.query("SELECT AVG(cost) FROM visits", replay=False)
    again = con.query(sql)
    assert again.rows == first.rows
    fresh = con.query(sql, replay=False)
    assert fresh.receipt.replayed == ()
    # The first release of each kind is the one that is answered again, whatever was released since.
    assert con.query(sql).rows == first.rows


def test_accuracy_target_is_replayed(con: Connection) -> None:
    """A target that was met is met by the same answer."""
    first = con.query(COUNT, target_error=50, epsilon=None)
    again = con.query(COUNT, target_error=50)
    assert (again.rows, again.receipt.target) == (first.rows, first.receipt.target)
    assert len(history(con)) == 1


def test_explain_shows_a_replay_as_free(con: Connection) -> None:
    """Before it is asked a query has a price, after that none; EXPLAIN in SQL says so, too."""
    free = "the release is stored (ledger entry 1): replayed free"
    assert free not in str(con.explain(COUNT))
    con.query(COUNT)
    explained = con.explain(COUNT)
    assert [line.strip() for line in explained.lines[:3]] == ["Price", free, "nothing"]
    assert explained.receipt.replayed == (1,)
    assert free not in str(con.explain(COUNT, replay=False))
    assert free in con.query(f"EXPLAIN {COUNT}").rows[1][0]
    assert len(history(con)) == 1


def test_replay_needs_no_budget() -> None:
    """What was released stays there when nothing is left; what is new is refused."""
    with opened(budget={"epsilon": 1, "delta": 1e-6}, max_epsilon=None) as connection:
        whole = connection.budget()["visits"].remaining_epsilon
        first = connection.query(QUERIES[3], epsilon=whole)
        assert connection.query(QUERIES[3], epsilon=whole).rows == first.rows
        with pytest.raises(dpsql.BudgetExhausted):
            connection.query(COUNT, epsilon=1)
        with pytest.raises(dpsql.BudgetExhausted):
            connection.query(QUERIES[3], epsilon=whole, replay=False)


def test_connection_without_replay_draws_new_noise() -> None:
    """`connect(replay=False)` charges each query that does not say otherwise."""
    with dpsql.connect(database(), policy=POLICY, ledger=":memory:", epsilon=1, replay=False) as connection:
        first, second = connection.query(COUNT), connection.query(COUNT)
        assert (first.receipt.replayed, second.receipt.replayed) == ((), ())
        assert connection.query(COUNT, replay=True).receipt.replayed == (1,)
        assert connection.execute(COUNT, replay=True).fetchall() == list(first.rows)


@pytest.mark.parametrize("replay", [1, "no", 0.0])
def test_replay_option_must_be_a_boolean(con: Connection, replay: Any) -> None:
    """Anything else is refused before a charge."""
    with pytest.raises(dpsql.ProgrammingError, match="replay must be True or False"):
        con.query(COUNT, replay=replay)
    assert history(con) == []


def test_other_analysts_and_processes_get_the_same_answer(tmp_path: Path) -> None:
    """A release is public: who asks later, elsewhere and in a fresh interpreter, pays nothing for it."""
    data, policy = write_study(tmp_path)
    sql = "SELECT plan, COUNT(*), AVG(cost) FROM visits GROUP BY plan"
    program = (
        "import dpsql, json, sys\n"
        "with dpsql.connect(sys.argv[1], policy=sys.argv[2], analyst='bob', epsilon=1) as con:\n"
        "    result = con.query(sys.argv[3])\n"
        "    print(json.dumps([result.rows, result.intervals(), result.receipt.replayed]))\n"
    )
    with dpsql.connect(str(data), policy=str(policy), analyst="ana", epsilon=1) as connection:
        first = connection.query(sql)
    told = subprocess.run(
        [sys.executable, "-c", program, str(data), str(policy), sql],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout) == json.loads(json.dumps([first.rows, first.intervals(), [1]]))
    with dpsql.connect(str(data), policy=str(policy)) as connection:
        assert connection.budget()["visits"].queries == 1


def test_new_data_version_is_not_replayed(tmp_path: Path) -> None:
    """The owner's version says which data were meant; nothing is inferred from the data themselves."""
    for version, queries in (("1", 1), ("1", 1), ("2", 2), ("1", 2)):
        with opened(tmp_path / "a.ledger", data_version=version, database="clinic") as connection:
            connection.query(COUNT)
            assert connection.budget()["visits"].queries == queries


def test_racing_programs_get_the_answers_that_they_paid_for(con: Connection) -> None:
    """Both have prepared before either has asked: both are charged, and what is kept first is answered later."""
    plans = [plan_and_match(con.engine, Query(COUNT)) for _ in range(2)]
    first, second = (answer_query(con.engine, plan) for plan in plans)
    assert [result.receipt.replayed for result in (first, second)] == [(), ()]
    assert len(history(con)) == 2
    assert con.query(COUNT).rows == first.rows


def test_answer_that_cannot_be_stored_is_not_returned(
    con: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge stays, nothing is answered, and the next one who asks is charged."""
    ledger = type(con.engine.ledger)

    def full(*_: object) -> None:
        raise dpsql.OperationalError("the disk is full", code="ledger_unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "store_releases", full)
        with pytest.raises(dpsql.OperationalError, match="the disk is full"):
            con.query(COUNT)
    assert len(history(con)) == 1
    assert con.query(COUNT).receipt.replayed == ()
    assert len(history(con)) == 2


def test_replay_is_equal_on_neighbors() -> None:
    """The number of words that were drawn, and the ledger, are the same whether or not somebody is there."""
    seen = []
    for patients in (200, 199):
        data = database()
        data.execute("DELETE FROM visits WHERE patient_id >= ?", [patients])
        with dpsql.connect(data, policy=POLICY, ledger=":memory:", analyst="ana", epsilon=1) as connection:
            entropy = RecordingEntropy(SeededEntropy(1))
            object.__setattr__(connection.engine, "entropy", entropy)
            for sql in (COUNT, QUERIES[1], COUNT, QUERIES[1]):
                connection.query(sql)
            seen.append(
                (entropy.requests, [entry.event for entry in connection.engine.ledger.list_entries()])
            )
    assert seen[0] == seen[1]
