"""Answers whose error is a part of each value: released with much noise first, and then with less, step by step.

Claim: all steps together are charged at most as much as one release at the largest loss that a query may request. There are at
most `STEPS` of them, and they reveal only what they release.
Why: the loss of a step is a function of earlier releases and of public metadata, and adaptive charges add up under a filter. The
ledger is one, and the charges of one search are kept below the same limit. A step that refines the one before is charged the
difference. Each loss is at least twice the one before, except for the first loss that is known to be enough, which may be closer.
Source: Rogers, Roth, Ullman, Vadhan 2016, section 5 (filters of adaptive charges); Koufogiannis, Han, Pappas 2016,
section 4 (gradual release); Ligett, Neel, Roth, Waggoner, Wu 2017, "Accuracy first".

Claim: with the probability of the target, the noise of a value is at most the target's part of the released value.
Why: the search ends when the released values meet the target, so noise that enlarges a value ends it too early. That is a miss on
one side, at the one step whose error is near the allowed one, and adds a half to the probability of a miss. So half-widths are
taken at a confidence that misses two thirds as often. tests/properties/test_relative.py measures it where it is worst.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.engine.accuracy_targets import FIRST, LossSearch, Place, build_loss_search
from dpsql.engine.charging import compute_quotes
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.replay.replays import answer_combined, plan_and_match
from dpsql.engine.replay.reuse import is_combinable
from dpsql.engine.stages import answer_query
from dpsql.errors import BudgetExhausted, Error, QueryRejected
from dpsql.ledger import Quote
from dpsql.ledger.budget_state import AccountKey
from dpsql.policy.request.loss import Target
from dpsql.privacy.accounting.accountants import Accountant
from dpsql.privacy.accounting.events import NOTHING, Charge, Composed, Event, Pure, to_json
from dpsql.privacy.accounting.partitions.boxes import Box
from dpsql.results.result import Result

_Part = tuple[AccountKey, Box]
STEPS = FIRST.bit_length() + 2
_MISSED = Fraction(2, 3)
"""How often a half-width may be missed, over how often the target may."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A noisy value of an answer, and the half-width of its interval."""

    place: Place
    value: Fraction
    half_width: Fraction

    @classmethod
    def from_result(cls, result: Result, confidence: float) -> tuple[Cell, ...]:
        """Return the noisy values of an answer."""
        return tuple(
            cls((branch, column), Fraction(value), (Fraction(ends[1]) - Fraction(ends[0])) / 2)
            for branch, row, intervals in zip(
                result.branches, result.rows, result.intervals(confidence), strict=True
            )
            for column, (value, ends) in enumerate(zip(row, intervals, strict=True))
            if ends is not None and isinstance(value, (int, float, Decimal))
        )

    def is_within_target(self, share: Fraction) -> bool:
        """Return whether the error is at most this part of the value."""
        return self.half_width <= share * abs(self.value)

    def is_near_target(self, share: Fraction) -> bool:
        """Return whether the value is known well enough to say what its error may be."""
        return self.is_within_target(min(max(Fraction(1, 8), share * 5 / 2), Fraction(1, 2)))

    @property
    def is_exact_zero(self) -> bool:
        """Return whether the value is zero with negligible noise, so that a smaller error tells nothing more."""
        return not self.half_width and not self.value

    def is_out_of_reach(self, share: Fraction, least: float) -> bool:
        """Return whether the value, however large it may be, is too small for the `least` error."""
        return not self.is_exact_zero and Fraction(least) > share * (abs(self.value) + self.half_width)

    def compute_next_error(self, share: Fraction) -> Fraction:
        """Return the error to request next: for a near value, the one that meets the target wherever the value lies in its interval.

        For another value it is the error that brings it near, if it is as large as it may be. It is above zero, unless the value
        `is_exact_zero`.
        """
        surely = share * (abs(self.value) - self.half_width) / (1 + share)
        part = min(max(Fraction(1, 16), share * 3 / 2), Fraction(1, 4))
        return (
            surely if self.is_near_target(share) else max(surely, part * (abs(self.value) + self.half_width))
        )


def answer_in_steps(engine: Engine, prepared: QueryRun) -> Result:
    """Answer a prepared query, in as many steps as its target needs.

    If the target cannot be met, or a later step fails, the last answer is returned with a notice. Raises as
    `answer_query` does, as long as nothing was released.
    """
    target = prepared.terms.target
    if target is None or target.relative_error is None or not prepared.releases:
        return answer_query(engine, prepared)
    return _StepwiseSearch(
        engine,
        prepared,
        target,
        build_loss_search(engine, prepared, tighten_target(target)),
        target.relative_error.fraction,
    ).run_steps()


def tighten_target(target: Target) -> Target:
    """Return the target whose half-widths a search uses."""
    return replace(target, confidence=1 - (1 - target.confidence) * _MISSED)


@dataclass(frozen=True, slots=True)
class _StepwiseSearch:
    """A search in progress: the first query, the target, the charges so far, and the answer after each step."""

    engine: Engine
    first: QueryRun
    target: Target
    search: LossSearch
    share: Fraction
    spent_units: Counter[_Part] = field(default_factory=Counter)
    steps: list[tuple[Event | None, Result]] = field(default_factory=list)
    answers: list[tuple[Result, Fraction]] = field(default_factory=list)

    def run_steps(self) -> Result:
        """Return the answer after the last released step, whatever ends the search after that."""
        result = self._find_stored_answer()
        self.answers.append(
            (self._take_step(self.first), self.first.terms.epsilon)
            if result is None
            else (result, Fraction(0))
        )
        try:
            why = self._take_steps()
            notice = self._describe_missed_target(self.answers[-1][0], why)
        except Error as error:
            notice = self._describe_failure(error.code)
        except Exception as error:  # noqa: BLE001  (what was charged is answered; its words may quote private values)
            notice = self._describe_failure(type(error).__name__)
        return self._finish_answer(*self.answers[-1], notice)

    def _describe_failure(self, what: str) -> str:
        return (
            f"{self.target} may not be met: the next step failed ({what}), and its charge stays if there was one; the "
            "answer is what was released before"
        )

    def _take_steps(self) -> str:
        """Take steps until the target is met; return why there are no more."""
        most, whose = self.search.compute_epsilon_limit()
        tried = False
        while self._list_missed_cells(self.answers[-1][0]):
            result, last = self.answers[-1]
            if last == most or self._is_out_of_reach(result, most):
                return f"a smaller error needs more than {whose} (ε {float(most):.6g})"
            aimed, wanted = self._plan_next_loss(result)
            least = last if aimed and not tried else 2 * last
            step = self._find_payable_step(min(max(wanted or most, least), most), min(least, most))
            if step is None or (
                step.terms.epsilon < (wanted or most) and self._is_out_of_reach(result, step.terms.epsilon)
            ):
                return "the remaining budget is too small for another step"
            try:
                self.answers.append((self._take_step(step), step.terms.epsilon))
            except BudgetExhausted:
                return "other queries spent the budget meanwhile"
            tried = tried or aimed
        return ""

    def _list_cells(self, result: Result) -> tuple[Cell, ...]:
        return Cell.from_result(result, float(self.search.target.confidence))

    def _list_missed_cells(self, result: Result) -> list[Cell]:
        return [cell for cell in self._list_cells(result) if not cell.is_within_target(self.share)]

    def _is_out_of_reach(self, result: Result, epsilon: Fraction) -> bool:
        """Return whether some value is too small for its error at this loss, wherever it lies in its interval."""
        least = self.search.predict_errors(epsilon)
        return any(cell.is_out_of_reach(self.share, least[cell.place]) for cell in self._list_cells(result))

    def _plan_next_loss(self, result: Result) -> tuple[bool, Fraction | None]:
        """Return whether the next step aims at the target, because all values are near, and its loss: None above the largest."""
        cells = [cell for cell in self._list_cells(result) if not cell.is_exact_zero]
        allowed = dict[Place, Fraction]()
        for cell in cells:
            error = cell.compute_next_error(self.share)
            allowed[cell.place] = min(error, allowed.get(cell.place, error))
        loosest = max(allowed.values())  # for a place without values, whose error is nobody's
        wanted = self.search.find_epsilon(lambda place: allowed.get(place, loosest))
        return all(cell.is_near_target(self.share) for cell in cells), wanted

    def _find_stored_answer(self) -> Result | None:
        """Return the best answer from what was released so far, if it can be combined; else None."""
        parts = [part.plan for part in self.first.releases if part.plan.event is not None]
        if not self.first.query.replay or not all(map(is_combinable, parts)):
            return None
        try:
            return answer_combined(self.engine, self.first)
        except QueryRejected as error:
            if error.code != "nothing_released":
                raise
        return None

    def _find_payable_step(self, epsilon: Fraction, least: Fraction) -> QueryRun | None:
        """Return the step at this loss, or at the largest loss from `least` on for which there is budget."""
        step = replace(
            plan_and_match(self.engine, self.first.query, PlanOptions(epsilon=epsilon)),
            earlier_charges=self._list_charge_entries(),
        )
        rooms = [(quote, self._compute_room(quote)) for quote in compute_quotes(self.engine, step)]
        if all(quote.charge.is_within(room) for quote, room in rooms):
            return step
        left = min(
            self._get_accountant(quote).compute_remaining_epsilon(NOTHING, room) for quote, room in rooms
        )
        return self._find_payable_step(left, least) if 0 < left < epsilon and left >= least else None

    def _list_charge_entries(self) -> tuple[int, ...]:
        """Return the first entry of each charge so far."""
        entries = (result.receipt.entries for _, result in self.steps)
        return tuple(found[0]["id"] for found in entries if found)

    def _compute_room(self, quote: Quote) -> Charge:
        """Return what the search may still charge to one part of an account."""
        most, _ = self.search.compute_epsilon_limit()
        whole = (
            self._get_accountant(quote).compute_charge(Pure(most)).loss
            - self.spent_units[quote.key, quote.box]
        )
        return replace(quote.remaining, loss=min(quote.remaining.loss, whole))

    def _get_accountant(self, quote: Quote) -> Accountant:
        return self.engine.get_account(quote.table).accountant

    def _take_step(self, step: QueryRun) -> Result:
        """Take one more step and return its answer, combined with all earlier ones if possible."""
        quotes = compute_quotes(self.engine, step)
        result = answer_query(self.engine, step)
        for quote in quotes:
            self.spent_units[quote.key, quote.box] += quote.charge.loss
        self.steps.append((step.event, result))
        return self._find_stored_answer() or result

    def _finish_answer(self, result: Result, last: Fraction, notice: str) -> Result:
        """Return the answer with all its charges and, if the target is not met, a notice that says why."""
        receipts = [each.receipt for _, each in self.steps]
        entries = tuple(entry for receipt in receipts for entry in receipt.entries)
        own = {entry["id"] for entry in entries}
        refined = dict.fromkeys(
            entry for receipt in receipts for entry in receipt.refined if entry not in own
        )
        events = tuple(event for event, _ in self.steps if event is not None)
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

    def _describe_missed_target(self, result: Result, why: str) -> str:
        """Return a notice about the value that misses the target most; an empty text if none does."""
        reported = Cell.from_result(result, float(self.target.confidence))
        held = self._list_cells(result)
        missed = [
            cell
            for cell, strict in zip(reported, held, strict=True)
            if not strict.is_within_target(self.share)
        ]
        if not missed:
            return ""
        worst = max(missed, key=lambda cell: (cell.half_width - self.share * abs(cell.value), cell.place))
        return (
            f"{self.target} is not met: {result.columns[worst.place[1]]} is {float(worst.value):,.6g} "
            f"±{float(worst.half_width):,.4g}, and {why}; the answer is what was released"
        )
