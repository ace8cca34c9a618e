"""Budgets and entries as rows of text, and back; the digest that chains the entries."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from dpsql.accounting.budget import Budget
from dpsql.accounting.events import from_json
from dpsql.accounting.ledger import Account, Entry
from dpsql.accounting.spend import Spend
from dpsql.errors import IntegrityError, LossError, ProgrammingError

Row = Mapping[str, Any]
_WHOLE = re.compile(r"0|[1-9][0-9]{0,1999}")
_RATIO = re.compile(r"(0|[1-9][0-9]{0,1999})/([1-9][0-9]{0,1999})")

_RESTORE = "restore the newest backup, and find out who can write the ledger"
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)

FIRST_PREVIOUS = "0" * 64


def canonical(value: Mapping[str, Any]) -> str:
    """The value as JSON text, the same for equal values; ProgrammingError if JSON cannot hold it."""
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError, RecursionError):
        raise ProgrammingError("an entry's details must be JSON", code="ledger_details") from None


def text_digest(text: str) -> str:
    """The SHA-256 of the text's UTF-8 bytes, in hex; ProgrammingError if it has none."""
    try:
        return hashlib.sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise ProgrammingError("the text holds a lone surrogate", code="text") from None


def row_digest(row: Row) -> str:
    """The digest of an entry's or a budget's row: all of its columns but `digest`."""
    return text_digest(canonical({name: value for name, value in row.items() if name != "digest"}))


def is_intact(row: Row) -> bool:
    """Whether the row matches its digest."""
    try:
        return bool(row_digest(row) == row["digest"])
    except ProgrammingError:
        return False


def budget_row(table: str, account: Account) -> dict[str, Any]:
    """The row that keeps a table's budget and limit."""
    budget, limit = account.budget, account.limit
    row = {
        "table_name": table,
        "accountant": budget.accountant,
        "epsilon": _ratio_text(budget.epsilon),
        "delta": _ratio_text(budget.delta),
        "selection": None if budget.selection is None else _ratio_text(budget.selection),
        "limit_loss": str(limit.loss),
        "limit_delta": str(limit.delta),
    }
    return row | {"digest": row_digest(row)}


def stored_budget(row: Row) -> Budget:
    """The budget of a row; IntegrityError if it is not one that dpsql wrote."""
    if not is_intact(row):
        raise IntegrityError(
            f"the budget of table {row['table_name']} in the ledger was changed",
            code="ledger_tampered",
            hint=_RESTORE,
        )
    selection = row["selection"]
    try:
        return Budget(
            str(row["accountant"]),
            _ratio(row["epsilon"]),
            _ratio(row["delta"]),
            None if selection is None else _ratio(selection),
        )
    except LossError:
        raise _corrupt("budget") from None


def stored_spend(loss: object, delta: object) -> Spend:
    """The spend of two columns; IntegrityError if they are not whole numbers as dpsql writes them."""
    return Spend(_whole(loss), _whole(delta))


def stored_entry(row: Row) -> Entry:
    """The entry of a row; IntegrityError if it is not one that dpsql wrote."""
    if not is_intact(row):
        raise tampered(row["id"], "was changed")
    try:
        return Entry(
            id=int(row["id"]),
            charge=int(row["charge"]),
            at=datetime.fromisoformat(row["at"]),
            table=str(row["table_name"]),
            number=int(row["number"]),
            analyst=str(row["analyst"]),
            query=str(row["query"]),
            query_digest=str(row["query_digest"]),
            event=from_json(row["event"]),
            spend=stored_spend(row["loss"], row["delta"]),
            spent=stored_spend(row["spent_loss"], row["spent_delta"]),
            limit=stored_spend(row["limit_loss"], row["limit_delta"]),
            budget=str(row["budget"]),
            details=json.loads(row["details"]),
            previous=str(row["previous"]),
            digest=str(row["digest"]),
        )
    except (TypeError, ValueError, RecursionError):
        raise _corrupt("entry") from None


def tampered(number: int, what: str) -> IntegrityError:
    """The error for an entry that is not where or what it was."""
    return IntegrityError(f"entry {number} of the ledger {what}", code="ledger_tampered", hint=_RESTORE)


def _whole(text: object) -> int:
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise _corrupt("amount")
    return int(text)


def _ratio_text(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _ratio(text: object) -> Fraction:
    match = _RATIO.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _corrupt("budget")
    return Fraction(int(match[1]), int(match[2]))


def _corrupt(what: str) -> IntegrityError:
    return IntegrityError(
        f"the ledger holds something as {what} that dpsql did not write", code="ledger_corrupt"
    )
