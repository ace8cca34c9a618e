"""Privacy accounting: events, and the accountants that interpret them."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

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

_LEDGER = frozenset({"Anchor", "Budget", "BudgetState", "Entry", "Head", "Ledger", "Quote", "open_ledger"})
"""The names that `dpsql.ledger` has today."""


def __getattr__(name: str) -> Any:
    """A name that has moved to `dpsql.ledger`, with a DeprecationWarning; the old place goes with the next version.

    It is imported by its name, on demand: accounting lies below the ledger, and no import of it points upwards.
    """
    if name not in _LEDGER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"dpsql.accounting.{name} is now dpsql.ledger.{name}; the old name will be removed in the next version.",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module("dpsql.ledger"), name)
