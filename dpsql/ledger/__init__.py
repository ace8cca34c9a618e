"""The durable record of charges: accounts, entries, stored releases, and the errors that refuse a charge."""

from __future__ import annotations

from dpsql.ledger.anchor import AnchorFile
from dpsql.ledger.budget import Budget
from dpsql.ledger.open import open_ledger
from dpsql.ledger.protocol import BudgetState, Entry, Ledger, LedgerHead, Quote, RemainingBudget

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
