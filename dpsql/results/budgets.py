"""The state of budgets as a table for people; remaining budgets are rounded down."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from dpsql.policy.request.loss import format_rounded
from dpsql.results.rendering import format_table

if TYPE_CHECKING:
    from dpsql.ledger import BudgetState, RemainingBudget

BUDGET_HEADS = ("accountant", "ε", "δ", "queries", "spent ε", "left", "next query ε ≤")


def format_budget_cells(state: BudgetState) -> tuple[str, ...]:
    """Return the name of a budget and the cells under `BUDGET_HEADS`."""
    return (
        f"{state.name}, {state.renewal} ({state.period})" if state.renewal else state.name,
        state.accountant,
        format_rounded(state.epsilon, 6),
        format_rounded(state.delta, 6),
        f"{state.queries:,}",
        format_rounded(state.spent_epsilon, up=True),
        f"{compute_remaining_percent(state)}%",
        format_rounded(state.remaining_epsilon),
    )


def compute_remaining_percent(state: BudgetState | RemainingBudget) -> int:
    """Return the remaining part of a budget's loss, in whole percent, rounded down."""
    left = max(state.limit.loss - state.spent.loss, 0)
    return 100 * left // state.limit.loss if state.limit.loss else 0


class Budgets(dict[str, "BudgetState"]):
    """The states of budgets by the names of their accounts, which print as a table."""

    def __str__(self) -> str:
        heads = ("table", *BUDGET_HEADS)
        numbers = (False, False, *(True for _ in BUDGET_HEADS[1:]))
        return "\n".join(
            format_table(heads, [format_budget_cells(state) for state in self.values()], numbers)
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
