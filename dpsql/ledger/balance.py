"""The balance of an account: its spend on each partition, reservations, period and number of entries; and its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.budget_state import AccountKey, BudgetState, RemainingBudget
from dpsql.ledger.digest import compute_text_digest, to_canonical_json
from dpsql.ledger.protocol import Account, ReservationState
from dpsql.policy.request.loss import DisplayedFraction
from dpsql.privacy.accounting.events import NOTHING, Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges

# Reservations: amounts of an account that are charged as a whole first, and spent step by step afterwards.


@dataclass(frozen=True, slots=True)
class AccountReservation:
    """The reservation of an account by `holder`: at most `limit` on any partition, of which `parts` is spent.

    Claim: at every place, what all releases have spent is at most what the account counts as spent, however reservations are
    reserved, spent from and closed between other charges, even if these decisions depend on earlier answers.
    Why: a reservation counts whole from the moment it is reserved, and a charge within it is admitted only while the sum of those
    at any place is within the reservation. So what the account counts is never less than what was released, and the filter of the
    account admits nothing that the same filter without reservations would refuse. Closing returns the reservation minus the largest
    spend at any place of it, once, and nothing can be charged to it afterwards. This only needs sums that stay within a limit,
    which is how each accountant here is a filter for choices that depend on answers.
    Source: Rogers, Roth, Ullman, Vadhan 2016, Section 3 (filters); for the other accountants, the sources that they name.

    >>> held = AccountReservation("ana", Charge(5, 0)).with_charge(WHOLE, Charge(2, 0))
    >>> held.compute_remaining(), held.with_charge(WHOLE, Charge(4, 0)).is_within_limit
    (Charge(loss=3, delta=0), False)
    """

    holder: str
    limit: Charge
    parts: PartitionCharges = field(default_factory=PartitionCharges)

    def compute_remaining(self, box: Box = WHOLE) -> Charge:
        """Return what may still be charged to a box; for the whole table, what closing the reservation returns."""
        spent = self.parts.compute_largest_charge(box)
        return Charge(max(self.limit.loss - spent.loss, 0), max(self.limit.delta - spent.delta, 0))

    def with_charge(self, box: Box, charge: Charge) -> AccountReservation:
        """Return the reservation after a charge to a box, whether that fits or not."""
        return replace(self, parts=self.parts.with_charge(box, charge))

    @property
    def is_within_limit(self) -> bool:
        """Return whether no more is spent than was reserved."""
        return self.parts.compute_largest_charge().is_within(self.limit)

    def __str__(self) -> str:
        """Return the reservation as canonical JSON text: equal reservations have equal texts."""
        return to_canonical_json(
            {
                "holder": self.holder,
                "limit": _to_pair(self.limit),
                "base": _to_pair(self.parts.base),
                "cells": {str(box): _to_pair(own) for box, own in self.parts.cells.items()},
            }
        )

    @classmethod
    def parse(cls, text: str) -> AccountReservation:
        """Return the reservation that was written as `text`; IntegrityError for any other text."""
        try:
            data = json.loads(text)
            cells = {Box.parse(box): _parse_pair(own) for box, own in data["cells"].items()}
            found = cls(
                data["holder"], _parse_pair(data["limit"]), PartitionCharges(_parse_pair(data["base"]), cells)
            )
            known = str(found) == text
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, LossError):
            known = False
        if not known:
            raise IntegrityError("the text is not a reservation, as dpsql writes it", code="ledger_corrupt")
        return found


Reservations: TypeAlias = Mapping[int, AccountReservation]
"""The reservations of an account that are open, by the numbers of the entries that reserved them."""


def compute_reservations_digest(reservations: Reservations) -> str | None:
    """Return the digest of an account's open reservations, which entries state; None if there are none."""
    if not reservations:
        return None
    return compute_text_digest(
        to_canonical_json({str(number): str(each) for number, each in reservations.items()})
    )


def _to_pair(spend: Charge) -> list[str]:
    return [str(spend.loss), str(spend.delta)]


def _parse_pair(pair: Any) -> Charge:
    loss, delta = pair
    return Charge(int(loss), int(delta))


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance after `count` entries: the spend of each partition (`parts`) and open `reservations`, in a `period`.

    A reservation counts as spent as a whole. A period is text that sorts by time, and empty for a budget that never
    renews. `failures` counts the failed queries since the last unlock, in all periods.
    """

    parts: PartitionCharges = field(default_factory=PartitionCharges)
    count: int = 0
    period: str = ""
    reservations: Reservations = field(default_factory=dict)
    failures: int = 0

    @property
    def spent(self) -> Charge:
        """Return the largest spend over the partitions."""
        return self.parts.compute_largest_charge()

    def move_to_period(self, period: str, *, anew: bool = False) -> Balance:
        """Return the balance in a period: a later one begins without spends and reservations; an earlier one changes nothing.

        A reset begins `anew` in any period: after a clock that was ahead, the budget renews from the present period on. Charges of the
        later period count as charges before the reset.
        """
        begins = period > self.period or (anew and period != self.period)
        return replace(self, parts=PartitionCharges(), period=period, reservations={}) if begins else self

    def compute_remaining(self, limit: Charge, box: Box = WHOLE) -> Charge:
        """Return what may still be charged to a box."""
        spent = self.parts.compute_largest_charge(box)
        return Charge(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def compute_partitions_digest(parts: PartitionCharges) -> str | None:
    """Return the digest of the charges of each partition, which entries state; None if only the whole table was charged."""
    if not parts.cells:
        return None
    return compute_text_digest(
        to_canonical_json(
            {box: [str(own.loss), str(own.delta)] for box, own in to_charges_by_box(parts).items()}
        )
    )


def to_charges_by_box(parts: PartitionCharges) -> dict[str, Charge]:
    """Return the charges of each box, and of the whole table, by the box's text; {} if only the whole table was charged."""
    if not parts.cells:
        return {}
    return {**parts.compute_charges_by_text(), str(WHOLE): parts.base}


def from_charges_by_box(rows: dict[str, Charge]) -> PartitionCharges:
    """Return the spend that `to_charges_by_box` wrote as these rows."""
    cells = {Box.parse(text): own for text, own in rows.items()}
    base = cells.pop(WHOLE, NOTHING)
    return PartitionCharges(base, cells)


def compute_budget_state(
    key: AccountKey, account: Account, balance: Balance, failures: int, *, locked: bool
) -> BudgetState:
    """Return the state of an account at a table with this number of failures; it follows from the policy and the entries."""
    spent, budget, accountant = balance.spent, account.budget, account.accountant
    return BudgetState(
        table=key.table,
        accountant=budget.accountant,
        epsilon=DisplayedFraction(budget.epsilon),
        delta=DisplayedFraction(budget.delta),
        spent=spent,
        limit=account.limit,
        queries=balance.count,
        remaining_epsilon=DisplayedFraction(accountant.compute_remaining_epsilon(spent, account.limit)),
        spent_epsilon=DisplayedFraction(
            accountant.compute_spent_epsilon(spent, budget.delta, budget.selection), up=True
        ),
        analyst=key.analyst,
        renewal=budget.renewal,
        period=balance.period,
        failures=failures,
        locked=locked,
    )


def compute_remaining_budget(key: AccountKey, account: Account, balance: Balance) -> RemainingBudget:
    """Return the remaining budget of an account."""
    spent = balance.spent
    remaining = DisplayedFraction(account.accountant.compute_remaining_epsilon(spent, account.limit))
    return RemainingBudget(key.table, key.analyst, account.budget.accountant, spent, account.limit, remaining)


def list_reservation_states(balances: Mapping[AccountKey, Balance]) -> tuple[ReservationState, ...]:
    """Return the open reservations of accounts, in the order of their numbers."""
    found = (
        ReservationState(number, key, each.holder, each.limit, each.compute_remaining())
        for key, balance in balances.items()
        for number, each in balance.reservations.items()
    )
    return tuple(sorted(found, key=lambda state: (state.number, state.key)))


# The effect of each kind of entry on the balance of its account.


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
