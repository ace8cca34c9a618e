"""Answers whose error is a part of each value: released with much noise first, then with as much less as it takes.

Claim: all steps together are charged at most what one release at the most that a query may ask for is charged, there
are at most `STEPS` of them, and they tell nothing but what they release.
Why: a step's loss is a function of what was released before it and of public metadata, and adaptive charges add up
under a filter, as the ledger is; those of one search are held below the most again. Where a step refines the one
before, it is charged the difference. Each loss is at least twice the one before, but for the first that is known to
do, which may be nearer.
Source: Rogers, Roth, Ullman, Vadhan 2016, section 5 (filters of adaptive charges); Koufogiannis, Han, Pappas 2016,
section 4 (gradual release); Ligett, Neel, Roth, Waggoner, Wu 2017, "Accuracy first".

Claim: with the target's probability the noise of a value is at most the target's part of what is released.
Why: the search ends on what it sees, so noise that makes a value seem large ends it too early: that is a miss on one
side, at the one step whose error the value's part is near, and adds a half to what is missed without it. So half-widths
are taken at a confidence that misses two thirds as often. tests/properties/test_relative.py measures it where it is worst.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting.accountants import Accountant
from dpsql.accounting.events import Composed, Event, Pure, to_json
from dpsql.accounting.partitions.boxes import Box
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.engine.accuracy import FIRST, Place, Search
from dpsql.engine.pipeline import Engine
from dpsql.engine.prepare import PreparedQuery
from dpsql.errors import BudgetExhausted, Error, QueryRejected
from dpsql.ledger import Quote
from dpsql.ledger.protocol import AccountKey
from dpsql.replay.combine import combinable
from dpsql.request.target import Target
from dpsql.result import Result

_Part = tuple[AccountKey, Box]
STEPS = FIRST.bit_length() + 2
_MISSED = Fraction(2, 3)
"""How often a half-width may be missed, over how often the target may."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A noisy value of an answer, and the half-width of its interval."""

    place: Place
    value: Fraction
    half: Fraction

    @classmethod
    def all_of(cls, result: Result, confidence: float) -> tuple[Cell, ...]:
        """The noisy values of an answer."""
        return tuple(
            cls((branch, column), Fraction(value), (Fraction(ends[1]) - Fraction(ends[0])) / 2)
            for branch, row, intervals in zip(
                result.branches, result.rows, result.intervals(confidence), strict=True
            )
            for column, (value, ends) in enumerate(zip(row, intervals, strict=True))
            if ends is not None and isinstance(value, (int, float, Decimal))
        )

    def met(self, share: Fraction) -> bool:
        """Whether the error is at most that part of the value."""
        return self.half <= share * abs(self.value)

    def near(self, share: Fraction) -> bool:
        """Whether the value is known well enough to say what its error may be."""
        return self.met(min(max(Fraction(1, 8), share * 5 / 2), Fraction(1, 2)))

    @property
    def nothing(self) -> bool:
        """Whether the value is zero and has no noise to speak of: no smaller error makes it better known."""
        return not self.half and not self.value

    def hopeless(self, share: Fraction, least: float) -> bool:
        """Whether the most that the value may be is too small for the `least` error there is."""
        return not self.nothing and Fraction(least) > share * (abs(self.value) + self.half)

    def allowed(self, share: Fraction) -> Fraction:
        """The error to ask for next: where the value is near, what meets the target wherever in its interval it lies.

        Else it is what brings it near, were it the most that it may be. Above zero, but of what is `nothing`.
        """
        surely = share * (abs(self.value) - self.half) / (1 + share)
        part = min(max(Fraction(1, 16), share * 3 / 2), Fraction(1, 4))
        return surely if self.near(share) else max(surely, part * (abs(self.value) + self.half))


def answer(engine: Engine, prepared: PreparedQuery) -> Result:
    """The answer to what was prepared, in as many steps as its target takes.

    Where the target cannot be met, or a later step fails, the last answer comes back with a notice that says so.
    Raises as `Engine.answer` does, as long as nothing was released.
    """
    target = prepared.terms.target
    if target is None or target.share is None or not prepared.releases:
        return engine.answer(prepared)
    return _Steps(
        engine, prepared, target, engine.search(prepared, stricter(target)), target.share.of
    ).answer()


def stricter(target: Target) -> Target:
    """The target whose half-widths a search goes by."""
    return replace(target, confidence=1 - (1 - target.confidence) * _MISSED)


@dataclass(frozen=True, slots=True)
class _Steps:
    """A search on its way: what is asked at which losses, what was charged to whom, and the answer after each step."""

    engine: Engine
    first: PreparedQuery
    target: Target
    search: Search
    share: Fraction
    spent: Counter[_Part] = field(default_factory=Counter)
    taken: list[tuple[Event | None, Result]] = field(default_factory=list)
    reached: list[tuple[Result, Fraction]] = field(default_factory=list)

    def answer(self) -> Result:
        """The answer after the last step that was released, whatever ends the search after that."""
        result = self._before()
        self.reached.append(
            (self._take(self.first), self.first.terms.epsilon) if result is None else (result, Fraction(0))
        )
        try:
            why = self._search()
            notice = self._notice(self.reached[-1][0], why)
        except Error as error:
            notice = self._failed(error.code)
        except Exception as error:  # noqa: BLE001  (what was charged is answered; its words may quote private values)
            notice = self._failed(type(error).__name__)
        return self._ended(*self.reached[-1], notice)

    def _failed(self, what: str) -> str:
        return (
            f"{self.target} may not be met: the next step failed ({what}), and stays charged if it was; what was "
            "released before is the answer"
        )

    def _search(self) -> str:
        """Takes steps until the target is met; returns why there are no more."""
        most, whose = self.search.most()
        tried = False
        while self._missed(self.reached[-1][0]):
            result, last = self.reached[-1]
            if last == most or self._hopeless(result, most):
                return f"more takes more than {whose}, ε {float(most):.6g}"
            aimed, wanted = self._next(result)
            least = last if aimed and not tried else 2 * last
            step = self._payable(min(max(wanted or most, least), most), min(least, most))
            if step is None or (
                step.terms.epsilon < (wanted or most) and self._hopeless(result, step.terms.epsilon)
            ):
                return "what may still be spent is too little for more"
            try:
                self.reached.append((self._take(step), step.terms.epsilon))
            except BudgetExhausted:
                return "the budget was spent by others meanwhile"
            tried = tried or aimed
        return ""

    def _cells(self, result: Result) -> tuple[Cell, ...]:
        return Cell.all_of(result, float(self.search.target.confidence))

    def _missed(self, result: Result) -> list[Cell]:
        return [cell for cell in self._cells(result) if not cell.met(self.share)]

    def _hopeless(self, result: Result, epsilon: Fraction) -> bool:
        """Whether some value is too small for its error at that loss, wherever in its interval it lies."""
        least = self.search.errors_at(epsilon)
        return any(cell.hopeless(self.share, least[cell.place]) for cell in self._cells(result))

    def _next(self, result: Result) -> tuple[bool, Fraction | None]:
        """Whether the next step aims at the target, as all values are near, and its loss, None above the most."""
        cells = [cell for cell in self._cells(result) if not cell.nothing]
        allowed = dict[Place, Fraction]()
        for cell in cells:
            error = cell.allowed(self.share)
            allowed[cell.place] = min(error, allowed.get(cell.place, error))
        loosest = max(allowed.values())  # for a place without values, whose error is nobody's
        wanted = self.search.within(lambda place: allowed.get(place, loosest))
        return all(cell.near(self.share) for cell in cells), wanted

    def _before(self) -> Result | None:
        """The best of what was released until now, where it can be put together; None without."""
        parts = [part.plan for part in self.first.releases if part.plan.event is not None]
        if not self.first.asked.replay or not all(map(combinable, parts)):
            return None
        try:
            return self.engine.answer_combined(self.first)
        except QueryRejected as error:
            if error.code != "nothing_released":
                raise
        return None

    def _payable(self, epsilon: Fraction, least: Fraction) -> PreparedQuery | None:
        """The step at that loss, or at the largest from the `least` on that there is room for."""
        step = replace(self.engine.prepare(self.first.asked, at=epsilon), steps=self._charges())
        rooms = [(quote, self._room(quote)) for quote in self.engine.quote(step)]
        if all(quote.spend.within(room) for quote, room in rooms):
            return step
        left = min(self._accountant(quote).remaining_epsilon(NOTHING, room) for quote, room in rooms)
        return self._payable(left, least) if 0 < left < epsilon and left >= least else None

    def _charges(self) -> tuple[int, ...]:
        """The first entry of each charge until now."""
        entries = (result.receipt.entries for _, result in self.taken)
        return tuple(found[0]["id"] for found in entries if found)

    def _room(self, quote: Quote) -> Spend:
        """What the search may still charge to one part of an account."""
        most, _ = self.search.most()
        whole = self._accountant(quote).cost(Pure(most)).loss - self.spent[quote.key, quote.box]
        return replace(quote.left, loss=min(quote.left.loss, whole))

    def _accountant(self, quote: Quote) -> Accountant:
        return self.engine.account(quote.table).accountant

    def _take(self, step: PreparedQuery) -> Result:
        """The answer after one step more: all that was released, put together where it can be."""
        quotes = self.engine.quote(step)
        result = self.engine.answer(step)
        for quote in quotes:
            self.spent[quote.key, quote.box] += quote.spend.loss
        self.taken.append((step.event, result))
        return self._before() or result

    def _ended(self, result: Result, last: Fraction, notice: str) -> Result:
        """The answer with all that was charged for it, and, where the target is not met, a notice that says why."""
        receipts = [each.receipt for _, each in self.taken]
        entries = tuple(entry for receipt in receipts for entry in receipt.entries)
        own = {entry["id"] for entry in entries}
        refined = dict.fromkeys(
            entry for receipt in receipts for entry in receipt.refined if entry not in own
        )
        events = tuple(event for event, _ in self.taken if event is not None)
        loss = Composed(events) if len(events) > 1 else next(iter(events), None)
        outcome = {"epsilon": str(last), "met": "no" if notice else "yes"}
        receipt = replace(
            result.receipt,
            entries=entries,
            loss=None if loss is None else json.loads(to_json(loss)),
            target=(result.receipt.target or {}) | outcome,
            replayed=tuple(id_ for id_ in result.receipt.replayed if id_ not in own and id_ not in refined),
            refined=tuple(refined),
            notices=(notice,) if notice else (),
        )
        return replace(result, receipt=receipt)

    def _notice(self, result: Result, why: str) -> str:
        """What is not as accurate as it was asked for; nothing where all is."""
        reported = Cell.all_of(result, float(self.target.confidence))
        held = self._cells(result)
        missed = [cell for cell, strict in zip(reported, held, strict=True) if not strict.met(self.share)]
        if not missed:
            return ""
        worst = max(missed, key=lambda cell: (cell.half - self.share * abs(cell.value), cell.place))
        return (
            f"{self.target} is not met: {result.columns[worst.place[1]]} is {float(worst.value):,.6g} "
            f"±{float(worst.half):,.4g}, and {why}; what was released is the answer"
        )
