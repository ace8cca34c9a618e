"""Which queries ask for the same: those in other words share a release, those that differ do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.replay.stored_release import Fingerprint, FingerprintRules
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.text import compute_equality_text
from dpsql.policy import load
from dpsql.policy.request.query import Query

SAME = {
    "names of sources": [
        "SELECT COUNT(*) FROM visits WHERE cost > 5",
        "SELECT COUNT(*) AS n FROM visits AS v WHERE v.cost > 5",
        'SELECT 2 * COUNT(1) FROM visits "other words" WHERE cost > 5 HAVING COUNT(*) > 3 ORDER BY 1 LIMIT 1',
    ],
    "order of conditions": [
        "SELECT SUM(days) FROM visits WHERE cost > 5 AND days < 9 AND (plan = 'A' OR days = 2)",
        "SELECT SUM(days) FROM visits v WHERE (2 = days OR 'A' = v.plan) AND days < 9 AND 5 < cost AND TRUE".replace(
            "5 < cost AND TRUE", "cost > 5"
        ),
    ],
    "tables of the query's own": [
        "WITH x AS (SELECT plan, cost FROM visits) SELECT plan, AVG(cost) FROM x GROUP BY plan",
        "SELECT plan, AVG(cost) AS mean FROM (SELECT plan, cost FROM visits AS z) AS y GROUP BY 1 ORDER BY 2",
    ],
    "joins": [
        "SELECT COUNT(*) FROM visits JOIN wards ON ward = name WHERE beds > 10 AND cost > 1",
        "SELECT COUNT(*) FROM visits AS a JOIN wards AS b ON a.ward = b.name WHERE a.cost > 1 AND b.beds > 10",
    ],
}
DIFFERENT = [
    "SELECT COUNT(*) FROM visits WHERE 5 < cost",
    "SELECT COUNT(*) FROM visits WHERE cost < 5",
    "SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id WHERE a.cost > 5 AND b.days < 9",
    "SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id WHERE b.cost > 5 AND b.days < 9",
    "SELECT COUNT(*) FROM visits WHERE cost > 5 AND days < 9",
    "SELECT COUNT(*) FROM visits WHERE cost > 5 AND days < 8",
    "SELECT COUNT(*) FROM visits WHERE cost > 5 OR days < 9",
    "SELECT COUNT(*) FROM visits WHERE cost >= 5 AND days < 9",
    "SELECT COUNT(*) FROM visits WHERE days > 5 AND cost < 9",
    "SELECT COUNT(*) FROM visits WHERE days < 5 AND cost > 9",
    "SELECT COUNT(DISTINCT patient_id) FROM visits WHERE cost > 5 AND days < 9",
    "SELECT plan, COUNT(*) FROM visits WHERE cost > 5 AND days < 9 GROUP BY plan",
    "SELECT SUM(days) FROM visits WHERE cost > 5 AND days < 9",
    (
        "SELECT COUNT(*) FROM visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE a.patient_id = b.patient_id"
        " AND a.cost > 5 AND b.days < 9)"
    ),
    (
        "SELECT COUNT(*) FROM visits a WHERE EXISTS (SELECT 1 FROM visits b WHERE a.patient_id = b.patient_id"
        " AND b.cost > 5 AND a.days < 9)"
    ),
]


@pytest.fixture(scope="module")
def clinic() -> Iterator[Connection]:
    """The clinic, of which nothing is asked."""
    with dpsql.connect(database(), policy=POLICY, ledger=":memory:") as connection:
        yield connection


def names(connection: Connection, sql: str, **terms: object) -> Fingerprint:
    """What the release of a query is called."""
    plan = plan_and_match(connection.engine, Query(sql, **terms)).plan  # type: ignore[arg-type]
    return FingerprintRules.from_policy(connection.engine.policy, "ana", "").compute_fingerprint(plan, {})


@pytest.mark.parametrize("queries", SAME.values(), ids=SAME)
def test_equal_releases_in_other_words_have_one_fingerprint(clinic: Connection, queries: list[str]) -> None:
    """Aliases, the order of conditions, CTEs and all that is done with a release change no name."""
    assert len({names(clinic, sql) for sql in queries}) == 1


def test_different_releases_have_different_fingerprints(clinic: Connection) -> None:
    """A condition, a constant, a key, an aggregate or which of two equal sources is meant."""
    assert len({names(clinic, sql).statistic for sql in DIFFERENT}) == len(DIFFERENT)


def test_noise_is_part_of_the_measurement_digest_alone(clinic: Connection) -> None:
    """At another ε the statistic is the same, the measurement is not."""
    one, two = (names(clinic, "SELECT COUNT(*) FROM visits", epsilon=e) for e in (1, 2))
    assert one.statistic == two.statistic
    assert one.measurement != two.measurement


def test_parameters_are_fingerprinted_as_constants(clinic: Connection) -> None:
    """A parameter is what it stands for, and 1 is not 1.0 nor TRUE."""
    asked = "SELECT COUNT(*) FROM visits WHERE cost > ?"
    found = [names(clinic, asked, parameters=(value,)) for value in (1, 1.0, 2)]
    assert len(set(found)) == 3
    assert names(clinic, "SELECT COUNT(*) FROM visits WHERE cost > 2") == found[2]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"data_version": "2"}, False),
        ({"neighbors": "replace"}, False),
        ({"privacy_unit": "person"}, False),
        ({"budget": {"epsilon": 31, "delta": 1e-6}}, True),
        ({"max_epsilon": 3}, True),
    ],
    ids=str,
)
def test_fingerprint_covers_the_policy_except_budgets(change: dict[str, object], same: bool) -> None:
    """All but what may be spent."""
    sql = "SELECT COUNT(*) FROM visits"
    found = []
    for policy in (POLICY, POLICY | change):
        with dpsql.connect(database(), policy=policy, ledger=":memory:") as connection:
            found.append(names(connection, sql))
    assert (found[0] == found[1]) is same


def test_fingerprint_names_functions() -> None:
    """No two functions of the registry share the name that a text has for them."""
    assert all(name == function.name for name, function in FUNCTIONS.items())


def test_fingerprint_quotes_texts() -> None:
    """A constant cannot look like a part of a plan."""
    assert compute_equality_text(("a", "b")) != compute_equality_text(("a' str:'b",))
    assert compute_equality_text((1, (2, 3))) != compute_equality_text(((1, 2), 3))


@pytest.mark.parametrize("named", ["visits", "budget", "analysts"])
def test_table_named_like_a_key_is_distinct(named: str) -> None:
    """What is declared of it counts, whatever it is called; what may be spent on it does not."""

    def digest(bounds: list[int], epsilon: int) -> str:
        columns = {"max_epsilon": {"type": "integer", "bounds": bounds}}
        table = {"unit": "row", "columns": columns, "budget": {"epsilon": epsilon}}
        told = {"version": 1, "privacy_unit": "visit", "budget": {"epsilon": 1}, "tables": {named: table}}
        return FingerprintRules.from_policy(load(told), "ana", "").digest

    assert digest([0, 9], 1) == digest([0, 9], 2)
    assert digest([0, 9], 1) != digest([0, 8], 1)
