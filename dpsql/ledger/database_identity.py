"""The identity of the database that a ledger belongs to, as its entries hold it.

A text says it: "named:" and the owner's name, "file:" and a path, "postgresql:" and the numbers of a server and of a database
in it, "spark:" and the place of a schema in a catalogue, or "memory:" for frames and databases in memory, which nothing tells apart but an owner's name.
"""

from __future__ import annotations

from typing import Final

from dpsql.errors import PolicyError

NAMED: Final = "named:"
FILE: Final = "file:"
MEMORY: Final = "memory:"
POSTGRES: Final = "postgresql:"
SPARK: Final = "spark:"


def can_follow(before: str | None, after: str | None) -> bool:
    """Return whether a ledger of one database goes on as that of another: of the same, or once an owner has named it.

    >>> can_follow(None, "file:/a"), can_follow("file:/a", "named:a"), can_follow("named:a", "file:/a")
    (True, True, False)
    """
    if before is None or before == after:
        return True
    return after is not None and after.startswith(NAMED) and not before.startswith(NAMED)


def require_same_database(where: str, before: str | None, own: str | None) -> None:
    """Raise PolicyError (`another_database`) where a ledger is of another database than `own`; None is unknown."""
    if own is None or can_follow(before, own):
        return
    raise PolicyError(
        f"the ledger {where} belongs to the database {_describe_database(before)}, but this database is {_describe_database(own)}",
        code="another_database",
        hint="nothing was charged; use a separate ledger for each database; if this is the same database in another"
        " place, give it a permanent name in the policy: `database: NAME`",
    )


def _describe_database(identity: str | None) -> str:
    text = identity or ""
    if text.startswith(NAMED):
        return repr(text.removeprefix(NAMED))
    return "an unnamed one in memory" if text == MEMORY else text.removeprefix(FILE)
