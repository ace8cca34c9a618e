"""What each kind of entry does to the account that it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from dpsql.accounting.partitions.boxes import WHOLE, Box, Parts
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.ledger.balance import Standing
from dpsql.ledger.reservations import Slice

CHARGE, RESET, RESERVE, DRAW, RETURN = "charge", "reset", "reserve", "draw", "return"
FAILURE, UNLOCK = "failure", "unlock"
RELEASED: Final = frozenset({CHARGE, DRAW})
"""The kinds of entries that pay for a release, and so have an event."""


Rule: TypeAlias = Callable[[Parts, Box, Spend], Parts]
"""How a charge to a box is added to what was spent on parts."""


class Step(NamedTuple):
    """One entry's doing: `who` asks for it, and `slice` is the number of the slice that it makes, uses or ends.

    `rule` is another one for an entry of an older dpsql.
    """

    kind: str
    spend: Spend = NOTHING
    box: Box = WHOLE
    slice: int | None = None
    who: str = ""
    rule: Rule = Parts.charged


class NotAStepError(ValueError):
    """No entry that dpsql writes does this to such an account."""


def stepped(before: Standing, step: Step) -> Standing:
    """Where an account stands after one more entry of its period, whether what it spends fits or not.

    Raises NotAStepError for an unknown kind, a slice that is not there, or not that analyst's, and for any other
    amount given back than all that is left of a slice.
    """
    if step.kind not in _KINDS:
        raise NotAStepError(step.kind)
    return replace(_KINDS[step.kind](before, step), count=before.count + 1)


def _charged(before: Standing, step: Step) -> Standing:
    _require(step.slice is None)
    return replace(before, parts=step.rule(before.parts, step.box, step.spend))


def _reset(before: Standing, step: Step) -> Standing:
    # What is guaranteed from now on comes on top of what was before: a slice of that must not be spent in this.
    _require(step.slice is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, parts=Parts(), slices={})


def _reserved(before: Standing, step: Step) -> Standing:
    number = _number(step)
    _require(number not in before.slices and step.box == WHOLE)
    slices = {**before.slices, number: Slice(step.who, step.spend)}
    return replace(before, parts=before.parts.charged(WHOLE, step.spend), slices=slices)


def _drawn(before: Standing, step: Step) -> Standing:
    number, held = _open(before, step)
    _require(held.holder == step.who)
    return replace(before, slices={**before.slices, number: held.drawn(step.box, step.spend, step.rule)})


def _returned(before: Standing, step: Step) -> Standing:
    number, held = _open(before, step)
    _require(step.spend == held.left() and step.box == WHOLE)
    parts = Parts(before.parts.base - step.spend, before.parts.cells)
    rest = {other: each for other, each in before.slices.items() if other != number}
    return replace(before, parts=parts, slices=rest)


def _failed(before: Standing, step: Step) -> Standing:
    _require(step.slice is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, failures=before.failures + 1)


def _unlocked(before: Standing, step: Step) -> Standing:
    _require(step.slice is None and step.spend == NOTHING and step.box == WHOLE)
    return replace(before, failures=0)


def _open(before: Standing, step: Step) -> tuple[int, Slice]:
    number = _number(step)
    _require(number in before.slices)
    return number, before.slices[number]


def _number(step: Step) -> int:
    if step.slice is None:
        raise NotAStepError
    return step.slice


def _require(fits: bool) -> None:
    if not fits:
        raise NotAStepError


_KINDS: Final[Mapping[str, Callable[[Standing, Step], Standing]]] = {
    CHARGE: _charged,
    RESET: _reset,
    RESERVE: _reserved,
    DRAW: _drawn,
    RETURN: _returned,
    FAILURE: _failed,
    UNLOCK: _unlocked,
}
