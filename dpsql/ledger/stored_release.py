"""Releases as a ledger keeps them: public, so that whoever may ask may have them again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewRelease:
    """A release to keep: its two digests, its text, and the number of the one that it refines, if any.

    `statistic` says what was measured, `measurement` with which noise too.
    """

    statistic: str
    measurement: str
    body: str
    refines: int | None = None


@dataclass(frozen=True, slots=True)
class KeptRelease:
    """A release that was kept as `number`; `entry` is the first ledger entry of the charge that paid for it.

    `refined` says that it may not be refined any more: another was charged for as its refinement, whether or not that
    was released, or an owner has begun a budget anew since.
    """

    number: int
    entry: int
    released: NewRelease
    refined: bool
