"""The whole check of a ledger, entry by entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from dpsql.accounting.spend import NOTHING
from dpsql.errors import IntegrityError
from dpsql.ledger.balance import parts_rows
from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import Seal
from dpsql.ledger.protocol import AccountKey, Head
from dpsql.ledger.releases import require_stored
from dpsql.ledger.rows import START
from dpsql.ledger.stores.base import Store
from dpsql.ledger.tables import require_holds, rows_from, stored_accounts, stored_parts, stored_slices
from dpsql.ledger.uninterrupted import uninterrupted

_SLICE = 5000  # entries of one transaction, so that the log need not grow while a long history is read


def walked(store: Store, seal: Seal, kept: Head = START) -> Chain:
    """The chain of all entries, from the first on, and of all stored releases; what is added meanwhile is checked too.

    `stored` of what is returned is where the stored releases end. Raises IntegrityError (`ledger_tampered`) with the number of the first entry that is not what dpsql wrote;
    (`ledger_rolled_back`) where the head `kept` is not part of the ledger.
    """
    chain, marks, ended = Chain(), dict[int, str](), False
    while not ended:
        chain, ended = uninterrupted(partial(_followed, chain, marks, store, seal, kept))
    return chain


def _followed(
    chain: Chain, marks: dict[int, str], store: Store, seal: Seal, kept: Head
) -> tuple[Chain, bool]:
    """The chain with the next entries, whose ends of stored releases are added to `marks`.

    At its end, where all that is kept besides follows from it, with the end of the stored releases.
    """
    with store.transaction(write=False) as connection:
        budgets = {key: str(row["digest"]) for key, row in stored_accounts(connection, seal).items()}
        rows = rows_from(connection, chain.head.entries + 1, _SLICE)
        chain = chain.followed(rows, seal, budgets.get)
        for stored in {row["stored"] for row in rows if row["stored"] is not None}:
            mark = Head.parse(stored)
            marks[mark.entries] = mark.digest
        if rows:
            return chain, False
        _require_kept(connection, chain)
        require_holds(connection, kept, store.where)
        return replace(chain, stored=require_stored(connection, seal, chain.claims, marks)), True


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
