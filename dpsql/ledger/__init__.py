"""The durable record of what was charged: accounts, entries, stored releases, and what refuses a charge."""

from __future__ import annotations

from dpsql.ledger.anchor import Anchor
from dpsql.ledger.budget import Budget
from dpsql.ledger.open import open_ledger
from dpsql.ledger.protocol import BudgetLeft, BudgetState, Entry, Head, Ledger, Quote

__all__ = ["Anchor", "Budget", "BudgetLeft", "BudgetState", "Entry", "Head", "Ledger", "Quote", "open_ledger"]
