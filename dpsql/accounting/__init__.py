"""What is spent: events, the accountants that interpret them, and the ledger that remembers."""

from __future__ import annotations

from dpsql.accounting.accountants import ACCOUNTANTS, Accountant, accountant_named
from dpsql.accounting.anchor import Anchor
from dpsql.accounting.budget import Budget
from dpsql.accounting.comparison import Charge, compare
from dpsql.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.accounting.ledger import BudgetState, Entry, Head, Ledger, Quote
from dpsql.accounting.opening import open_ledger
from dpsql.accounting.spend import Spend

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Anchor",
    "Approximate",
    "BoundedRange",
    "Budget",
    "BudgetState",
    "Charge",
    "Composed",
    "Entry",
    "Event",
    "Gaussian",
    "Head",
    "Ledger",
    "Pure",
    "Quote",
    "Selection",
    "Spend",
    "accountant_named",
    "compare",
    "open_ledger",
]
