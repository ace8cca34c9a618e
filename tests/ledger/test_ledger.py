"""The ledger charges exactly, durably, all or nothing, and says where it stands."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import BudgetExhausted, InterfaceError, NotSupportedError, PolicyError, ProgrammingError
from dpsql.ledger import Budget, Ledger, open_ledger
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.protocol import FIRST_PREVIOUS
from dpsql.privacy.accounting import Charge, Composed, Gaussian, Pure, Selection

TENTH = Fraction(1, 10)
BUDGETS = {
    "visits": Budget("zcdp", Fraction(1), Fraction(1, 10**6)),
    "patients": Budget("pure", Fraction(1), Fraction(0)),
}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def noon() -> datetime:
    """A clock that stands still."""
    return NOON


@pytest.fixture(params=["file", "memory", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A fresh ledger, in a file, in memory and in PostgreSQL."""
    target: str | Path = ":memory:" if request.param == "memory" else tmp_path / "a.ledger"
    if request.param == "postgres":
        target = request.getfixturevalue("postgres_url")
    opened = open_ledger(target, BUDGETS, clock=noon)
    yield opened
    opened.close()


def test_charge_is_stored_with_all_fields(ledger: Ledger) -> None:
    """The entry returned and the entry read back are the same, field by field."""
    event = Composed((Pure(TENTH), Selection(Fraction(1, 10**9))))
    (entry,) = ledger.charge(
        {"visits": event}, analyst="ana", query="SELECT 1 -- é\x01", details={"plan": [1, None, "x"]}
    )
    assert ledger.list_entries() == (entry,)
    assert (entry.id, entry.charge, entry.number, entry.table) == (1, 1, 1, "visits")
    assert (entry.at, entry.analyst, entry.query) == (NOON, "ana", "SELECT 1 -- é\x01")
    assert entry.event == event
    assert entry.details == {"plan": [1, None, "x"]}
    assert entry.spend == entry.spent == ledger.get_state("visits").spent
    assert entry.limit == ledger.get_state("visits").limit
    assert entry.query_digest == hashlib.sha256(entry.query.encode()).hexdigest()


def test_a_file_keeps_any_text(tmp_path: Path) -> None:
    """Even one with a NUL, which PostgreSQL cannot keep."""
    with closing(open_ledger(tmp_path / "a.ledger", BUDGETS)) as ledger:
        ledger.charge({"visits": Pure(TENTH)}, analyst="ana", query="SELECT '\0'")
        assert ledger.list_entries()[0].query == "SELECT '\0'"


def test_a_charge_to_two_tables_is_one(ledger: Ledger) -> None:
    """Both tables get an entry of the same charge, in the tables' order."""
    ledger.charge({"visits": Pure(TENTH)}, analyst="ana", query="q")
    first, second = ledger.charge({"visits": Pure(TENTH), "patients": Pure(TENTH)}, analyst="ana", query="q")
    assert [first.table, second.table] == ["patients", "visits"]
    assert (first.id, second.id, first.charge, second.charge) == (2, 3, 2, 2)
    assert [entry.id for entry in ledger.list_entries("visits")] == [1, 3]
    assert [entry.id for entry in ledger.list_entries(limit=2)] == [2, 3]
    assert [entry.id for entry in ledger.list_entries("visits", limit=1)] == [3]
    assert ledger.list_entries("nowhere") == ledger.list_entries(limit=0) == ()
    assert [state.queries for state in ledger.list_states()] == [1, 2]


def test_over_budget_nothing_is_written(ledger: Ledger) -> None:
    """If one table cannot bear its part, no table is charged, and the error says what is left."""
    ledger.charge({"patients": Pure(Fraction(3, 4))}, analyst="ana", query="q")
    before = ledger.list_states(), ledger.list_entries()
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge({"patients": Pure(Fraction(1, 2)), "visits": Pure(TENTH)}, analyst="ana", query="q")
    assert caught.value.code == "budget_exhausted"
    assert (
        "epsilon 0.5 of table patients, but at most epsilon 0.25 is left for one query (budget: epsilon 1)"
        in str(caught.value)
    )
    assert (ledger.list_states(), ledger.list_entries()) == before


def test_the_remaining_epsilon_can_be_spent_exactly_once(ledger: Ledger) -> None:
    """The remaining ε fits exactly once; then the next release, however small, is refused."""
    for table in BUDGETS:
        left = ledger.get_state(table).remaining_epsilon
        with pytest.raises(BudgetExhausted) as caught:
            ledger.charge({table: Pure(left + Fraction(1, 10**30))}, analyst="ana", query="q")
        assert "needs epsilon" in caught.value.message
        ledger.charge({table: Pure(left)}, analyst="ana", query="q")
        with pytest.raises(BudgetExhausted):
            ledger.charge({table: Pure(TENTH)}, analyst="ana", query="q")


@pytest.mark.parametrize(("table", "converted"), [("patients", False), ("visits", True)])
def test_first_refusal_explains_the_remaining_epsilon(ledger: Ledger, table: str, converted: bool) -> None:
    """Where costs are converted to epsilon, one query of an unspent budget may ask for less than the budget's epsilon."""
    left = ledger.get_state(table).remaining_epsilon
    assert (left < BUDGETS[table].epsilon) == converted
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge({table: Pure(BUDGETS[table].epsilon + 1)}, analyst="ana", query="q")
    assert "is left for one query" in caught.value.message
    assert ("converts their sum with delta" in str(caught.value.hint)) == converted


def test_the_texts_of_a_refusal_differ(ledger: Ledger) -> None:
    """A refusal by a hair shows enough digits to see it."""
    with pytest.raises(BudgetExhausted) as caught:
        ledger.charge({"patients": Pure(1 + Fraction(1, 10**9))}, analyst="ana", query="q")
    assert (
        "epsilon 1.000000001 of table patients, but at most epsilon 1 is left for one query (budget: epsilon 1)"
        in str(caught.value)
    )


def test_delta_runs_out_too(ledger: Ledger) -> None:
    """Key selection is refused past its share of delta, and always under delta 0."""
    for table, delta in (("patients", Fraction(1, 10**30)), ("visits", Fraction(6, 10**7))):
        with pytest.raises(BudgetExhausted) as caught:
            ledger.charge({table: Selection(delta)}, analyst="ana", query="q")
        assert caught.value.code == "delta_exhausted"
    ledger.charge({"visits": Selection(Fraction(5, 10**7))}, analyst="ana", query="q")


def test_a_dry_run_agrees_and_writes_nothing(ledger: Ledger) -> None:
    """Whether a quote fits is whether the charge passes."""
    quotes = ledger.dry_run({"patients": Pure(Fraction(1)), "visits": Pure(Fraction(2))})
    assert [(quote.table, quote.fits) for quote in quotes] == [("patients", True), ("visits", False)]
    assert quotes[0].charge == quotes[0].remaining == Charge(Charge.UNIT, 0)
    assert ledger.list_entries() == ()


def test_wrong_charges_are_refused_before_the_budget(ledger: Ledger) -> None:
    """Unknown tables, events that cannot be charged, details and texts that cannot be kept."""
    with pytest.raises(PolicyError):
        ledger.charge({"secrets": Pure(TENTH)}, analyst="ana", query="q")
    with pytest.raises(PolicyError):
        ledger.get_state("secrets")
    with pytest.raises(NotSupportedError):
        ledger.charge({"patients": Gaussian(TENTH)}, analyst="ana", query="q")
    for details in ({"a": float("nan")}, {"a": object()}, {1: 1, "b": 2}):
        with pytest.raises(ProgrammingError):
            ledger.charge({"patients": Pure(TENTH)}, analyst="ana", query="q", details=details)  # type: ignore[arg-type]
    for analyst, query in (("\ud800", "q"), ("ana", "\ud800")):
        with pytest.raises(ProgrammingError):
            ledger.charge({"patients": Pure(TENTH)}, analyst=analyst, query=query)
    assert ledger.charge({}, analyst="ana", query="q") == ()
    assert ledger.list_entries() == ()


def test_a_closed_ledger_raises_interface_error(ledger: Ledger) -> None:
    """Closing twice is fine; using what is closed is an InterfaceError."""
    ledger.close()
    ledger.close()
    with pytest.raises(InterfaceError):
        ledger.list_states()


def test_a_fresh_state(ledger: Ledger) -> None:
    """Before the first charge the whole budget is there."""
    state = ledger.get_state("patients")
    assert (state.spent, state.limit) == (Charge(0, 0), Charge(Charge.UNIT, 0))
    assert state.queries == state.spent_epsilon == 0
    assert state.remaining_epsilon == state.epsilon == 1
    assert state.accountant == "pure"
    assert state.delta == 0


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(sorted(BUDGETS)),
            st.fractions(min_value=Fraction(1, 10**6), max_value=1).map(Pure),
            min_size=1,
        ),
        max_size=8,
    )
)
def test_any_sequence_spends_at_most_the_limit(asked: list[dict[str, Pure]]) -> None:
    """Totals are the sums of the admitted costs, never pass the limit, and refusals are needed."""
    ledger = open_ledger(":memory:", BUDGETS)
    sums = {table: Charge(0, 0) for table in BUDGETS}
    for charges in asked:
        quotes = ledger.dry_run(charges)
        try:
            for entry in ledger.charge(charges, analyst="ana", query="q"):
                sums[entry.table] += entry.spend
                assert entry.spent == sums[entry.table]
        except BudgetExhausted:
            assert not all(quote.fits for quote in quotes)
    for state in ledger.list_states():
        assert state.spent == sums[state.table]
        assert state.spent.is_within(state.limit)
    ledger.close()


def test_entries_form_a_chain(tmp_path: Path) -> None:
    """Each digest covers its own row and the previous digest."""
    ledger = open_ledger(tmp_path / "a.ledger", BUDGETS)
    for _ in range(3):
        ledger.charge({"visits": Pure(TENTH), "patients": Pure(TENTH)}, analyst="ana", query="q")
    ledger.close()
    connection = sqlite3.connect(tmp_path / "a.ledger")
    connection.row_factory = sqlite3.Row
    rows = [dict(row) for row in connection.execute("SELECT * FROM entries ORDER BY id")]
    connection.close()
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, 6]
    previous = FIRST_PREVIOUS
    for row in rows:
        assert row["previous"] == previous
        assert KeyedDigest().compute_digest(row) == row["digest"]
        assert KeyedDigest().compute_digest({**row, "loss": "0"}) != row["digest"]
        previous = row["digest"]


def test_the_ledger_tells_nothing_of_the_data(tmp_path: Path) -> None:
    """The same charges at the same time leave the same bytes: nothing random, nothing measured (A14)."""
    for name in ("a", "b"):
        ledger = open_ledger(tmp_path / name, BUDGETS, clock=noon)
        ledger.charge({"visits": Pure(TENTH), "patients": Pure(TENTH)}, analyst="ana", query="q")
        with pytest.raises(BudgetExhausted):
            ledger.charge({"patients": Pure(Fraction(1))}, analyst="ana", query="q")
        ledger.list_states()
        ledger.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_importing_accounting_leaves_sqlalchemy_alone() -> None:
    """`import dpsql` stays quick: SQLAlchemy loads when a ledger opens."""
    code = "import dpsql.privacy.accounting, sys; print('sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
