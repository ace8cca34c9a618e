"""Claims: which stored releases the entries of the chain have paid to refine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dpsql.ledger.digest import Row, compute_text_digest, to_canonical_json


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
