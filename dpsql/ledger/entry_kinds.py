"""The effect of each kind of entry on the balance of its account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from dpsql.accounting.partitions.boxes import WHOLE, Box, PartitionSpend
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.ledger.balance import Balance
from dpsql.ledger.reservations import AccountReservation

CHARGE, RESET, RESERVE, DRAW, RETURN = "charge", "reset", "reserve", "draw", "return"
FAILURE, UNLOCK, AMEND = "failure", "unlock", "amend"
RELEASED: Final = frozenset({CHARGE, DRAW})
"""The kinds of entries that pay for a release, which have an event."""


Rule: TypeAlias = Callable[[PartitionSpend, Box, Spend], PartitionSpend]
"""Adds a charge to a box to the spend of the partitions."""


class EntryKind(NamedTuple):
    """The effect of one entry: `who` asks for it, and `reservation` is the number of the reservation that it makes, uses or ends.

    `rule` adds its spend to the partitions; entries of an older dpsql have another one.
    """

    kind: str
    spend: Spend = NOTHING
    box: Box = WHOLE
    reservation: int | None = None
    who: str = ""
    rule: Rule = PartitionSpend.charged


class NotAnEntryError(ValueError):
    """dpsql writes no such entry for such an account."""


def applied(before: Balance, step: EntryKind) -> Balance:
    """The balance after one more entry of its period, whether its spend fits or not.

    Raises NotAnEntryError for an unknown kind, a reservation that is not there, or not that analyst's, and for any other
    amount given back than all that is left of a reservation.
    """
    if step.kind not in _KINDS:
        raise NotAnEntryError(step.kind)
    return replace(_KINDS[step.kind](before, step), count=before.count + 1)


def _charged(before: Balance, step: EntryKind) -> Balance:
    _require(step.reservation is None)
    return replace(before, parts=step.rule(before.parts, step.box, step.spend))


def _reset(before: Balance, step: EntryKind) -> Balance:
    # The guarantee from now on comes on top of the one before: a reservation of the old budget must not be spent in it.
    _require(step.reservation is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, parts=PartitionSpend(), reservations={})


def _reserved(before: Balance, step: EntryKind) -> Balance:
    number = _number(step)
    _require(number not in before.reservations and step.box == WHOLE)
    reservations = {**before.reservations, number: AccountReservation(step.who, step.spend)}
    return replace(before, parts=before.parts.charged(WHOLE, step.spend), reservations=reservations)


def _drawn(before: Balance, step: EntryKind) -> Balance:
    number, held = _open(before, step)
    _require(held.holder == step.who)
    return replace(
        before, reservations={**before.reservations, number: held.drawn(step.box, step.spend, step.rule)}
    )


def _returned(before: Balance, step: EntryKind) -> Balance:
    number, held = _open(before, step)
    _require(step.spend == held.left() and step.box == WHOLE)
    parts = PartitionSpend(before.parts.base - step.spend, before.parts.cells)
    rest = {other: each for other, each in before.reservations.items() if other != number}
    return replace(before, parts=parts, reservations=rest)


def _failed(before: Balance, step: EntryKind) -> Balance:
    _require(step.reservation is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, failures=before.failures + 1)


def _unlocked(before: Balance, step: EntryKind) -> Balance:
    _require(step.reservation is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, failures=0)


def _amended(before: Balance, step: EntryKind) -> Balance:
    # The limit is another one; what was spent, reserved and has failed stays as it is.
    _require(step.reservation is None and step.spend == NOTHING and step.box == WHOLE)
    return before


def _open(before: Balance, step: EntryKind) -> tuple[int, AccountReservation]:
    number = _number(step)
    _require(number in before.reservations)
    return number, before.reservations[number]


def _number(step: EntryKind) -> int:
    if step.reservation is None:
        raise NotAnEntryError
    return step.reservation


def _require(fits: bool) -> None:
    if not fits:
        raise NotAnEntryError


_KINDS: Final[Mapping[str, Callable[[Balance, EntryKind], Balance]]] = {
    CHARGE: _charged,
    RESET: _reset,
    RESERVE: _reserved,
    DRAW: _drawn,
    RETURN: _returned,
    FAILURE: _failed,
    UNLOCK: _unlocked,
    AMEND: _amended,
}
