"""The forecast of a plan of queries: what each costs, and what all leave of each budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpsql.ledger.budget_state import BudgetState, Quote
from dpsql.policy.request.loss import format_rounded
from dpsql.privacy.accounting.events import Charge
from dpsql.results.rendering import format_table
from dpsql.sql.parse.scanner import remove_comments

_WIDTH = 48


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
        return compute_share(self.after.spent - self.now.spent, self.now.limit)

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


def compute_share(spend: Charge, limit: Charge) -> Fraction:
    """Return the part of a limit that a spend takes, by its loss or by its δ, whichever is more."""
    pairs = ((spend.loss, limit.loss), (spend.delta, limit.delta))
    return max((Fraction(cost, whole) for cost, whole in pairs if whole), default=Fraction(0))


def _format_percent(share: Fraction) -> str:
    return f"{format_rounded(100 * share, up=True)}%" if share else "0%"


def _shorten_query(query: str) -> str:
    line = " ".join(remove_comments(query).split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
