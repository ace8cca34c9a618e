"""Privacy accounting: events, and the accountants that interpret them."""

from __future__ import annotations

from dpsql.accounting.accountants import ACCOUNTANTS, Accountant, get_accountant
from dpsql.accounting.comparison import ComparedCharge, compare
from dpsql.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.accounting.spend import Charge

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Approximate",
    "BoundedRange",
    "Charge",
    "ComparedCharge",
    "Composed",
    "Event",
    "Gaussian",
    "Pure",
    "Selection",
    "compare",
    "get_accountant",
]
