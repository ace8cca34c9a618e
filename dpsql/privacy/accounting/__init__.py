"""Privacy accounting: events, and the accountants that interpret them."""

from __future__ import annotations

from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant, get_accountant
from dpsql.privacy.accounting.composition import ComparedCharge, compare
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Charge,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
)

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
