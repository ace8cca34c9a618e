"""The whole check of a ledger, entry by entry."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from dpsql.accounting.chain import Chain
from dpsql.accounting.ledger import AccountKey
from dpsql.accounting.seal import Seal
from dpsql.accounting.spend import NOTHING
from dpsql.accounting.sql_tables import rows_from, stored_accounts, stored_parts, stored_slices
from dpsql.accounting.standing import parts_rows
from dpsql.accounting.store import Store
from dpsql.accounting.uninterrupted import uninterrupted
from dpsql.errors import IntegrityError

_SLICE = 5000  # entries of one transaction, so that the log need not grow while a long history is read


def walked(store: Store, seal: Seal) -> Chain:
    """The chain of all entries, from the first on; what is added meanwhile is checked too.

    Raises IntegrityError (`ledger_tampered`) with the number of the first entry that is not what dpsql wrote.
    """
    chain = Chain()
    while (longer := uninterrupted(partial(_followed, chain, store, seal))) is not None:
        chain = longer
    return chain


def _followed(chain: Chain, store: Store, seal: Seal) -> Chain | None:
    """The chain with the next entries; None at its end, where all that is kept besides follows from it."""
    with store.transaction(write=False) as connection:
        budgets = {key: str(row["digest"]) for key, row in stored_accounts(connection, seal).items()}
        rows = rows_from(connection, chain.head.entries + 1, _SLICE)
        if rows:
            return chain.followed(rows, seal, budgets.get)
        _require_kept(connection, chain)
        return None


def _require_kept(connection: Connection, chain: Chain) -> None:
    """What is kept of each part and slice follows from the entries, and nothing else is kept."""
    for key, standing in chain.standings.items():
        kept = stored_parts(connection, key)
        if parts_rows(kept) != parts_rows(standing.parts) or (not kept.cells and kept.base != NOTHING):
            raise _unfounded("parts", key)
        if stored_slices(connection, key) != standing.slices:
            raise _unfounded("slices", key)


def _unfounded(what: str, key: AccountKey) -> IntegrityError:
    return IntegrityError(
        f"what the ledger keeps of the {what} of {key} does not follow from its entries",
        code="ledger_tampered",
        hint="restore the newest backup, and find out who can write the ledger",
    )
