"""A18, who is in a sample: its secret is fresh, is told to nobody, and cannot be asked about."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pyarrow
import pytest
from worlds import close_all, person, world

import dpsql
from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import PLACEHOLDER

SQL = "SELECT COUNT(*) FROM people TABLESAMPLE UNITS (50%)"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The secrets that are sent to the engine while a test runs."""
    found, run = list[str](), DuckDBBackend.run_statement

    def running(self: DuckDBBackend, sql: str) -> Exact:
        found.extend(part.partition("'")[0] for part in sql.split("SHA256(CONCAT('")[1:])
        return run(self, sql)

    monkeypatch.setattr(DuckDBBackend, "run_statement", running)
    return found


def test_no_two_answers_share_a_sample(secrets: list[str]) -> None:
    """Texts that mean one sum in other words are each charged and sampled by themselves."""
    town = world(*(person(who) for who in range(30)))
    for text in (SQL, SQL.replace("*", "1"), f"{SQL} WHERE age > -1", f"{SQL} WHERE age < 1000"):
        town.query(text, epsilon=1, replay=False)
    assert len(set(secrets)) == len(secrets) == len(town.engine.ledger.list_entries()) == 4
    assert PLACEHOLDER not in secrets
    close_all()


def test_secret_is_never_disclosed(
    secrets: list[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The ledger, receipt, EXPLAIN, logs and prepared query never contain the secret."""
    people = {"id": list(range(30)), "age": [30] * 30}
    table = {"unit": "id", "rows_per_unit": 1, "columns": {"age": {"type": "integer", "bounds": [0, 99]}}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 9}, "tables": {"people": table}}
    with (
        caplog.at_level("DEBUG"),
        dpsql.connect({"people": pyarrow.table(people)}, policy=policy, ledger=tmp_path / "l") as town,
    ):
        found = town.query(SQL, epsilon=1)
        prepared = plan_and_match(town.engine, Query(SQL))
        texts = [repr(part) for part in (found, found.receipt, town.explain(SQL, epsilon=1), prepared)]
        shown = str(town.explain(SQL, epsilon=2))
    (key,) = secrets
    texts += [caplog.text, *(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir())]
    assert any("TABLESAMPLE" in text for text in texts)
    assert not any(key in text for text in texts)
    assert PLACEHOLDER in shown


def test_text_of_the_analyst_is_not_read_as_the_secret(secrets: list[str]) -> None:
    """A constant equal to the secret's placeholder stays a constant: no condition reads the secret."""
    town = world(*(person(who, word=PLACEHOLDER) for who in range(30)), budget={"epsilon": 10**30})
    assert (
        town.query(f"{SQL} WHERE word = '{PLACEHOLDER}' AND '{PLACEHOLDER}' < 'b'", epsilon=10**15).rows[0][0]
        > 0
    )
    assert len(secrets) == 1
    close_all()


def test_sample_draws_the_same_number_of_words_on_neighbours() -> None:
    """The number of draws, and the SQL except the secret, do not depend on the rows."""
    few, many = world(), world(*(person(who) for who in range(30)))
    for town in (few, many):
        town.query(SQL, epsilon=1)
    assert few.engine.entropy.requests[0] == many.engine.entropy.requests[0] == 2  # type: ignore[attr-defined]
    close_all()


def test_known_secret_or_row_sampling_enables_the_attack() -> None:
    """A known member of the sample loses 2.9, not 1; a person with two chances loses 1.4."""
    town = world(*(person(who) for who in range(30)))
    user_query = Query("SELECT COUNT(DISTINCT id) FROM people TABLESAMPLE UNITS (10%)", epsilon=Fraction(1))
    plan = plan_and_match(town.engine, user_query).single_release.plan
    (measured,) = plan.vectors
    known = math.exp(measured.sensitivity.l1 / measured.mechanism.scale)  # type: ignore[attr-defined]
    by_unit, by_row = 0.1, 1 - 0.9**2
    assert math.log(known) == pytest.approx(2.9, abs=0.01)
    assert math.log(1 + by_unit * (known - 1)) == pytest.approx(1)
    assert math.log(1 + by_row * (known - 1)) > 1.4
    close_all()
