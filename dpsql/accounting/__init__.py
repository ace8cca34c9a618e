"""Privacy accounting: events, and the accountants that interpret them."""

from __future__ import annotations

from dpsql.accounting.accountants import ACCOUNTANTS, Accountant, accountant_named
from dpsql.accounting.comparison import Charge, compare
from dpsql.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.accounting.spend import Spend

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Approximate",
    "BoundedRange",
    "Charge",
    "Composed",
    "Event",
    "Gaussian",
    "Pure",
    "Selection",
    "Spend",
    "accountant_named",
    "compare",
]
