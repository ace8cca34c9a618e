"""The cost of a planned workload, before any of it is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.engine import notices
from dpsql.engine.charging import compute_quotes, require_bindable
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import QueryRejected
from dpsql.ledger import BudgetState, Quote
from dpsql.ledger.protocol import TableCharge
from dpsql.plan.nodes import OuterQuery
from dpsql.policy.request.loss import format_rounded
from dpsql.policy.request.query import Query, ResolvedQuery
from dpsql.privacy.accounting.events import Charge
from dpsql.results.rendering import format_table
from dpsql.sql.parse.scanner import remove_comments

_WIDTH = 48


def plan_for_forecast(engine: Engine, query: Query) -> QueryRun:
    """Prepare a query to show it and its charge, also if its loss is beyond the whole budget; nothing is charged.

    Raises QueryRejected if the query would be refused, OperationalError if the database cannot bind it.
    """
    prepared = plan_and_match(engine, query, PlanOptions(is_forecast=True))
    require_bindable(engine, prepared)
    return prepared


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """The cost of one query of a plan to one budget.

    `number` counts the plan's queries from 1. `epsilon` is the loss of the query, or the one that was found for its target.
    `share` is the part of the whole budget that it costs, and `times` how many such charges fit into the remaining budget. A free
    query, of public tables or answered before, has no `quote`.
    """

    number: int
    query: str
    epsilon: Fraction
    quote: Quote | None = None
    share: Fraction = Fraction(0)
    times: int | None = None

    def format_cells(self) -> tuple[str, ...]:
        """Return the query as a line of a table."""
        first = (str(self.number), _shorten_query(self.query))
        if self.quote is None:
            return (*first, "", "", "", "free")
        loss = format_rounded(self.epsilon, up=True)
        return (*first, self.quote.key.name, loss, _format_percent(self.share), f"{self.times:,} times")


@dataclass(frozen=True, slots=True)
class PlannedAccount:
    """The effect of a whole plan on the budget of a table, or on that of an analyst at it: `now`, and `after`."""

    now: BudgetState
    after: BudgetState

    @property
    def share(self) -> Fraction:
        """Return the part of the whole budget by which its spend grows."""
        return _compute_share(self.after.spent - self.now.spent, self.now.limit)

    @property
    def fits(self) -> bool:
        """Return whether the plan fits into the budget."""
        return self.after.spent.is_within(self.after.limit)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a plan: its queries one by one, and each budget that they spend together.

    It follows from the texts and public metadata alone: nothing private is read, nothing is charged or reserved, and queries that
    others run meanwhile are not in it. `notices` name, with the number of a query, what needs attention in its statement.
    """

    queries: tuple[PlannedQuery, ...]
    accounts: tuple[PlannedAccount, ...]
    notices: tuple[str, ...] = ()

    @classmethod
    def from_queries(cls, engine: Engine, plan: Sequence[QueryRun]) -> Forecast:
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
                    share=_compute_share(quote.charge, states[quote.key].limit),
                    times=_count_repetitions(quote.charge, quote.remaining),
                )
                for quote in quotes
            ] or [line]
        after = engine.ledger.compute_states_after(together, analyst=engine.analyst)
        accounts = (PlannedAccount(states[end.key], end) for end in after)
        messages = (
            f"{number}: {notice}"
            for number, prepared in enumerate(plan, 1)
            for notice in notices.list_statement_notices(prepared.outer)
        )
        return cls(tuple(queries), tuple(accounts), tuple(messages))

    @property
    def fits(self) -> bool:
        """Return whether the whole plan fits into the budgets."""
        return all(account.fits for account in self.accounts)

    def __str__(self) -> str:
        return "\n".join([*self._format_lines(), *self.notices])

    def _format_lines(self) -> Iterator[str]:
        if not self.accounts:
            yield "the plan costs nothing"
            return
        heads = ("", "query", "budget", "ε", "of budget", "fits")
        right = (True, False, False, True, True, True)
        yield from format_table(heads, [query.format_cells() for query in self.queries], right)
        yield ""
        yield from format_table(
            ("budget", "accountant", "the plan", "spent before", "after", "of ε", ""),
            [
                (
                    account.now.name,
                    account.now.accountant,
                    _format_percent(account.share),
                    f"ε {format_rounded(account.now.spent_epsilon, up=True)}",
                    f"ε {format_rounded(account.after.spent_epsilon, up=True)}",
                    format_rounded(account.now.epsilon, 6),
                    "fits" if account.fits else "does not fit",
                )
                for account in self.accounts
            ],
            (False, False, True, True, True, True, False),
        )


def _compute_share(spend: Charge, limit: Charge) -> Fraction:
    """Return the part of a limit that a spend takes, by its loss or by its δ, whichever is more."""
    pairs = ((spend.loss, limit.loss), (spend.delta, limit.delta))
    return max((Fraction(cost, whole) for cost, whole in pairs if whole), default=Fraction(0))


def _count_repetitions(spend: Charge, left: Charge) -> int:
    """Return how many times a spend fits into the remaining budget."""
    pairs = ((spend.loss, left.loss), (spend.delta, left.delta))
    return min(rest // cost for cost, rest in pairs if cost)


def _format_percent(share: Fraction) -> str:
    return f"{format_rounded(100 * share, up=True)}%" if share else "0%"


def _shorten_query(query: str) -> str:
    line = " ".join(remove_comments(query).split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
