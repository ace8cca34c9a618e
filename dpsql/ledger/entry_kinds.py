"""The effect of each kind of entry on the balance of its account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from dpsql.ledger.balance import Balance
from dpsql.ledger.reservations import AccountReservation
from dpsql.privacy.accounting.charge import NOTHING, Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges

CHARGE, RESET, RESERVE, DRAW, RETURN = "charge", "reset", "reserve", "draw", "return"
FAILURE, UNLOCK, AMEND = "failure", "unlock", "amend"
RELEASED: Final = frozenset({CHARGE, DRAW})
"""The kinds of entries that pay for a release, which have an event."""


class EntryEffect(NamedTuple):
    """The effect of one entry: `actor` asks for it, and `reservation` is the number of the reservation that it makes, uses or ends."""

    kind: str
    charge: Charge = NOTHING
    box: Box = WHOLE
    reservation: int | None = None
    actor: str = ""


class InvalidEntryError(ValueError):
    """dpsql writes no such entry for such an account."""


def apply_effect(before: Balance, step: EntryEffect) -> Balance:
    """Return the balance after one more entry of its period, whether its spend fits or not.

    Raises InvalidEntryError for an unknown kind, a reservation that is not there, or not that analyst's, and for any other
    amount given back than all that is left of a reservation.
    """
    if step.kind not in _KINDS:
        raise InvalidEntryError(step.kind)
    return replace(_KINDS[step.kind](before, step), count=before.count + 1)


def _apply_charge(before: Balance, step: EntryEffect) -> Balance:
    _require_valid_entry(step.reservation is None)
    return replace(before, parts=before.parts.with_charge(step.box, step.charge))


def _apply_reset(before: Balance, step: EntryEffect) -> Balance:
    # The losses before and after a reset add up: a reservation of the old budget must not be spent in the new one.
    _require_valid_entry(step.reservation is None and step.charge == NOTHING and step.box == WHOLE)
    return replace(before, parts=PartitionCharges(), reservations={})


def _apply_reservation(before: Balance, step: EntryEffect) -> Balance:
    number = _get_reservation_number(step)
    _require_valid_entry(number not in before.reservations and step.box == WHOLE)
    reservations = {**before.reservations, number: AccountReservation(step.actor, step.charge)}
    return replace(before, parts=before.parts.with_charge(WHOLE, step.charge), reservations=reservations)


def _apply_draw(before: Balance, step: EntryEffect) -> Balance:
    number, held = _get_reservation(before, step)
    _require_valid_entry(held.holder == step.actor)
    return replace(
        before,
        reservations={**before.reservations, number: held.with_charge(step.box, step.charge)},
    )


def _apply_return(before: Balance, step: EntryEffect) -> Balance:
    number, held = _get_reservation(before, step)
    _require_valid_entry(step.charge == held.compute_remaining() and step.box == WHOLE)
    parts = PartitionCharges(before.parts.base - step.charge, before.parts.cells)
    rest = {other: each for other, each in before.reservations.items() if other != number}
    return replace(before, parts=parts, reservations=rest)


def _apply_failure(before: Balance, step: EntryEffect) -> Balance:
    _require_valid_entry(step.reservation is None and step.charge == NOTHING and step.box == WHOLE)
    return replace(before, failures=before.failures + 1)


def _apply_unlock(before: Balance, step: EntryEffect) -> Balance:
    _require_valid_entry(step.reservation is None and step.charge == NOTHING and step.box == WHOLE)
    return replace(before, failures=0)


def _apply_amendment(before: Balance, step: EntryEffect) -> Balance:
    # Only the limit changes: charges, reservations and failures stay.
    _require_valid_entry(step.reservation is None and step.charge == NOTHING and step.box == WHOLE)
    return before


def _get_reservation(before: Balance, step: EntryEffect) -> tuple[int, AccountReservation]:
    number = _get_reservation_number(step)
    _require_valid_entry(number in before.reservations)
    return number, before.reservations[number]


def _get_reservation_number(step: EntryEffect) -> int:
    if step.reservation is None:
        raise InvalidEntryError
    return step.reservation


def _require_valid_entry(fits: bool) -> None:
    if not fits:
        raise InvalidEntryError


_KINDS: Final[Mapping[str, Callable[[Balance, EntryEffect], Balance]]] = {
    CHARGE: _apply_charge,
    RESET: _apply_reset,
    RESERVE: _apply_reservation,
    DRAW: _apply_draw,
    RETURN: _apply_return,
    FAILURE: _apply_failure,
    UNLOCK: _apply_unlock,
    AMEND: _apply_amendment,
}
