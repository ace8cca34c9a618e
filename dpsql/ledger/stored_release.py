"""Stored releases: public results that a later query replays, combines or refines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NewRelease:
    """A release to store: its two fingerprints, its text, and the number of the release that it refines, if any.

    `statistic` identifies the statistic, `measurement` the statistic and its noise. One that is stored `once` is left out
    where one of the same fingerprints is stored already.
    """

    statistic: str
    measurement: str
    body: str
    refines: int | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The stored release `number`; `entry` is the first ledger entry of the charge that paid for it.

    `is_refined` says that it may not be refined any more: a refinement of it was charged, whether or not that was
    released, or an owner has reset a budget since.
    """

    number: int
    entry: int
    release: NewRelease
    is_refined: bool
