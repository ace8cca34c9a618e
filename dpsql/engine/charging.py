"""What is charged: quotes, the durable entry of a query with its receipt, the record of failures after it, and reservations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self, TypeVar

from dpsql.backends import Backend
from dpsql.engine.accuracy_targets import describe_affordable_target
from dpsql.engine.budgets import compute_epsilon_cap, require_below_cap
from dpsql.engine.engine import Engine, InterruptibleGroup, run_and_record
from dpsql.engine.loss_split import compute_proportional_delta
from dpsql.engine.query_run import PreparedRelease, QueryRun, describe_mechanisms
from dpsql.errors import (
    BackendError,
    BudgetExhausted,
    InternalError,
    LossError,
    OperationalError,
    ProgrammingError,
)
from dpsql.ledger import Quote
from dpsql.ledger.protocol import Account
from dpsql.ledger.quote import require_payable
from dpsql.ledger.workers import Interruptible
from dpsql.plan.nodes import list_private_tables
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy.request.loss import DisplayedFraction, Target
from dpsql.privacy.accounting import get_accountant
from dpsql.privacy.accounting.events import NOTHING, Composed, Event, Pure, Selection, to_json
from dpsql.results.result import Receipt
from dpsql.version import VERSION

# The receipt of a query: its text, mechanisms and charges, without a value of the answer.


def build_receipt(
    engine: Engine, run: QueryRun, measured: Sequence[MeasurementPlan] | None = None
) -> Receipt:
    """Return the receipt of a query that was charged as its entries say, or, without any, explained.

    `measured` are the plans of its releases with all that was chosen on the way.
    """
    event = run.event
    return Receipt(
        query=run.query.sql,
        plan=run.plan_digest,
        analyst=engine.analyst,
        privacy_unit=engine.policy.privacy_unit,
        neighbors=engine.policy.neighbors,
        data_version=engine.policy.data_version,
        policy=engine.policy_digest,
        mechanisms=tuple(
            run.mechanisms
            if measured is None
            else [mechanism for plan in measured for mechanism in describe_mechanisms(plan)]
        ),
        loss=None if event is None else json.loads(to_json(event)),
        entries=tuple(
            {
                "id": entry.id,
                "table": entry.table,
                "at": entry.at.isoformat(),
                "loss": str(entry.spend.loss_fraction),
                "delta": str(entry.spend.delta_fraction),
                "digest": entry.digest,
                **({} if entry.box is None else {"box": entry.box}),
                **({} if entry.reservation is None else {"slice": entry.reservation}),
                **({"account": entry.account_analyst} if entry.account_analyst else {}),
                **({"tables": entry.details["tables"]} if "tables" in entry.details else {}),
            }
            for entry in run.entries
        ),
        versions=collect_versions(engine.backend),
        constants=dict(run.constants),
        target=run.terms.to_target_record(),
        replayed=run.replayed_entries,
        refined=tuple(dict.fromkeys(base.entry for base in run.refinements)),
    )


def collect_versions(backend: Backend) -> dict[str, str]:
    """Return the versions of the engine, of dpsql and of its parser."""
    return {backend.name: backend.version, "dpsql": VERSION, "sqlglot": _get_parser_version()}


@cache
def _get_parser_version() -> str:
    try:
        return version("sqlglot")
    except PackageNotFoundError:
        return "unknown"


# The details of a charge in the ledger's entries, so that a receipt can be checked against them.


def build_charge_details(engine: Engine, prepared: QueryRun) -> dict[str, Any]:
    """Return the details of a charge, which follow from the query, the policy and earlier releases.

    `mechanisms` are drawn for this charge. `answered` is the noise of the answer, which differs if a part was released before, or
    is combined with an earlier release; `refinements` and `replayed_entries` are the entries that paid for that. `loss` is the
    event of all releases, if an entry has another. `tables` are those that a charge to the shared budget reads. `earlier_charges` are the charges of earlier steps towards the same target.
    """
    event, drawn, answered = prepared.event, prepared.drawn_mechanisms, prepared.mechanisms
    found: dict[str, Any] = {
        "plan": prepared.plan_digest,
        "data_version": engine.policy.data_version,
        "policy": engine.policy_digest,
        "mechanisms": drawn,
        "privacy_unit": engine.policy.privacy_unit,
        "neighbors": engine.policy.neighbors,
        "versions": collect_versions(engine.backend),
    }
    optional: dict[str, Any] = {
        "answered": None if answered == drawn else answered,
        "refines": [base.entry for base in prepared.refinements],
        "replayed": list(prepared.replayed_entries),
        "target": prepared.terms.to_target_record(),
        "steps": list(prepared.earlier_charges),
        "loss": None
        if event is None or all(bill.event == event for bill in prepared.table_charges)
        else json.loads(to_json(event)),
        "tables": list(prepared.tables) if engine.policy.budget.shared else [],
    }
    return found | {name: value for name, value in optional.items() if value}


# Reservations: a part of budgets that only the queries of one connection spend.


class Reservation:
    """A reserved part of the budgets of tables: until it ends, the connection's queries spend from it and from nothing else.

    It ends with `close`, at the end of a `with` block, and when the connection closes; what it has not spent is then returned.
    After a crash it stays reserved: `Connection.resume` continues it, `dpsql ledger return` ends it.
    """

    def __init__(self, number: int, engine: Engine, end: Callable[[], None]) -> None:
        self.number = number
        self._ledger = engine.ledger
        self._analyst = engine.analyst
        self._on_close = end
        self._is_closed = False

    def left(self) -> dict[str, Fraction]:
        """Return the ε of the largest query that still fits, by the names of the budgets, as `Connection.budget` has them.

        It is rounded down, and {} once the reservation has ended.
        """
        accountants = {state.key: get_accountant(state.accountant) for state in self._ledger.list_states()}
        return {
            state.key.name: DisplayedFraction(
                accountants[state.key].compute_remaining_epsilon(NOTHING, state.remaining)
            )
            for state in self._ledger.list_reservations()
            if state.number == self.number
        }

    def close(self) -> None:
        """Return to the budgets what is not spent, durably; a second call does nothing."""
        if not self._is_closed:
            self._ledger.close_reservation(self.number, by=self._analyst)
            self._is_closed = True
            self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reserve_budgets(
    engine: Engine,
    end: Callable[[], None],
    epsilon: Fraction,
    delta: Fraction | None,
    tables: Iterable[str] | None,
) -> Reservation:
    """Reserve of each account of these tables what a query of them would be charged; see `Connection.reserve`."""
    names = (
        engine.policy.list_private_tables()
        if tables is None
        else [_resolve_private_table(engine, name) for name in tables]
    )
    if not names:
        raise ProgrammingError("a reservation needs a private table, and there is none", code="slice_table")
    accounts = engine.get_accounts(names)
    charges = {name: _build_reserved_event(account, epsilon, delta) for name, account in accounts.items()}
    entries = engine.ledger.reserve(charges, analyst=engine.analyst, details=_build_details(engine, charges))
    return Reservation(entries[0].id, engine, end)


def resume_reservation(engine: Engine, end: Callable[[], None], number: int) -> Reservation:
    """Return the reservation with this number, which the engine's analyst holds; see `Connection.resume`."""
    found = engine.ledger.list_reservations()
    if not any(state.number == number and state.holder == engine.analyst for state in found):
        raise ProgrammingError(
            f"{engine.analyst!r} holds no open reservation {number}",
            code="slice_closed",
            hint="it has ended, or another analyst holds it; dpsql budget lists the open ones",
        )
    return Reservation(number, engine, end)


def _resolve_private_table(engine: Engine, name: str) -> str:
    found = engine.policy.find_table_name(name)
    if found is None or found not in engine.policy.list_private_tables():
        raise ProgrammingError(
            f"the policy has no private table {name}",
            code="slice_table",
            hint="name a private table of the policy",
        )
    return found


def _build_reserved_event(account: Account, epsilon: Fraction, delta: Fraction | None) -> Event:
    """Return the event that is reserved of an account: the loss, and the δ that belongs to it or was requested."""
    share = compute_proportional_delta(account, epsilon) if delta is None else delta
    if not 0 <= share < 1:
        raise LossError("delta is at least 0 and below 1")
    loss = Pure(epsilon)
    return Composed((loss, Selection(share))) if share else loss


def _build_details(engine: Engine, charges: Mapping[str, Event]) -> dict[str, object]:
    return {"policy": engine.policy_digest, "tables": sorted(charges)}


# The charge of a query: what may be charged, the durable entry, and the record of every failure after it.


_Outcome = TypeVar("_Outcome")


def require_payable_loss(engine: Engine, analyzed: QueryRun) -> None:
    """Refuse a loss above the caps of the tables that are read, or beyond the whole budget of one, before anything is planned for it.

    Raises QueryRejected or BudgetExhausted. A forecast is of any loss below the caps, and what is free has no limit.
    """
    options, loss = analyzed.options, analyzed.terms.loss
    if options.is_free:
        return
    require_below_cap(compute_epsilon_cap(engine.policy, analyzed.analyses), loss)
    if options.is_forecast or isinstance(loss, Target):
        return
    charged = [release for release, analysis in analyzed.analyses.items() if not analysis.is_free]
    read = (name for release in charged for name in list_private_tables(release.input))
    require_payable(engine.ledger, engine.get_accounts(read), loss, engine.analyst, engine.reservation)


def compute_quotes(engine: Engine, prepared: QueryRun) -> tuple[Quote, ...]:
    """Return the ledger's quotes for the charge at this moment; nothing is written."""
    return engine.ledger.dry_run(
        prepared.table_charges, analyst=engine.analyst, reservation=engine.reservation
    )


def require_bindable(engine: Engine, prepared: QueryRun) -> None:
    """Refuse a query that the database cannot bind, so that no query is charged and then not answered.

    Raises OperationalError, with constant text. Nothing is run.
    """
    charged = (part for part in prepared.releases if part.event is not None)
    if not all(engine.backend.can_bind(part.statement.sql, part.statement.held_queries) for part in charged):
        raise OperationalError(
            "the database cannot bind the statement of the query; nothing was charged",
            code="unbound",
            hint="reconnect if a table or view has changed since the connection was opened",
        )


def charge_query(engine: Engine, prepared: QueryRun) -> QueryRun:
    """Charge a query durably, before anything private is read, and return it with its entries: none for a free query.

    Raises:
        BudgetExhausted: if a table has too little budget left; nothing is charged then.
        OperationalError: if the database cannot bind the statements, or the statement was stopped.
    """
    if not prepared.table_charges:
        return prepared  # only keys are released, and all are public
    require_bindable(engine, prepared)
    engine.stops.require_not_stopped()
    engine.stops.begin_charge()
    try:
        entries = engine.ledger.charge(
            prepared.table_charges,
            analyst=engine.analyst,
            query=prepared.query.sql,
            details=build_charge_details(engine, prepared),
            refines=[base.number for base in prepared.refinements],
            reservation=engine.reservation,
        )
    except BudgetExhausted as error:
        error.hint = _describe_affordable_target(engine, prepared, error.code) or error.hint
        raise
    charged = replace(prepared, entries=entries)
    engine.stops.note_charge(_make_failure_recorder(engine, charged))
    return charged


def _describe_affordable_target(engine: Engine, prepared: QueryRun, code: str) -> str | None:
    target = prepared.terms.target
    if target is None or target.relative_error is not None or code != BudgetExhausted.code:
        return None
    return describe_affordable_target(engine, prepared, target, compute_quotes(engine, prepared))


def run_after_charge(
    engine: Engine, charged: QueryRun, work: Callable[[], _Outcome], *beside: Interruptible
) -> _Outcome:
    """Return the result of `work`, which is all that follows a charge; see `dpsql.engine.engine.run_and_record`.

    Claim: no error before the charge says anything about private rows, and each failure after it is recorded, so that failures that
    depend on rows lock the table.
    Why: limits, budgets and bound statements follow from public metadata. What follows a charge runs as `work`, and who ends it is
    recorded; a failure of the engine or of the noise is recorded by `record_release_failures`.
    """
    record = _make_failure_recorder(engine, charged) if charged.entries else None
    return run_and_record(InterruptibleGroup((engine.backend, *beside)), work, record, engine.stops)


def _make_failure_recorder(engine: Engine, charged: QueryRun) -> Callable[[str], None]:
    """Return a function that records a failure after the charge, with a code, for all tables of the statement."""
    return lambda code: record_failure(engine, charged, charged.tables, code)


@contextmanager
def record_release_failures(engine: Engine, charged: QueryRun, part: PreparedRelease) -> Iterator[None]:
    """Record a failure of the engine or of the noise of a release in the ledger, where it counts towards a lock."""
    try:
        yield
    except (BackendError, InternalError) as error:
        record_failure(engine, charged, part.tables, error.code)
        raise


def record_failure(engine: Engine, charged: QueryRun, tables: Sequence[str], code: str) -> None:
    """Record a failure after a charge, if there was one; it counts towards a lock."""
    if charged.entries:
        engine.ledger.record_failure(
            [*engine.get_accounts(tables)],
            charged.entries[0],
            analyst=engine.analyst,
            query=charged.query.sql,
            code=code,
        )
