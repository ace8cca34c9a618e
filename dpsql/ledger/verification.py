"""Full verification of a ledger, entry by entry."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpsql.ledger.chain import Chain
from dpsql.ledger.digest import KeyedDigest
from dpsql.ledger.protocol import LedgerHead
from dpsql.ledger.releases import verify_stored_releases
from dpsql.ledger.rows import START
from dpsql.ledger.stores.base import Store
from dpsql.ledger.tables import (
    read_budget_history,
    read_rows_from,
    require_derived_rows,
    require_ledger_head,
)
from dpsql.ledger.uninterrupted_work import run_uninterrupted

_BATCH = 5000  # entries of one transaction, so that the log need not grow while a long history is read


def verify_chain(store: Store, digests: KeyedDigest, expected: LedgerHead = START) -> Chain:
    """Return the chain of all entries and stored releases, from the first on; entries added meanwhile are checked too.

    Its `stored_head` is the head of the stored releases. Raises IntegrityError (`ledger_tampered`) with the number of the first
    entry that is not what dpsql wrote; (`ledger_rolled_back`) where the head `expected` is not part of the ledger.
    """
    chain, marks, ended = Chain(), dict[int, str](), False
    while not ended:
        chain, ended = run_uninterrupted(partial(_verify_batch, chain, marks, store, digests, expected))
    return chain


def _verify_batch(
    chain: Chain, vouched_digests: dict[int, str], store: Store, digests: KeyedDigest, expected: LedgerHead
) -> tuple[Chain, bool]:
    """Return the chain with the next entries, whose heads of stored releases are added to `vouched_digests`.

    At the end of the entries it checks that all other tables follow from them, and adds the head of the stored releases.
    """
    with store.open_transaction(write=False) as connection:
        budgets = read_budget_history(connection, digests)
        rows = read_rows_from(connection, chain.head.entries + 1, _BATCH)
        chain = chain.follow_entries(rows, digests, budgets.find_budget_digest)
        for stored in {row["stored"] for row in rows if row["stored"] is not None}:
            mark = LedgerHead.parse(stored)
            vouched_digests[mark.entries] = mark.digest
        if rows:
            return chain, False
        require_derived_rows(connection, chain.balances)
        require_ledger_head(connection, expected, store.where)
        return replace(
            chain, stored_head=verify_stored_releases(connection, digests, chain.claims, vouched_digests)
        ), True
