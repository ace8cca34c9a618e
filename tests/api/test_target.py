"""Asked by accuracy, a query gets the least ε of a public grid whose noise keeps to it, and says so first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database
from hypothesis import given
from hypothesis import strategies as st

import dpsql
from dpsql.engine import accuracy_targets
from dpsql.engine.accuracy_targets import _get_grid_epsilon, _search_first_index
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState
from dpsql.privacy.accounting.events import Pure

COUNT = "SELECT COUNT(*) AS n FROM visits"
TWO_GROUPS = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed = 2)"
REACHABLE = {
    "a count": (COUNT, 50),
    "a wide error": (COUNT, 1e6),
    "a few people": ("SELECT COUNT(DISTINCT patient_id) FROM visits", 3),
    "a sum": ("SELECT SUM(cost) FROM visits", 10_000),
    "a factor": ("SELECT -SUM(cost) / 1e3 + 7 AS thousands FROM visits", 10),
    "a count and a sum": ("SELECT COUNT(*), SUM(days) FROM visits", 300),
    "groups": ("SELECT plan, COUNT(*), SUM(days) FROM visits GROUP BY plan", 300),
    # Near the threshold of the groups intervals are wider: for two groups of a unit it is 30 scales of noise away.
    "chosen groups": (f"{TWO_GROUPS} ward, COUNT(DISTINCT patient_id) FROM visits GROUP BY ward", 5),
    "grouping sets": ("SELECT plan, COUNT(*) FROM visits GROUP BY ROLLUP (plan)", 40),
    "two releases": (f"{COUNT} UNION ALL SELECT SUM(days) FROM visits", 600),
    "a subquery": (f"SELECT 2 * n AS twice FROM ({COUNT}) ORDER BY twice", 100),
    # At half the loss noise hid the row, by a mean below 1, in one of 20,000 runs; so it does in one of 10^8.
    "a mean in a condition": (f"{COUNT} HAVING AVG(cost) > 1", 30),
    "a released value in WHERE": (f"{COUNT} WHERE cost > (SELECT AVG(cost) FROM visits)", 60),
}
UNFORESEEN = {
    "a mean": "SELECT AVG(cost) FROM visits",
    "a median": "SELECT MEDIAN(cost) FROM visits",
    "a greatest value": "SELECT COUNT(*), MAX(day) FROM visits",
    "a deviation": "SELECT STDDEV_SAMP(cost) FROM visits",
    "a ratio": "SELECT SUM(cost) / COUNT(*) FROM visits",
    "a difference": "SELECT SUM(cost) - SUM(days) FROM visits",
    "a share": "SELECT plan, COUNT(*) / SUM(COUNT(*)) OVER () FROM visits GROUP BY plan",
    "a rank": "SELECT COUNT(*), RANK() OVER (ORDER BY COUNT(*)) FROM visits GROUP BY plan",
    "a joined release": f"SELECT a.n FROM ({COUNT}) AS a, ({COUNT}) AS b",
    "a value beside": f"{COUNT.replace('AS n', 'AS n, (SELECT AVG(cost) FROM visits)')}",
    "a value alone": f"SELECT ({COUNT})",
    "keys alone": "SELECT plan FROM visits GROUP BY plan",
    "an end of an interval": "SELECT DP_INTERVAL_LOW(COUNT(*)) FROM visits",
    "no rows twice": "SELECT DISTINCT COUNT(*) FROM visits GROUP BY plan",
}


@pytest.fixture(params=["zcdp", "pure"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """A connection for each accountant, whose policy caps a query at ε = 2, as far as groups need no δ."""
    budget = {"epsilon": 30, "delta": 1e-6, "accountant": request.param}
    with dpsql.connect(database(), policy=POLICY | {"budget": budget}, ledger=":memory:") as opened:
        yield opened


def halves(connection: dpsql.Connection, sql: str, epsilon: Fraction, confidence: float) -> list[float]:
    """The half-widths of an answer's intervals at a loss, without those that the answer is NULL in."""
    result = connection.query(sql, epsilon=epsilon)
    ends = [pair for row in result.intervals(confidence) for pair in row if pair is not None]
    return [(high - low) / 2 for low, high in ends]


@pytest.mark.parametrize("name", REACHABLE)
@pytest.mark.parametrize("confidence", [0.8, 0.99])
def test_the_least_loss_is_found(con: dpsql.Connection, name: str, confidence: float) -> None:
    """At the ε that is found all intervals keep to the target; at the one before it, one does not."""
    sql, error = REACHABLE[name]
    found = con.explain(sql, target_error=error, confidence=confidence).prepared.terms.epsilon
    at = next(index for index in range(10_000) if _get_grid_epsilon(index) >= found)
    assert _get_grid_epsilon(at) == found
    kept, before = (halves(con, sql, _get_grid_epsilon(index), confidence) for index in (at, at - 1))
    assert kept
    assert max(kept) <= error * (1 + 1e-9)
    # Totals and parts agree in the end, and are nearer to the truth than was promised of each.
    assert max(before) > error or name == "grouping sets"


@pytest.mark.parametrize("name", REACHABLE)
def test_a_target_is_charged_as_its_loss(con: dpsql.Connection, name: str) -> None:
    """The charge is that of the ε which EXPLAIN shows, and the receipt has it with the target."""
    sql, error = REACHABLE[name]
    told = con.explain(sql, target_error=error)
    epsilon = told.prepared.terms.epsilon
    receipt = con.query(sql, target_error=error).receipt
    same = con.query(sql, epsilon=epsilon, replay=False).receipt
    assert [(entry["loss"], entry["delta"]) for entry in receipt.entries] == [
        (entry["loss"], entry["delta"]) for entry in same.entries
    ]
    assert receipt.mechanisms == same.mechanisms
    assert receipt.target == told.receipt.target
    assert receipt.target == {
        "error": str(Fraction(str(error))),
        "confidence": "19/20",
        "epsilon": str(epsilon),
    }
    assert same.target is None


def test_explain_prints_the_price_first(con: dpsql.Connection) -> None:
    """Before the plan stand what was asked, what was found for it, and what that costs."""
    lines = con.explain(COUNT, target_error=50, confidence="0.9").lines
    assert lines[0] == "Price"
    assert lines[1].startswith("  requested ±50 in 90% of answers: ε = ")
    assert lines[2].startswith("  visits: ")
    assert "  COUNT(*): expected 90% half-width 50" in lines
    assert con.explain(COUNT, epsilon=1).lines[0] == "Price"
    assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize("name", UNFORESEEN)
def test_targets_of_data_dependent_errors_are_refused(con: dpsql.Connection, name: str) -> None:
    """If the error depends on the data, or no value has noise, the target is refused without a charge."""
    for ask in (con.explain, con.query):
        with pytest.raises(dpsql.QueryRejected) as caught:
            ask(UNFORESEEN[name], target_error=1e6)
        assert caught.value.code == "target_error"
        assert caught.value.hint
    assert con.budget()["visits"].queries == 0


def bought(error: dpsql.Error) -> str:
    """The error that a message says is bought."""
    return re.split("gives ±|enough for ±", f"{error.message} {error.hint}")[1].split()[0]


def test_a_target_above_the_cap_names_the_reachable_error(con: dpsql.Connection) -> None:
    """The refusal names the error that is reachable at the cap, and a query for that error is answered."""
    sql = "SELECT SUM(cost) AS total FROM visits"
    with pytest.raises(
        dpsql.QueryRejected, match=r"the policy's cap for one query \(ε 2\), .* for total"
    ) as caught:
        con.query(sql, target_error=1)
    assert caught.value.code == "target_error"
    assert con.budget()["visits"].queries == 0
    terms = con.explain(sql, target_error=float(bought(caught.value)) * 1.00001).prepared.terms
    assert Fraction(19, 10) < terms.epsilon <= 2


def test_the_cap_itself_can_be_the_loss() -> None:
    """A cap between two losses of the grid is used if only the cap meets the target."""
    cap = Fraction(10_005, 10_000)
    with dpsql.connect(database(), policy=POLICY | {"max_epsilon": float(cap)}, ledger=":memory:") as con:
        sql = "SELECT SUM(cost) FROM visits"
        (error,) = halves(con, sql, cap, 0.95)
        assert con.explain(sql, target_error=error * (1 + 1e-9)).prepared.terms.epsilon == cap


def test_without_a_cap_the_whole_budget_is_the_most() -> None:
    """The budget of a table bounds the search, and the refusal says what it buys."""
    policy = {key: value for key, value in POLICY.items() if key != "max_epsilon"}
    with dpsql.connect(database(), policy=policy, ledger=":memory:") as con:
        with pytest.raises(dpsql.QueryRejected, match="the whole budget of visits") as caught:
            con.query("SELECT SUM(cost) FROM visits", target_error=1e-3)
        assert caught.value.code == "target_error"


def test_a_target_above_the_budget_names_the_reachable_error() -> None:
    """The refusal names the error that the remaining budget can meet, and a query for that error is answered."""
    policy = POLICY | {"budget": {"epsilon": 1, "accountant": "pure"}}
    with dpsql.connect(database(), policy=policy, ledger=":memory:") as con:
        con.query(COUNT, epsilon="0.75")
        with pytest.raises(dpsql.BudgetExhausted) as caught:
            con.query(COUNT, target_error=20)
        error = bought(caught.value)
        assert con.budget()["visits"].queries == 1
        assert len(con.query(COUNT, target_error=error)) == 1
        con.query(COUNT, epsilon=con.budget()["visits"].remaining_epsilon)
        with pytest.raises(dpsql.BudgetExhausted):
            con.query(COUNT, target_error=1e6)


@pytest.mark.parametrize(
    ("clause", "call"),
    [
        ("epsilon = 1", {"target_error": 50}),
        ("target_error = 50", {"epsilon": 1}),
        ("epsilon = 1, target_error = 50", {}),
        ("delta = 1e-9", {"epsilon": 1, "target_error": 50}),
        ("target_error = 50", {"target_error": 51}),
        ("target_error = 50, confidence = 0.9", {"confidence": 0.95}),
    ],
)
def test_a_loss_and_a_target_are_refused_together(
    con: dpsql.Connection, clause: str, call: dict[str, Any]
) -> None:
    """A loss and a target, or two targets, are refused in calls and clauses alike."""
    sql = COUNT.replace("SELECT", f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({clause})")
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query(sql, **call)
    assert caught.value.code == "ambiguous"
    assert con.budget()["visits"].queries == 0


def test_the_clause_sets_a_target_as_a_call_does(con: dpsql.Connection) -> None:
    """OPTIONS(target_error = …) gives the same terms, whatever the connection's default loss."""
    sql = COUNT.replace(
        "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(target_error = 50, confidence = 0.9)"
    )
    called = con.explain(COUNT, target_error=50, confidence=0.9).prepared.terms
    assert con.explain(sql).prepared.terms == called
    assert con.explain(sql, confidence="0.9").prepared.terms == called
    con._queries.defaults = replace(con._queries.defaults, epsilon=Fraction(1))
    assert con.explain(sql).prepared.terms == called
    assert con.explain(COUNT, target_error=50, confidence=0.9).prepared.terms == called
    assert con.cursor().execute(sql).result.receipt.target == con.execute(sql).result.receipt.target


@pytest.mark.parametrize("confidence", [1, 2, "0.9999999999", 95])
def test_a_confidence_lies_between_0_and_1(con: dpsql.Connection, confidence: Any) -> None:
    """No noise keeps to a finite error always."""
    with pytest.raises(dpsql.LossError):
        con.query(COUNT, target_error=50, confidence=confidence)


def test_a_confidence_goes_with_an_error(con: dpsql.Connection) -> None:
    """Alone it asks for nothing."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.query(COUNT, epsilon=1, confidence=0.9)
    assert caught.value.code == "target_error"


def test_the_loss_does_not_depend_on_the_data(con: dpsql.Connection) -> None:
    """An empty table leads to the same ε, the same price and the same words."""
    with dpsql.connect(database(), policy=con.engine.policy, ledger=":memory:") as other:
        other.engine.backend._runner.connection.execute("DELETE FROM visits")  # type: ignore[attr-defined]
        for sql, error in REACHABLE.values():
            assert other.explain(sql, target_error=error).lines == con.explain(sql, target_error=error).lines


def test_public_tables_meet_any_target_free(con: dpsql.Connection) -> None:
    """A query on public tables alone is exact: any accuracy is kept, and nothing is charged."""
    result = con.query("SELECT COUNT(*) FROM wards", target_error=1e-9)
    assert result.rows == ((2,),)
    assert not result.receipt.entries


@pytest.mark.parametrize("name", REACHABLE)
def test_few_losses_are_tried(con: dpsql.Connection, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search begins near its end: planning for an accuracy looks at no more than a score of prices."""
    sql, error = REACHABLE[name]
    tried = []
    monkeypatch.setattr(
        accuracy_targets,
        "split_loss",
        lambda *given, _prices=accuracy_targets.split_loss: tried.append(1) or _prices(*given),
    )
    con.explain(sql, target_error=error)
    assert len(tried) <= 20


@given(st.sets(st.integers(0, 2000)), st.integers(0, 2000), st.integers(0, 2000), st.integers(-5, 3000))
def test_the_search_ends_at_the_smallest_loss_of_the_grid(
    met: set[int], turn: int, top: int, near: int
) -> None:
    """The loss that is found meets the target, and the next smaller one does not; few losses are tried."""
    tried = []

    def meets(at: int) -> bool:
        tried.append(at)
        return at in met or at >= min(turn, top)

    found = _search_first_index(meets, top, near)
    assert meets(found)
    assert found == 0 or not meets(found - 1)
    assert len(tried) <= 30


def test_no_loss_is_finer_than_the_ledger_s() -> None:
    """The least loss of the grid has a price."""
    with dpsql.connect(database(), policy=POLICY, ledger=":memory:") as con:
        assert con.engine.get_account("visits").accountant.compute_charge(Pure(_get_grid_epsilon(0))).loss > 0
        assert con.explain(COUNT, target_error=1e12).prepared.terms.epsilon == _get_grid_epsilon(0)


def test_in_the_shell(con: dpsql.Connection) -> None:
    r"""\target asks for an accuracy until \epsilon asks for a loss; what a query says itself goes before both."""
    session = Session(SessionState(con, epsilon=Fraction(1, 4)))
    (reply,) = session.iterate_replies("\\target 50 0.9")
    assert reply.text == "queries run with ±50 in 90% of answers, at the smallest ε that meets it"
    terms = con.explain(COUNT, target_error=50, confidence=0.9).prepared.terms
    (reply,) = session.iterate_replies(f"{COUNT};")
    assert f"ε {float(terms.epsilon):g} " in reply.text or f"ε {float(terms.epsilon):g};" in reply.text
    said = COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5)")
    (reply,) = session.iterate_replies(f"EXPLAIN {said};")
    assert "as for ε = 0.5;" in reply.text
    (reply,) = session.iterate_replies("\\epsilon 0.125")
    assert reply.text == "each query is charged ε 0.125"
    (reply,) = session.iterate_replies(f"EXPLAIN {COUNT};")
    assert "as for ε = 0.125;" in reply.text
    for wrong in ("\\target 51%", "\\target x", "\\target 5 95", "\\target 0"):
        (reply,) = session.iterate_replies(wrong)
        assert reply.failed
    assert session.state.target is None
    session.state = replace(session.state, epsilon=None)
    (reply,) = session.iterate_replies("\\target")
    assert reply.text.startswith("no target error is set")
