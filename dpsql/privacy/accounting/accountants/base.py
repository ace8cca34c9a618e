"""The protocol of accountants, and their common parts.

An accountant interprets events and fixes a filter: the sum of the costs never passes the limit, whatever
the analyst asks and however the questions depend on earlier answers. It holds no state; the ledger
remembers. A new accountant is one file and one line of the registry, and inherits the law tests.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Protocol

from dpsql.errors import NotSupportedError, PolicyError
from dpsql.privacy.accounting.events import NOTHING, BoundedRange, Charge, Event, Gaussian, Pure

_SEARCH = Context(prec=50)
_SEARCH_STEPS = 30
_MOST_STEP = Decimal(40)
_LEAST_SLOPE = Decimal("0.5")
_NEAR = Decimal("1e-31")
_APART = 20  # bits: how near two numbers of units are whose secant is taken first


class Accountant(Protocol):
    """Interprets events as spends, and a budget as a limit of the sum of spends."""

    name: ClassVar[str]
    symbol: ClassVar[str]
    """The letter of the loss that it sums."""
    can_charge_difference: ClassVar[bool]
    """Whether the sum bounds the loss of each outcome, so that a refined release may be charged the difference."""

    def compute_limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Charge:
        """Return the most that may be spent so that everything together is (epsilon, delta)-DP, rounded down.

        `selection` is the part of delta for key selection; the default is the accountant's. Raises
        PolicyError where the accountant does not support such a budget.
        """
        ...

    def compute_charge(self, event: Event) -> Charge:
        """Return the spend of the event, rounded up; NotSupportedError if this accountant does not support it."""
        ...

    def find_gaussian_rho(self, epsilon: Fraction) -> Fraction | None:
        """Return the largest rho whose Gaussian release costs no more than an epsilon-DP one.

        None if Gaussian noise cannot be charged.
        """
        ...

    def compute_spent_epsilon(
        self, spend: Charge, delta: Fraction, selection: Fraction | None = None
    ) -> Fraction:
        """Return the ε that the spend amounts to under a budget with this delta, rounded up."""
        ...

    def compute_remaining_epsilon(self, spend: Charge, limit: Charge) -> Fraction:
        """Return the largest ε of one more ε-DP query that fits, in whole units; 0 if none does."""
        ...


def split_delta(delta: Fraction, selection: Fraction) -> tuple[Fraction, Fraction]:
    """Return (delta for conversion, delta for selection); raise PolicyError if the share exceeds the whole."""
    if not 0 <= selection <= delta < 1:
        raise PolicyError("the selection share must lie between 0 and delta", code="delta_split")
    return delta - selection, selection


def split_conversion_delta(
    name: str, delta: Fraction, selection: Fraction | None
) -> tuple[Fraction, Fraction]:
    """Return (delta for conversion, delta for selection), halves unless the share is stated.

    PolicyError (`delta_required`) if nothing is left to convert with, which the accountant of that `name` needs.
    """
    conversion, selection = split_delta(delta, delta / 2 if selection is None else selection)
    if conversion == 0:
        raise PolicyError(
            f"the accountant {name} needs a delta above 0",
            code="delta_required",
            hint="set a small delta such as 1e-7, or choose the accountant pure",
        )
    return conversion, selection


def compute_composed_charge(compute_charge: Callable[[Event], Charge], events: tuple[Event, ...]) -> Charge:
    """Return the sum of the parts' costs, each rounded up."""
    return sum(map(compute_charge, events), start=NOTHING)


def make_refusal_error(name: str, event: object) -> NotSupportedError:
    """Return the refusal of an event that the accountant of that `name` cannot charge."""
    return NotSupportedError(
        f"the accountant {name} cannot charge a {type(event).__name__} release",
        code="event_not_charged",
        hint="choose another mechanism, or another accountant when the ledger is made",
    )


@lru_cache(maxsize=1024)
def search_largest_epsilon(
    compute_charge: Callable[[Event], Charge], left: int, kind: type[Pure | BoundedRange | Gaussian] = Pure
) -> Fraction:
    """Return the largest ε in whole units whose event of that kind costs at most `left` units of loss.

    It searches on the cost itself, so it is right for any accountant whose cost grows with ε.
    """

    def compute_loss(units: int) -> int:
        return compute_charge(kind(Fraction(units, Charge.UNIT))).loss

    if compute_loss(1) > left:
        return Fraction(0)
    return Fraction(
        search_largest(lambda units: compute_loss(units) <= left, _guess_units(compute_loss, left)),
        Charge.UNIT,
    )


def search_largest(fits: Callable[[int], bool], near: int) -> int:
    """Return the largest n of 1 or more that fits, given that 1 fits and that numbers fit up to some n and not above; fast if `near` is close to n.

    >>> search_largest(lambda n: n * n <= 1000, near=30), search_largest(lambda n: n * n <= 1000, near=1000)
    (31, 31)
    """
    low = high = max(near, 1)
    step = 1
    if fits(near):
        while fits(high := low + step):
            low, step = high, 2 * step
    else:
        while (low := max(high - step, 1)) > 1 and not fits(low):
            high, step = low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _guess_units(loss: Callable[[int], int], left: int) -> int:
    """Estimate the number of units with that loss, by secants of logarithms, since losses are nearly powers."""
    target = _SEARCH.ln(Decimal(left))
    at, slope = Decimal(0), Decimal(2)
    off = _SEARCH.ln(Decimal(loss(Charge.UNIT))) - target
    for _ in range(_SEARCH_STEPS):
        step = max(min(-off / slope, _MOST_STEP), -_MOST_STEP)
        at, before = at + step, off
        off = _SEARCH.ln(Decimal(loss(_to_units(at)))) - target
        if abs(step) < _NEAR or off == before:
            break
        slope = max((off - before) / step, _LEAST_SLOPE)
    return _refine_units(loss, left, _to_units(at))


def _refine_units(loss: Callable[[int], int], left: int, near: int) -> int:
    """Return a number of units nearer to that loss than `near`: secants in whole numbers, as the logarithms are too coarse for it."""
    other = near - (near >> _APART)
    off, before = left - loss(near), left - loss(other)
    for _ in range(_SEARCH_STEPS):
        step = off * (near - other) // (before - off) if before != off else 0
        if abs(step) <= 1:
            break
        near, other, before = max(near + step, 1), near, off
        off = left - loss(near)
    return near


def _to_units(log_epsilon: Decimal) -> int:
    return max(int(_SEARCH.exp(log_epsilon) * Charge.UNIT), 1)
