"""SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(…): what a query asks for itself goes as far as the policy allows."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState

COUNT = "COUNT(*) FROM visits"
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({})"


@pytest.fixture
def con() -> Iterator[dpsql.Connection]:
    """A connection whose queries lose 1/8 unless they say otherwise; 2 is the policy's cap."""
    with dpsql.connect(database(), policy=POLICY, ledger=":memory:", epsilon="0.125") as opened:
        yield opened


def charged(connection: dpsql.Connection, sql: str, **options: Any) -> list[tuple[str, str]]:
    """What the ledger was charged for a query, loss and delta."""
    entries = connection.query(sql, **options, replay=False).receipt.entries
    return [(entry["loss"], entry["delta"]) for entry in entries]


def test_the_clause_is_a_call_s_epsilon_delta_and_groups(con: dpsql.Connection) -> None:
    """What the clause says is charged and enforced as what a call says."""
    query = "ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward"
    clause = CLAUSE.format("epsilon = 0.5, delta = 1e-9, max_groups_contributed = 1")
    said = {"epsilon": "0.5", "delta": "1e-9", "max_groups": 1}
    assert charged(con, f"{clause} {query}") == charged(con, f"SELECT {query}", **said)
    written, called = con.explain(f"{clause} {query}"), con.explain(f"SELECT {query}", **said)
    assert written.prepared.outer == called.prepared.outer
    assert written.prepared.terms == called.prepared.terms
    assert written.receipt.plan == called.receipt.plan


def test_the_clause_goes_before_the_connection_s_epsilon(con: dpsql.Connection) -> None:
    """What `connect` was told is for queries that say nothing themselves."""
    plain, dear = con.explain(f"SELECT {COUNT}"), con.explain(f"{CLAUSE.format('epsilon = 1')} {COUNT}")
    assert plain.prepared.terms.epsilon == Fraction(1, 8)
    assert dear.prepared.terms.epsilon == 1


@pytest.mark.parametrize(
    ("option", "same", "other"),
    [
        ("epsilon = 0.5", {"epsilon": "0.5"}, {"epsilon": 1}),
        ("delta = 1e-9", {"delta": "1e-9"}, {"delta": 1e-8}),
        ("max_groups_contributed = 2", {"max_groups": 2}, {"max_groups": 1}),
    ],
)
def test_contradicting_options_of_call_and_clause_are_refused(
    con: dpsql.Connection, option: str, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """Call and clause may give the same value; a contradiction is refused."""
    query = f"{CLAUSE.format(option)} {COUNT}"
    con.explain(query, **same)
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query(query, **other)
    assert caught.value.code == "ambiguous"
    assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize("epsilon", ["2.000001", "1e320"])
def test_the_policy_caps_the_clause(con: dpsql.Connection, epsilon: str) -> None:
    """A query cannot give itself more than the policy gives to one."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query(f"{CLAUSE.format(f'epsilon = {epsilon}')} {COUNT}")
    assert caught.value.code == "epsilon_cap"
    assert con.budget()["visits"].queries == 0


def test_without_any_epsilon_nothing_is_answered() -> None:
    """A clause without epsilon, on a connection without one, says how to give one."""
    with dpsql.connect(database(), policy=POLICY, ledger=":memory:") as con:
        with pytest.raises(dpsql.ProgrammingError) as caught:
            con.query(f"SELECT WITH DIFFERENTIAL_PRIVACY {COUNT}")
        assert caught.value.code == "epsilon_missing"
        assert len(con.query(f"{CLAUSE.format('epsilon = 1')} {COUNT}")) == 1


@pytest.mark.parametrize(
    ("connected", "asked", "expected"),
    [({}, {}, "0.25"), ({"epsilon": 1}, {}, "1"), ({}, {"epsilon": "0.5"}, "0.5")],
)
def test_options_precede_connection_and_policy_defaults(
    connected: dict[str, Any], asked: dict[str, Any], expected: str
) -> None:
    """A call takes precedence over the connection, and the connection over the policy."""
    policy = POLICY | {"default_epsilon": 0.25}
    with dpsql.connect(database(), policy=policy, ledger=":memory:", **connected) as con:
        sql = f"SELECT {COUNT}"
        assert charged(con, sql, **asked) == charged(con, sql, epsilon=expected)
        assert con.explain(sql, target_error=50).prepared.terms.epsilon != Fraction(expected)


def test_the_receipt_and_the_ledger_keep_the_text(con: dpsql.Connection) -> None:
    """What was asked is kept as it was asked, clause and all."""
    query = f"{CLAUSE.format('epsilon = 1')} {COUNT}"
    assert con.query(query).receipt.query == query
    assert [entry.query for entry in con.engine.ledger.list_entries()] == [query]


def test_in_the_shell_the_clause_goes_before_its_settings(con: dpsql.Connection) -> None:
    """The session's ε, δ and groups are for queries that say nothing themselves; what is charged is shown."""
    session = Session(SessionState(con, epsilon=Fraction(1, 4), delta=Fraction(1, 10**8), max_groups=2))
    clause = CLAUSE.format("epsilon = 0.5, delta = 1e-9, max_groups_contributed = 1")
    (reply,) = session.iterate_replies(f"EXPLAIN {clause} {COUNT};")
    assert "as for ε = 0.5" in reply.text
    (reply,) = session.iterate_replies(f"{clause} {COUNT};")
    assert "ε 0.5 " in reply.text
    (reply,) = session.iterate_replies(f"SELECT {COUNT};")
    assert "ε 0.25 " in reply.text
