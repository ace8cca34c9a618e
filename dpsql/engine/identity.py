"""Which database is asked: by the name that its owner gave it in the policy, else by what the engine says of it.

Claim: a release is answered again, or refined, for the database that it was made from alone.
Why: the mark enters the digests by which releases are found. A name is its owner's word. Without one, the mark of a file
is its path and its inode, that of what is in memory a random number of the connection; a schema, or a policy, is no part
of it, as many databases may share one.
"""

from __future__ import annotations

from dpsql.backends import Backend
from dpsql.ledger.identity import NAMED
from dpsql.policy import Policy


def find_ledger_identity(policy: Policy, backend: Backend) -> str | None:
    """What a ledger keeps of which database it is of; None for one without data."""
    if backend.database_identity is None:
        return None
    return backend.database_identity.ledger_text if policy.database is None else NAMED + policy.database


def get_database_mark(policy: Policy, backend: Backend) -> str:
    """What tells a database from every other, as far as its owner or the engine can say."""
    if policy.database is not None:
        return NAMED + policy.database
    return "" if backend.database_identity is None else backend.database_identity.instance_mark
