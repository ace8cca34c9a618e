"""Reservations: amounts of an account that are charged as a whole first, and spent step by step afterwards.

Claim: at every place, what all releases have spent is at most what the account counts as spent, however reservations are
reserved, spent from and closed between other charges, even if these decisions depend on earlier answers.
Why: a reservation counts whole from the moment it is reserved, and a charge within it is admitted only while the sum of
those at any place is within the reservation. So what the account counts is never less than what was released, and the
filter of the account admits nothing that the same filter without reservations would refuse. Closing returns the reservation
minus the largest spend at any place of it, once, and nothing can be charged to it afterwards. This only needs
sums that stay within a limit, which is how each accountant here is a filter for choices that depend on answers.
Source: Rogers, Roth, Ullman, Vadhan 2016, Section 3 (filters); for the other accountants, the sources that they name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.digest import compute_text_digest, to_canonical_json
from dpsql.privacy.accounting.charge import Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges


@dataclass(frozen=True, slots=True)
class AccountReservation:
    """The reservation of an account by `holder`: at most `limit` on any partition, of which `parts` is spent.

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
        """Whether no more is spent than was reserved."""
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
