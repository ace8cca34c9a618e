"""Asked for an error that is a part of each value, a query is answered in steps until it is met, within its most."""

from __future__ import annotations

import html
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine import relative_targets, stages
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun
from dpsql.engine.relative_targets import STEPS, Cell
from dpsql.errors import BackendError, InternalError, OperationalError
from dpsql.interfaces.shell.session import Session
from dpsql.interfaces.shell.settings import SessionState

COUNT = "SELECT COUNT(*) AS n FROM visits"
NOBODY = f"{COUNT} WHERE cost > 990"
MET = {
    "a count": COUNT,
    "a sum": "SELECT SUM(cost) AS total FROM visits",
    "groups": "SELECT plan, COUNT(*) FROM visits GROUP BY plan",
    "a factor and a shift": "SELECT -SUM(cost) / 1e3 + 7 FROM visits",
    "grouping sets": "SELECT plan, COUNT(*) FROM visits GROUP BY ROLLUP (plan) ORDER BY 2",
    "two releases": f"{COUNT} UNION ALL SELECT SUM(cost) FROM visits",
    "a subquery": f"SELECT 2 * n AS twice FROM ({COUNT})",
}
REFUSED = {
    "a mean": ("SELECT AVG(cost) FROM visits", "target_error"),
    "a ratio": ("SELECT SUM(cost) / COUNT(*) FROM visits", "target_error"),
    "keys alone": ("SELECT plan FROM visits GROUP BY plan", "target_error"),
    "chosen groups": ("SELECT ward, COUNT(*) FROM visits GROUP BY ward", "relative_target"),
    "a condition on values": (f"{COUNT} HAVING COUNT(*) > 9", "relative_target"),
    "a condition above": (f"SELECT n FROM ({COUNT}) WHERE n > 9", "relative_target"),
    "some rows": ("SELECT plan, COUNT(*) FROM visits GROUP BY plan LIMIT 1", "relative_target"),
    "some rows below": (
        "SELECT n FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY 2 LIMIT 1)",
        "relative_target",
    ),
    "a released value in WHERE": (
        f"{COUNT} WHERE cost > (SELECT AVG(cost) FROM visits)",
        "relative_target",
    ),
}
ACCOUNTANTS = ("pure", "zcdp", "gdp")


def opened(accountant: str = "pure", epsilon: float = 60, most: float | None = 40, **more: Any) -> Connection:
    """The clinic under an accountant; unless told otherwise its owner says which data it is."""
    budget = {"epsilon": epsilon, "delta": 1e-6, "accountant": accountant}
    policy = POLICY | {"budget": budget, "max_epsilon": most, "data_version": "1"} | more
    policy = {name: value for name, value in policy.items() if value is not None}
    return dpsql.connect(database(), policy=policy, ledger=":memory:", analyst="ana")


@pytest.fixture(params=ACCOUNTANTS)
def con(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection for each accountant."""
    with opened(request.param) as connection:
        yield connection


def spent(connection: Connection) -> Fraction:
    """What is spent of the budget of visits, in the accountant's measure."""
    return connection.budget()["visits"].spent.loss_fraction


def charged(result: dpsql.Result) -> list[Fraction]:
    """What was charged to visits, step by step."""
    return [Fraction(entry["loss"]) for entry in result.receipt.entries]


def worst(result: dpsql.Result, confidence: float = 0.95) -> float:
    """The largest half-width over its value."""
    return max(
        (ends[1] - ends[0]) / 2 / abs(value)
        for row, intervals in zip(result.rows, result.intervals(confidence), strict=True)
        for value, ends in zip(row, intervals, strict=True)
        if ends is not None and isinstance(value, (int, float))
    )


@pytest.mark.parametrize("name", MET)
@pytest.mark.parametrize(("target", "share"), [("20%", 0.2), (" 5 % ", 0.05)])
def test_half_widths_meet_the_relative_target(con: Connection, name: str, target: str, share: float) -> None:
    """Each half-width is at most that part of its released value, and the ledger holds all that was charged for it."""
    result = con.query(MET[name], target_error=target)
    assert result.receipt.target is not None
    assert (result.receipt.target["met"], result.receipt.notices) == ("yes", ())
    assert worst(result) <= share
    assert sum(charged(result)) == spent(con)
    assert 1 <= len(result.receipt.entries) <= STEPS
    con.engine.ledger.verify()


@pytest.mark.parametrize("version", ["1", None])
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize(
    ("sql", "percent"), [(MET["a sum"], 1), (MET["groups"], 1), (NOBODY, 1), (COUNT, 1.75)]
)
def test_all_steps_together_stay_below_the_most(
    accountant: str, version: str | None, sql: str, percent: float
) -> None:
    """Whether steps refine or are charged for themselves, a search costs at most what the policy's cap does."""
    with opened(accountant, most=1, data_version=version) as connection:
        result = connection.query(sql, target_error=f"{percent}%")
        with opened(accountant, most=1) as other:
            whole = charged(other.query(COUNT, epsilon=1))
        assert 0 < spent(connection) == sum(charged(result)) <= sum(whole)
        assert result.receipt.notices or worst(result) <= percent / 100


def test_a_step_refines_the_one_before() -> None:
    """Under `pure` all steps together cost what the last costs alone, and its ledger says what refines what."""
    with opened() as connection:
        result = connection.query(MET["a sum"], target_error="5%")
        assert result.receipt.target is not None
        assert spent(connection) == Fraction(result.receipt.target["epsilon"])
        further = connection.query(MET["a sum"], target_error="2%")
        assert further.receipt.target is not None
        assert spent(connection) == Fraction(further.receipt.target["epsilon"])
        details = [entry.details.get("refines") for entry in connection.engine.ledger.list_entries()]
        assert details == [None, *([number] for number in range(1, len(details)))]


def test_a_met_target_is_replayed_free(con: Connection) -> None:
    """A target that was met is replayed free, and a smaller error costs only the difference."""
    first = con.query(COUNT, target_error="10%")
    again = con.query(COUNT, target_error="10%")
    assert (again.rows, charged(again)) == (first.rows, [])
    assert set(again.receipt.replayed) <= {entry["id"] for entry in first.receipt.entries}
    assert con.query(COUNT, target_error="20%").rows == first.rows
    before = spent(con)
    further = con.query(COUNT, target_error="3%")
    assert further.receipt.target is not None
    assert spent(con) == before + sum(charged(further)) > before
    assert worst(further) <= 0.03


def test_steps_without_replay_are_charged_separately(con: Connection) -> None:
    """With replay=False earlier releases are not used, and each step is charged."""
    con.query(COUNT, target_error="10%")
    result = con.query(COUNT, target_error="10%", replay=False)
    assert len(charged(result)) > 1
    assert (result.receipt.refined, result.receipt.replayed) == ((), ())
    assert worst(result) <= 0.1


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_an_unreachable_target_ends_the_search(accountant: str) -> None:
    """The search ends with the last release and a notice once a value is too small for the largest loss."""
    con = opened(accountant, most=2)
    result = con.query(NOBODY, target_error="1%")
    (notice,) = result.receipt.notices
    assert result.receipt.target is not None
    assert result.receipt.target["met"] == "no"
    assert notice.startswith("±1% of each value in 95% of answers is not met: n is ")
    assert notice in str(result)
    assert html.escape(notice) in result._repr_html_()
    assert len(result) == 1
    assert spent(con) == sum(charged(result)) > 0
    with opened(accountant, most=2) as other:
        assert 2 * spent(con) < sum(charged(other.query(COUNT, epsilon=2)))
    before = spent(con)
    assert con.query(NOBODY, target_error="1%").rows == result.rows
    assert spent(con) == before
    con.close()


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_rest_of_a_budget_ends_the_search(accountant: str) -> None:
    """The released answer is returned where the budget is less than the target takes."""
    with opened(accountant, epsilon=1, most=None) as connection:
        left = connection.budget()["visits"].remaining_epsilon
        connection.query("SELECT COUNT(DISTINCT patient_id) FROM visits", epsilon=left * Fraction(9, 10))
        result = connection.query(COUNT, target_error="8%")
        (notice,) = result.receipt.notices
        assert "the remaining budget is too small" in notice
        state = connection.budget()["visits"]
        assert state.spent.is_within(state.limit)
        assert len(charged(result)) >= 1


def test_a_budget_too_small_for_the_first_step_is_refused() -> None:
    """Without a release there is no answer to fall back on."""
    with opened(epsilon=1, most=None) as connection:
        connection.query(COUNT, epsilon=1)
        with pytest.raises(dpsql.BudgetExhausted):
            connection.query(MET["a sum"], target_error="2%")
        assert connection.budget()["visits"].queries == 1


def test_a_budget_spent_by_others_keeps_earlier_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a later charge is refused, the answer is the last release."""
    with opened() as connection:
        charge = type(connection.engine.ledger).charge

        def once(ledger: Any, *bills: Any, **details: Any) -> Any:
            if ledger.list_entries():
                raise dpsql.BudgetExhausted("spent")
            return charge(ledger, *bills, **details)

        monkeypatch.setattr(type(connection.engine.ledger), "charge", once)
        result = connection.query(COUNT, target_error="2%")
        assert "other queries spent the budget" in result.receipt.notices[0]
        assert len(charged(result)) == 1


def test_explain_promises_no_price(con: Connection) -> None:
    """It says the first step's and the most, neither of which follows from data, and charges nothing."""
    explained = con.explain(COUNT, target_error="5%", confidence=0.9)
    assert explained.lines[1].startswith(
        "  requested ±5% of each value in 90% of answers: the ε that it needs "
    )
    assert explained.lines[2].startswith("  first step: ε = ")
    assert explained.lines[3].startswith("  all steps together: at most as for ε = ")
    with opened(str(con.engine.get_account("visits").accountant.name)) as other:
        other.engine.backend._runner.connection.execute("DELETE FROM visits")  # type: ignore[attr-defined]
        assert other.explain(COUNT, target_error="5%", confidence=0.9).lines == explained.lines
    assert con.budget()["visits"].queries == 0
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.budget(COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(target_error = '5%')"))
    assert caught.value.code == "relative_target"


@pytest.mark.parametrize("name", REFUSED)
def test_relative_targets_of_noisy_selections_are_refused(con: Connection, name: str) -> None:
    """Noisy keys, noisy selections and errors that are not known in advance are refused."""
    sql, code = REFUSED[name]
    for ask in (con.explain, con.query):
        with pytest.raises(dpsql.QueryRejected) as caught:
            ask(sql, target_error="5%")
        assert (caught.value.code, bool(caught.value.hint)) == (code, True)
    assert con.budget()["visits"].queries == 0


@pytest.mark.parametrize("target", ["0%", "-5%", "51%", "x%", "%", "nan%", "5%%"])
def test_percentages_outside_zero_to_fifty_are_refused(con: Connection, target: str) -> None:
    """A percentage is above 0 and at most 50."""
    with pytest.raises(dpsql.LossError):
        con.query(COUNT, target_error=target)


def test_clause_and_shell_command_set_a_relative_target(con: Connection) -> None:
    r"""OPTIONS(target_error = '10%') and \target 10% set the same target."""
    called = con.query(COUNT, target_error="10%", confidence=0.9)
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS(target_error = '10%', confidence = 0.9)"
    sql = COUNT.replace("SELECT", f"SELECT {clause}")
    assert con.query(sql).rows == con.query(sql, target_error="10%").rows == called.rows
    with pytest.raises(dpsql.QueryRejected, match="different values for target_error"):
        con.query(sql, target_error="5%")
    session = Session(SessionState(con))
    (reply,) = session.iterate_replies("\\target 5% 0.9")
    assert reply.text == "queries run with ±5% of each value in 90% of answers, in steps until they meet it"
    (reply,) = session.iterate_replies(f"{MET['a sum']};")
    assert "charged to visits: ε " in reply.text
    assert " steps)" in reply.text
    with opened(most=1) as connection:
        state = SessionState(connection, target=session.state.target)
        (reply,) = Session(state).iterate_replies(f"{NOBODY};")
    assert "±5% of each value in 90% of answers is not met: n is " in reply.text


def test_public_tables_need_no_step(con: Connection) -> None:
    """No step is charged for it."""
    assert con.query("SELECT COUNT(*) FROM wards", target_error="1%").rows == ((2,),)


@pytest.mark.parametrize("percent", ["50%", "1%"])
def test_an_exact_zero_needs_no_further_step(percent: str) -> None:
    """At a large loss a count of zero is exact, and only other groups need further steps."""
    with opened(epsilon=10**6, most=None) as connection:
        result = connection.query(f"{NOBODY} UNION ALL SELECT SUM(cost) FROM visits", target_error=percent)
        assert result.receipt.notices == ()
        assert (0,) in result.rows


def test_cells_that_are_known_exactly_are_never_aimed_at() -> None:
    """Of a zero without noise no error is allowed, and none is wanted."""
    zero = Cell((0, 0), Fraction(0), Fraction(0))
    share = Fraction(1, 2)
    assert zero.is_exact_zero
    assert zero.is_within_target(share)
    assert not zero.is_out_of_reach(share, 1.0)
    assert not Cell((0, 0), Fraction(0), Fraction(1)).is_exact_zero
    assert not Cell((0, 0), Fraction(1), Fraction(0)).is_exact_zero


FAILURES = {
    "the engine": BackendError(),
    "dpsql": InternalError("it contradicts itself"),
    "arithmetic": ZeroDivisionError("17.3 of somebody"),
    "the ledger": OperationalError("another was quicker", code="release_refined"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("at", [2, 3])
def test_a_step_that_fails_ends_with_the_answer_so_far(
    con: Connection, monkeypatch: pytest.MonkeyPatch, failure: str, at: int
) -> None:
    """What was released is the answer, with a notice that says nothing of what the failure said."""
    answer, asked = relative_targets.answer_query, list[QueryRun]()

    def failing(engine: Engine, prepared: QueryRun) -> dpsql.Result:
        if prepared.releases and all(part.replayed_release is None for part in prepared.releases):
            asked.append(prepared)
            if len(asked) == at:
                raise FAILURES[failure]
        return answer(engine, prepared)

    monkeypatch.setattr(relative_targets, "answer_query", failing)
    result = con.query(COUNT, target_error="1%")
    (notice,) = result.receipt.notices
    assert "may not be met: the next step failed" in notice
    assert "somebody" not in notice
    assert result.receipt.target is not None
    assert result.receipt.target["met"] == "no"
    assert sum(charged(result)) == spent(con)
    assert len(result.receipt.entries) == at - 1


def test_a_failure_of_the_first_step_is_an_error(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was released, so there is no answer."""
    monkeypatch.setattr(stages, "charge_query", lambda *_: (_ for _ in ()).throw(BackendError()))
    with pytest.raises(BackendError):
        con.query(COUNT, target_error="1%")


def test_an_interrupt_ends_a_search(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is no failure: what was released is kept, and asking again goes on from it."""
    quote, asked = relative_targets.compute_quotes, list[QueryRun]()

    def interrupted(engine: Engine, prepared: QueryRun) -> Any:
        asked.append(prepared)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return quote(engine, prepared)

    monkeypatch.setattr(relative_targets, "compute_quotes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        con.query(COUNT, target_error="1%")
    before = spent(con)
    assert before > 0
    result = con.query(COUNT, target_error="1%")
    assert spent(con) == before + sum(charged(result))
