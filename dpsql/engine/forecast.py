"""The cost of a planned workload, before any of it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsql.engine import notices
from dpsql.engine.charging import compute_quotes, require_bindable
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import QueryRejected
from dpsql.ledger.protocol import TableCharge
from dpsql.plan.nodes import OuterQuery
from dpsql.policy.request.query import Query, ResolvedQuery
from dpsql.privacy.accounting.events import Charge
from dpsql.results.forecast import Forecast, PlannedAccount, PlannedQuery, compute_share


def plan_for_forecast(engine: Engine, query: Query) -> QueryRun:
    """Prepare a query to show it and its charge, also if its loss is beyond the whole budget; nothing is charged.

    Raises QueryRejected if the query would be refused, OperationalError if the database cannot bind it.
    """
    prepared = plan_and_match(engine, query, PlanOptions(is_forecast=True))
    require_bindable(engine, prepared)
    return prepared


def forecast_queries(engine: Engine, plan: Sequence[QueryRun]) -> Forecast:
    """Return the forecast of queries that are run in this order."""
    states = {state.key: state for state in engine.ledger.list_states()}
    queries, together, asked = (
        list[PlannedQuery](),
        list[TableCharge](),
        set[tuple[OuterQuery, ResolvedQuery]](),
    )
    for number, prepared in enumerate(plan, 1):
        if prepared.terms.target is not None and prepared.terms.target.relative_error is not None:
            raise QueryRejected(
                "the cost of a relative target_error depends on the released values and is not known beforehand",
                code="relative_target",
                hint="forecast with the epsilon that it may cost, or with an absolute error",
            )
        # The second time it is answered as it was the first time.
        again = prepared.query.replay and (prepared.outer, prepared.terms) in asked
        asked.add((prepared.outer, prepared.terms))
        line = PlannedQuery(number, prepared.query.sql, prepared.terms.epsilon)
        quotes = () if again else compute_quotes(engine, prepared)
        together += prepared.table_charges if quotes else ()
        queries += [
            replace(
                line,
                quote=quote,
                share=compute_share(quote.charge, states[quote.key].limit),
                times=_count_repetitions(quote.charge, quote.remaining),
            )
            for quote in quotes
        ] or [line]
    after = engine.ledger.compute_states_after(together, analyst=engine.analyst)
    accounts = (PlannedAccount(states[end.key], end) for end in after)
    messages = (
        f"{number}: {notice}"
        for number, prepared in enumerate(plan, 1)
        for notice in notices.list_statement_notices(prepared.outer, prepared.notices)
    )
    return Forecast(tuple(queries), tuple(accounts), tuple(messages))


def _count_repetitions(spend: Charge, left: Charge) -> int:
    """Return how many times a spend fits into the remaining budget."""
    pairs = ((spend.loss, left.loss), (spend.delta, left.delta))
    return min(rest // cost for cost, rest in pairs if cost)
