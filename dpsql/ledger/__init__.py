"""The durable record of charges: accounts, entries, stored releases, and the errors that refuse a charge."""

from __future__ import annotations

from dpsql.ledger.anchor import AnchorFile
from dpsql.ledger.budget import Budget
from dpsql.ledger.budget_state import BudgetState, Quote, RemainingBudget
from dpsql.ledger.open import open_ledger
from dpsql.ledger.protocol import Entry, Ledger, LedgerHead

__all__ = [
    "AnchorFile",
    "Budget",
    "BudgetState",
    "Entry",
    "Ledger",
    "LedgerHead",
    "Quote",
    "RemainingBudget",
    "open_ledger",
]
