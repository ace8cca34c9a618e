"""The tables of a ledger, for SQLAlchemy Core. Quantities are text: they pass 64 bits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.balance import RELEASED
from dpsql.ledger.budget import Budget
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import KeyedDigest, Row, compute_text_digest, to_canonical_json
from dpsql.ledger.protocol import Account, Entry, LedgerHead
from dpsql.privacy.accounting.events import Charge, Event, from_json, to_json

# Claims: which stored releases the entries of the chain have paid to refine.


@dataclass(frozen=True, slots=True)
class Claims:
    """The entry that claimed each release to refine it, by the release's number.

    Claim: a set of claims that lacks one, or has another, has another `digest`.
    Why: the digest is that of a hash chain over all claims in the order of their entries. Each entry holds the one
    after it, so that the last entry vouches for all claims (else SHA-256 has a collision).

    >>> first = Claims().with_claims((3,), 7)
    >>> first.digest == Claims().with_claims((3,), 8).digest, Claims().digest
    (False, None)
    """

    entries: Mapping[int, int] = field(default_factory=dict)
    digest: str | None = None

    def with_claims(self, releases: Iterable[int], entry: int) -> Claims:
        """Return the claims with those of one more entry; ValueError for a release that is claimed already."""
        entries, digest = dict(self.entries), self.digest
        for release in sorted(releases):
            if release in entries:
                raise ValueError(release)
            entries[release] = entry
            digest = compute_text_digest(
                to_canonical_json({"before": digest, "release": release, "entry": entry})
            )
        return Claims(entries, digest) if digest != self.digest else self


def to_claims_text(releases: Iterable[int]) -> str | None:
    """Return the numbers of the releases that an entry claims, as its column holds them; None if there are none."""
    listed = sorted(releases)
    return json.dumps(listed, separators=(",", ":")) if listed else None


def parse_claims(row: Row) -> tuple[int, ...]:
    """Return the numbers of the releases that an entry claims; raise ValueError for a text that `to_claims_text` did not write."""
    text = row["refines"]
    if text is None:
        return ()
    found = json.loads(text)
    if not isinstance(found, list) or not all(type(number) is int for number in found):
        raise ValueError(text)
    if to_claims_text(found) != text:
        raise ValueError(text)
    return tuple(found)


FORMAT = "dpsql ledger"
SCHEMA = "6"
"""The format of version 0.3.0, which is frozen when that is released."""

METADATA = MetaData()

META = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

ACCOUNTS = Table(
    "accounts",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("accountant", Text, nullable=False),
    Column("epsilon", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("selection", Text),
    Column("limit_loss", Text, nullable=False),
    Column("limit_delta", Text, nullable=False),
    Column("renewal", Text),
    Column("digest", Text, nullable=False),
)

# SQLite's INTEGER has 64 bits, and as a primary key it is the row's own number.
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

ENTRIES = Table(
    "entries",
    METADATA,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("charge", _NUMBER, nullable=False),
    Column("at", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("account_analyst", Text, nullable=False),
    Column("number", _NUMBER, nullable=False),
    Column("kind", Text, nullable=False),
    Column("period", Text, nullable=False),
    Column("box", Text),
    Column("parts", Text),
    Column("slice", _NUMBER),
    Column("slices", Text),
    Column("failures", _NUMBER),
    # The state of the whole ledger, apart from its entries, when the entry was written.
    Column("refines", Text),
    Column("claims", Text),
    Column("stored", Text),
    Column("database", Text),
    Column("analyst", Text, nullable=False),
    Column("query", Text, nullable=False),
    Column("query_digest", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("loss", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("spent_loss", Text, nullable=False),
    Column("spent_delta", Text, nullable=False),
    Column("limit_loss", Text, nullable=False),
    Column("limit_delta", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("entries_of_account", "table_name", "account_analyst", "id"),
    Index("entries_of_kind", "kind", "id"),
    Index("entries_of_analyst", "analyst", "kind", "id"),
)

PARTS = Table(
    "parts",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    # A box may be longer than a key can be.
    Column("box_digest", Text, primary_key=True),
    Column("box", Text, nullable=False),
    Column("loss", Text, nullable=False),
    Column("delta", Text, nullable=False),
)

SLICES = Table(
    "slices",
    METADATA,
    Column("table_name", Text, primary_key=True),
    Column("account_analyst", Text, primary_key=True),
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

RELEASES = Table(
    "releases",
    METADATA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("statistic", Text, nullable=False),
    Column("measurement", Text, nullable=False),
    Column("entry", _NUMBER, nullable=False),
    Column("entry_digest", Text, nullable=False),
    Column("refines", _NUMBER),
    Column("previous", Text, nullable=False),
    Column("body_digest", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Index("releases_of_statistic", "statistic", "number"),
)

REFINEMENTS = Table(
    "refinements",
    METADATA,
    Column("base", _NUMBER, primary_key=True, autoincrement=False),
    Column("entry", _NUMBER, nullable=False),
)


# Accounts and entries as rows of a database, and back.


_WHOLE = re.compile(r"0|[1-9][0-9]{0,1999}")
_RATIO = re.compile(r"(0|[1-9][0-9]{0,1999})/([1-9][0-9]{0,1999})")

RESTORE = "restore the newest backup, and find out who could change the ledger"
"""The hint of each error that says that a ledger was changed or damaged."""

_OPTIONAL_COLUMNS = ("box", "slice", "refines")


def get_account_key(row: Row) -> AccountKey:
    """Return the key of the account of a row."""
    return AccountKey(row["table_name"], row["account_analyst"])


def to_account_row(key: AccountKey, account: Account, digests: KeyedDigest) -> dict[str, Any]:
    """Return the row of an account's budget and limit."""
    budget, limit = account.budget, account.limit
    row = {
        "table_name": key.table,
        "account_analyst": key.analyst,
        "accountant": budget.accountant,
        "epsilon": _format_ratio(budget.epsilon),
        "delta": _format_ratio(budget.delta),
        "selection": None if budget.selection is None else _format_ratio(budget.selection),
        "limit_loss": str(limit.loss),
        "limit_delta": str(limit.delta),
        "renewal": budget.renewal,
    }
    return row | {"digest": digests.compute_digest(row)}


def parse_budget(row: Row, digests: KeyedDigest) -> Budget:
    """Return the budget of a row; raise IntegrityError if dpsql did not write it."""
    if not digests.is_intact(row):
        raise IntegrityError(
            f"the stored budget of {get_account_key(row)} in the ledger was changed",
            code="ledger_tampered",
            hint=RESTORE,
        )
    selection = row["selection"]
    try:
        return Budget(
            str(row["accountant"]),
            _parse_ratio(row["epsilon"]),
            _parse_ratio(row["delta"]),
            None if selection is None else _parse_ratio(selection),
            row["renewal"],
        )
    except LossError:
        raise _make_corruption_error("budget") from None


def make_common_columns(
    at: datetime, analyst: str, query: str, details: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the columns that all entries of a charge share."""
    compute_text_digest(analyst)
    return {
        "at": at.isoformat(timespec="microseconds"),
        "analyst": analyst,
        "query": query,
        "query_digest": compute_text_digest(query),
        "details": to_canonical_json(dict(details or {})),
    }


def make_entry_row(
    common: Row,
    after: LedgerHead,
    key: AccountKey,
    number: int,
    event: Event | None,
    *amounts: Mapping[str, str | int | None],
    digests: KeyedDigest,
) -> dict[str, Any]:
    """Return the row of the entry after `after`, the account's `number`-th.

    `common` has the columns that all entries of a charge share; `amounts` are columns of `to_charge_columns`.
    """
    row: dict[str, Any] = {**dict.fromkeys(_OPTIONAL_COLUMNS), **common}
    row |= {
        "id": after.entries + 1,
        "previous": after.digest,
        "number": number,
        "event": "" if event is None else to_json(event),
    }
    row |= {"table_name": key.table, "account_analyst": key.analyst}
    for columns in amounts:
        row |= columns
    return row | {"digest": digests.compute_digest(row)}


def get_row_head(row: Row) -> LedgerHead:
    """Return the head of a ledger that ends with this entry."""
    return LedgerHead(row["id"], row["digest"])


def to_charge_columns(prefix: str, spend: Charge) -> dict[str, str]:
    """Return the two columns of an amount."""
    return {f"{prefix}loss": str(spend.loss), f"{prefix}delta": str(spend.delta)}


def parse_charge(loss: object, delta: object) -> Charge:
    """Return the spend of two columns; IntegrityError if they are not whole numbers as dpsql writes them."""
    return Charge(_parse_integer(loss), _parse_integer(delta))


def parse_checked_entry(row: Row, digests: KeyedDigest) -> Entry:
    """Return the entry of a row; raise IntegrityError if dpsql did not write it."""
    if not digests.is_intact(row):
        raise make_tampering_error(row["id"], "was changed")
    return parse_entry(row)


def parse_entry(row: Row) -> Entry:
    """Return the entry of a row whose digest is known to be its own."""
    try:
        return Entry(
            id=int(row["id"]),
            charge=int(row["charge"]),
            at=datetime.fromisoformat(row["at"]),
            table=str(row["table_name"]),
            account_analyst=str(row["account_analyst"]),
            number=int(row["number"]),
            kind=str(row["kind"]),
            period=str(row["period"]),
            box=None if row["box"] is None else str(row["box"]),
            reservation=None if row["slice"] is None else int(row["slice"]),
            analyst=str(row["analyst"]),
            query=str(row["query"]),
            query_digest=str(row["query_digest"]),
            event=from_json(row["event"]) if row["event"] or row["kind"] in RELEASED else None,
            spend=parse_charge(row["loss"], row["delta"]),
            spent=parse_charge(row["spent_loss"], row["spent_delta"]),
            limit=parse_charge(row["limit_loss"], row["limit_delta"]),
            budget=str(row["budget"]),
            details=json.loads(row["details"]),
            previous=str(row["previous"]),
            digest=str(row["digest"]),
            failures=int(row["failures"] or 0),
            refines=parse_claims(row),
            database=None if row["database"] is None else str(row["database"]),
        )
    except (TypeError, ValueError, RecursionError):
        raise _make_corruption_error("entry") from None


def make_tampering_error(number: int, what: str) -> IntegrityError:
    """Return the error for an entry that was moved or changed."""
    return IntegrityError(f"entry {number} of the ledger {what}", code="ledger_tampered", hint=RESTORE)


def _parse_integer(text: object) -> int:
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise _make_corruption_error("amount")
    return int(text)


def _format_ratio(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _parse_ratio(text: object) -> Fraction:
    match = _RATIO.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _make_corruption_error("budget")
    return Fraction(int(match[1]), int(match[2]))


def _make_corruption_error(what: str) -> IntegrityError:
    return IntegrityError(
        f"the ledger holds an invalid {what}, which dpsql did not write", code="ledger_corrupt", hint=RESTORE
    )
