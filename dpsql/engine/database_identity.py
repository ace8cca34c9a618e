"""The identity of a database: the name that its owner gave it in the policy, or else what the engine says about it.

Claim: a release is only replayed, or refined, for the database that it was made from.
Why: the identity enters the digests by which releases are found. A name is the owner's word. Without one, the identity of a
file is its path and its inode, and that of a database in memory is a random number of the connection. A schema or a policy
is not part of it, because many databases may share one.
"""

from __future__ import annotations

from dpsql.backends import Backend
from dpsql.ledger.database_identity import NAMED
from dpsql.policy import Policy


def find_ledger_identity(policy: Policy, backend: Backend) -> str | None:
    """Return the identity of the database that a ledger keeps; None for a database without data."""
    if backend.database_identity is None:
        return None
    return backend.database_identity.ledger_text if policy.database is None else NAMED + policy.database


def get_database_mark(policy: Policy, backend: Backend) -> str:
    """Return what distinguishes a database from every other, as far as its owner or the engine can say."""
    if policy.database is not None:
        return NAMED + policy.database
    return "" if backend.database_identity is None else backend.database_identity.instance_mark
