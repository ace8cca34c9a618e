"""The releases that a ledger keeps, in its database.

Each row has a digest of its own, as entries have, and names the entry that paid for it by its digest: a row that was
edited, or belongs to another ledger's past, is an IntegrityError. One that is missing is asked for anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select

from dpsql.accounting.kept import KeptRelease, NewRelease
from dpsql.accounting.schema import ENTRIES, REFINEMENTS, RELEASES
from dpsql.accounting.seal import Seal
from dpsql.errors import IntegrityError, OperationalError

_NUMBERED = (
    select(RELEASES, ENTRIES.c.digest.label("paid"), REFINEMENTS.c.base)
    .select_from(RELEASES)
    .outerjoin(ENTRIES, ENTRIES.c.id == RELEASES.c.entry)
    .outerjoin(REFINEMENTS, REFINEMENTS.c.base == RELEASES.c.number)
    .order_by(RELEASES.c.number)
)


def kept_releases(connection: Connection, seal: Seal, statistic: str) -> Iterator[KeptRelease]:
    """All that is kept of a statistic, oldest first; IntegrityError (`ledger_tampered`) for what was changed."""
    rows = []
    for *own, paid, base in connection.execute(_NUMBERED.where(RELEASES.c.statistic == statistic)):
        row = dict(zip(RELEASES.columns.keys(), own, strict=True))
        if not seal.holds(row) or paid != row["entry_digest"]:
            raise _changed(row["number"])
        rows.append((row, base))
    reset = _last_reset(connection) if rows else 0
    # A refinement that was released says so itself.
    refined = {base for _, base in rows} | {row["refines"] for row, _ in rows}
    for row, _ in rows:
        released = NewRelease(row["statistic"], row["measurement"], row["body"], row["refines"])
        yield KeptRelease(
            row["number"], row["entry"], released, row["number"] in refined or row["entry"] < reset
        )


def keep_releases(
    connection: Connection, seal: Seal, releases: Sequence[NewRelease], entry: int, digest: str
) -> None:
    """Adds releases that an entry has paid for."""
    last = connection.execute(select(func.max(RELEASES.c.number))).scalar() or 0
    rows: list[dict[str, Any]] = []
    for number, released in enumerate(releases, last + 1):
        row: dict[str, Any] = {
            "number": number,
            "statistic": released.statistic,
            "measurement": released.measurement,
            "entry": entry,
            "entry_digest": digest,
            "refines": released.refines,
            "body": released.body,
        }
        rows.append(row | {"digest": seal.digest(row)})
    connection.execute(insert(RELEASES), rows)


def claim_refinements(connection: Connection, bases: Sequence[int], entry: int) -> None:
    """Notes that an entry pays for the refinement of these releases, each of which is refined once at most.

    Raises OperationalError (`release_refined`) where another was quicker: two refinements of one release would
    together cost more than the two differences. And where a budget was begun anew meanwhile: what comes after is
    guaranteed for itself, with nothing paid before it.
    """
    if not bases:
        return
    charged = select(REFINEMENTS.c.base).where(REFINEMENTS.c.base.in_(bases))
    released = select(RELEASES.c.refines).where(RELEASES.c.refines.in_(bases))
    paid = connection.execute(select(func.min(RELEASES.c.entry)).where(RELEASES.c.number.in_(bases))).scalar()
    known = paid is not None and _last_reset(connection) < paid
    if not known or connection.execute(charged.union_all(released)).first() is not None:
        raise OperationalError(
            "the answer that was to be refined has been refined at this moment; nothing was charged",
            code="release_refined",
            hint="ask again",
        )
    connection.execute(insert(REFINEMENTS), [{"base": base, "entry": entry} for base in bases])


def _last_reset(connection: Connection) -> int:
    found = connection.execute(select(func.max(ENTRIES.c.id)).where(ENTRIES.c.kind == "reset")).scalar()
    return int(found or 0)


def _changed(number: object) -> IntegrityError:
    return IntegrityError(
        f"release {number} of the ledger was changed",
        code="ledger_tampered",
        hint="restore the newest backup, and find out who can write the ledger",
    )
