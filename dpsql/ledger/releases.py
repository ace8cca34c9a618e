"""Stored releases in the database of a ledger, and the claims to refine them.

Claim: a replayed or refined release is one that was released and stored, and each release is refined once.
Why: the rows are a hash chain of their own. Each has a digest of all its columns, made with the ledger's key where
there is one, names the row before and the entry that paid for it by their digests, and each later entry of the ledger
holds the number and digest of the newest row. So a row that was edited, put in, or taken from another ledger, is an
IntegrityError where it is read, and `verify` walks all of them. The entries themselves hold the claims (`Claims`);
their table only repeats them. A missing row is measured and charged again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select

from dpsql.errors import IntegrityError, OperationalError
from dpsql.ledger.digest import KeyedDigest, Row, compute_text_digest
from dpsql.ledger.protocol import START, Entry, LedgerHead, NewRelease, ReleaseRecord
from dpsql.ledger.schema import ENTRIES, REFINEMENTS, RELEASES, RESTORE, Claims

_BATCH = 200  # releases at once, as their bodies may be long
_NEXT = RELEASES.alias("next")
_NUMBERED = (
    select(RELEASES, ENTRIES.c.digest.label("paid"), _NEXT.c.previous.label("link"))
    .select_from(RELEASES)
    .outerjoin(ENTRIES, ENTRIES.c.id == RELEASES.c.entry)
    .outerjoin(_NEXT, _NEXT.c.number == RELEASES.c.number + 1)
    .order_by(RELEASES.c.number)
)
_OF_STATISTIC = _NUMBERED.where(RELEASES.c.statistic == bindparam("statistic"))
_OF_MEASUREMENT = _OF_STATISTIC.where(RELEASES.c.measurement == bindparam("measurement"))
_NUMBER_OF_MEASUREMENT = (
    select(RELEASES.c.number)
    .where(RELEASES.c.statistic == bindparam("statistic"))
    .where(RELEASES.c.measurement == bindparam("measurement"))
    .limit(1)
)
_LAST_RESET = select(func.max(ENTRIES.c.id)).where(ENTRIES.c.kind == "reset")
_WITHOUT_BODY = [column for column in RELEASES.columns if column.name != "body"]
_LAST = select(*_WITHOUT_BODY).order_by(RELEASES.c.number.desc()).limit(1)


def read_release_head(connection: Connection, digests: KeyedDigest, vouched_head: LedgerHead) -> LedgerHead:
    """Return the number and digest of the newest stored release.

    `vouched_head`, which the last entry holds of it, where it is missing or was changed: no entry is to vouch for that.
    """
    last = connection.execute(_LAST).mappings().first()
    if last is None or last["number"] < vouched_head.entries or not digests.is_intact(dict(last)):
        return vouched_head
    return LedgerHead(last["number"], last["digest"])


def iterate_stored_releases(
    connection: Connection,
    digests: KeyedDigest,
    wanted: tuple[str, str | None],
    claims: Claims,
    vouched_head: LedgerHead,
) -> Iterator[ReleaseRecord]:
    """Yield the stored releases of a statistic, oldest first; raise IntegrityError (`ledger_tampered`) for a changed one.

    `wanted` is the statistic with the one measurement of it that is looked for, None for all of them. `claims` are
    those of the chain of entries, `vouched_head` is the newest release that the last entry holds.
    """
    statistic, measurement = wanted
    if measurement is None:
        found = connection.execute(_OF_STATISTIC, {"statistic": statistic}).all()
    else:
        found = connection.execute(
            _OF_MEASUREMENT, {"statistic": statistic, "measurement": measurement}
        ).all()
    if not found:
        return
    require_claim_count(connection, claims)
    rows = []
    for *own, paid, link in found:
        row = dict(zip(RELEASES.columns.keys(), own, strict=True))
        _require_intact(row, digests, paid)
        if link is not None and link != row["digest"]:
            raise _make_tampering_error(row["number"])
        if link is None and row["number"] < vouched_head.entries:
            raise _make_tampering_error(row["number"] + 1)
        if row["number"] == vouched_head.entries and row["digest"] != vouched_head.digest:
            raise _make_tampering_error(row["number"])
        rows.append(row)
    reset = _read_last_reset(connection)
    # A stored refinement names its base itself.
    refined = claims.entries.keys() | {row["refines"] for row in rows}
    for row in rows:
        released = NewRelease(row["statistic"], row["measurement"], row["body"], row["refines"])
        yield ReleaseRecord(
            row["number"], row["entry"], released, row["number"] in refined or row["entry"] < reset
        )


def store_releases(
    connection: Connection,
    digests: KeyedDigest,
    releases: Sequence[NewRelease],
    entry: Entry,
    vouched_head: LedgerHead,
) -> None:
    """Add releases that an entry has paid for; `vouched_head` is the newest release that the last entry holds."""
    last, end = connection.execute(_LAST).mappings().first(), vouched_head
    if last is not None and last["number"] >= vouched_head.entries:
        end = LedgerHead(last["number"], last["digest"])
    rows: list[dict[str, Any]] = []
    for released in releases:
        if released.once and _is_stored(connection, released, rows):
            continue
        row: dict[str, Any] = {
            "number": end.entries + 1,
            "statistic": released.statistic,
            "measurement": released.measurement,
            "entry": entry.id,
            "entry_digest": entry.digest,
            "refines": released.refines,
            "previous": end.digest,
            "body_digest": compute_text_digest(released.body),
        }
        row["digest"] = digests.compute_digest(row)
        rows.append(row | {"body": released.body})
        end = LedgerHead(row["number"], row["digest"])
    if rows:
        connection.execute(insert(RELEASES), rows)


def _is_stored(connection: Connection, released: NewRelease, rows: Sequence[Row]) -> bool:
    """Return whether a release of the same fingerprints is stored, or among the rows that are to be."""
    names = {"statistic": released.statistic, "measurement": released.measurement}
    new = any(all(row[name] == text for name, text in names.items()) for row in rows)
    return new or connection.execute(_NUMBER_OF_MEASUREMENT, names).first() is not None


def read_claims(connection: Connection) -> Claims:
    """Return the claims as their table repeats them; an entry vouches for them."""
    claims = Claims()
    for base, entry in connection.execute(
        select(REFINEMENTS).order_by(REFINEMENTS.c.entry, REFINEMENTS.c.base)
    ):
        claims = claims.with_claims((base,), entry)
    return claims


def require_claim_count(connection: Connection, claims: Claims) -> None:
    """Raise IntegrityError (`ledger_tampered`) unless as many claims are noted as the entries make."""
    if connection.execute(select(func.count()).select_from(REFINEMENTS)).scalar() != len(claims.entries):
        raise _make_claims_error()


def require_refinable(
    connection: Connection, bases: Sequence[int], claims: Claims, is_current: Callable[[int], bool]
) -> None:
    """Require that no release in `bases` was refined before, and that the charge of each `is_current`.

    Raises OperationalError (`release_refined`) if another query refined a release first: two refinements of one release
    would together cost more than the two differences. Also if a budget was reset or renewed meanwhile: the guarantee
    of the new period does not count earlier payments.
    """
    require_claim_count(connection, claims)
    released = select(RELEASES.c.refines).where(RELEASES.c.refines.in_(bases))
    known = connection.execute(select(RELEASES.c.entry).where(RELEASES.c.number.in_(bases))).scalars().all()
    paid = len(known) == len(set(bases)) and all(map(is_current, set(known)))
    if (
        not paid
        or not claims.entries.keys().isdisjoint(bases)
        or connection.execute(released).first() is not None
    ):
        raise OperationalError(
            "another query refined the same stored answer at this moment, or its budget was renewed",
            code="release_refined",
            hint="nothing was charged; run the query again",
        )


def write_claims(connection: Connection, bases: Iterable[int], entry: int) -> None:
    """Write the claims of an entry to their table."""
    connection.execute(insert(REFINEMENTS), [{"base": base, "entry": entry} for base in bases])


def verify_stored_releases(
    connection: Connection, digests: KeyedDigest, claims: Claims, vouched_digests: dict[int, str]
) -> LedgerHead:
    """Walk all stored releases and claims, and returns the newest release's number and digest.

    `claims` are those of all entries; `vouched_digests` are the digests of those releases that an entry has vouched for, by
    number. Raises IntegrityError (`ledger_tampered`) for whatever does not follow from the entries.
    """
    if read_claims(connection) != claims:
        raise _make_claims_error()
    end = START
    while rows := connection.execute(_NUMBERED.where(RELEASES.c.number > end.entries).limit(_BATCH)).all():
        for *own, paid, _ in rows:
            row = dict(zip(RELEASES.columns.keys(), own, strict=True))
            if row["number"] != end.entries + 1:
                raise _make_tampering_error(end.entries + 1, "is missing")
            if paid is None:
                raise _make_tampering_error(row["number"], f"names entry {row['entry']}, which is missing")
            _require_intact(row, digests, paid)
            if (
                row["previous"] != end.digest
                or vouched_digests.get(row["number"], row["digest"]) != row["digest"]
            ):
                raise _make_tampering_error(row["number"])
            end = LedgerHead(row["number"], row["digest"])
    if max(vouched_digests, default=0) > end.entries:
        raise _make_tampering_error(end.entries + 1, "is missing")
    return end


def _require_intact(row: dict[str, Any], digests: KeyedDigest, paid: object) -> None:
    digested: Row = {name: value for name, value in row.items() if name != "body"}
    if (
        not digests.is_intact(digested)
        or paid != row["entry_digest"]
        or _compute_body_digest(row["body"]) != row["body_digest"]
    ):
        raise _make_tampering_error(row["number"])


def _compute_body_digest(body: object) -> str | None:
    return compute_text_digest(body) if isinstance(body, str) else None


def _read_last_reset(connection: Connection) -> int:
    found = connection.execute(_LAST_RESET).scalar()
    return int(found or 0)


def _make_claims_error() -> IntegrityError:
    return IntegrityError(
        "the ledger's record of refined releases does not follow from its entries",
        code="ledger_tampered",
        hint=RESTORE,
    )


def _make_tampering_error(number: object, what: str = "was changed") -> IntegrityError:
    return IntegrityError(
        f"release {number} of the ledger {what}",
        code="ledger_tampered",
        hint=RESTORE,
    )
