"""Full verification of a ledger, entry by entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.protocol import Head
from dpsql.ledger.releases import require_stored
from dpsql.ledger.rows import START
from dpsql.ledger.stores.base import Store
from dpsql.ledger.tables import (
    budget_history,
    require_derived,
    require_holds,
    rows_from,
)
from dpsql.ledger.uninterrupted import uninterrupted

_BATCH = 5000  # entries of one transaction, so that the log need not grow while a long history is read


def verified_chain(store: Store, digests: KeyedDigest, expected: Head = START) -> Chain:
    """The chain of all entries, from the first on, and of all stored releases; what is added meanwhile is checked too.

    Its `stored` is the head of the stored releases. Raises IntegrityError (`ledger_tampered`) with the number of the first
    entry that is not what dpsql wrote; (`ledger_rolled_back`) where the head `expected` is not part of the ledger.
    """
    chain, marks, ended = Chain(), dict[int, str](), False
    while not ended:
        chain, ended = uninterrupted(partial(_followed, chain, marks, store, digests, expected))
    return chain


def _followed(
    chain: Chain, marks: dict[int, str], store: Store, digests: KeyedDigest, expected: Head
) -> tuple[Chain, bool]:
    """The chain with the next entries, whose heads of stored releases are added to `marks`.

    At the end of the entries it checks that all other tables follow from them, and adds the head of the stored releases.
    """
    with store.transaction(write=False) as connection:
        budgets = budget_history(connection, digests)
        rows = rows_from(connection, chain.head.entries + 1, _BATCH)
        chain = chain.followed(rows, digests, budgets.at)
        for stored in {row["stored"] for row in rows if row["stored"] is not None}:
            mark = Head.parse(stored)
            marks[mark.entries] = mark.digest
        if rows:
            return chain, False
        require_derived(connection, chain.balances)
        require_holds(connection, expected, store.where)
        return replace(chain, stored=require_stored(connection, digests, chain.claims, marks)), True
