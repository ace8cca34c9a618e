"""The charge of a query: what may be charged, the durable entry, and the record of every failure after it.

Claim: no error before the charge says anything about private rows, and each failure after it is recorded, so that failures that
depend on rows lock the table.
Why: limits, budgets and bound statements follow from public metadata. What follows a charge runs in `run_after_charge`, which
records why somebody ended it; a failure of the engine or of the noise is recorded by `record_release_failures`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from dpsql.engine.accuracy_targets import describe_affordable_target
from dpsql.engine.budgets import compute_epsilon_cap, require_below_cap
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PreparedRelease, QueryRun
from dpsql.engine.receipts import build_charge_details
from dpsql.engine.stop_requests import InterruptibleGroup, run_and_record
from dpsql.errors import BackendError, BudgetExhausted, InternalError, OperationalError
from dpsql.ledger import Quote
from dpsql.ledger.refusal import require_payable
from dpsql.ledger.workers import Interruptible
from dpsql.plan.nodes import list_private_tables
from dpsql.policy.request.target import Target

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
    accounts = {
        name: engine.get_account(name) for release in charged for name in list_private_tables(release.input)
    }
    require_payable(engine.ledger, accounts, loss, engine.analyst, engine.reservation)


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
    """Return the result of `work`, which is all that follows a charge; see `dpsql.engine.stop_requests.run_and_record`."""
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
            tables, charged.entries[0], analyst=engine.analyst, query=charged.query.sql, code=code
        )
