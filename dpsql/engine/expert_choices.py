"""Choices among experts, from the losses that a statement has released."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpsql.errors import QueryRejected
from dpsql.plan.nodes import Output
from dpsql.plan.types import Type
from dpsql.privacy.experts import Schedule, WeightedMajority
from dpsql.privacy.mechanisms import Entropy
from dpsql.results.rendering import Ends
from dpsql.results.result import Result


@dataclass(frozen=True, slots=True)
class ExpertLosses:
    """The columns of an answer with the losses of `expert_count` experts, from `first_column` on; the number of the round follows."""

    first_column: int
    expert_count: int

    @classmethod
    def from_outputs(cls, found: tuple[int, int] | None, outputs: Sequence[Output]) -> ExpertLosses | None:
        """Return the experts whose losses are columns of an answer, if it has any; raise QueryRejected if a loss is not a number."""
        if found is None:
            return None
        experts = cls(*found)
        losses = outputs[experts.first_column : experts.first_column + experts.expert_count]
        if not all(loss.expr.type.numeric or loss.expr.type is Type.NULL for loss in losses):
            raise QueryRejected(
                "the losses of experts must be numbers",
                code="best_expert",
                hint="the loss of an expert must be from 0 to 1",
            )
        return experts

    def replace_loss_columns(self, names: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the columns of the answer with one column of choices in place of the losses, named like the first of them."""
        first, after = names[self.first_column], self.first_column + self.expert_count + 1
        return (*names[: self.first_column], (first[0], "BIGINT"), *names[after:])

    def choose_experts(self, result: Result, entropy: Entropy) -> Result:
        """Return the answer with the expert that is followed in each round, from 1, in place of the losses.

        Claim: for any losses in [0, 1], the expected mean loss of the choices exceeds that of the best expert by at most
        2·√(ln(k)/T), for k experts and T rounds; and the choices reveal nothing about a privacy unit beyond the losses.
        Why: it is the weighted majority at the rate √(ln(k)/T), and each choice sees only the losses of earlier rounds. The losses
        are released, or public, so that this is post-processing.
        Source: Littlestone, Warmuth 1994; Dwork, Roth 2014, Theorem 11.1 and Proposition 2.1.
        """
        place, after = self.first_column, self.first_column + self.expert_count + 1
        rows: list[tuple[Any, ...]] = [tuple(row) for row in result.rows]
        choices = dict[int, int]()
        learner = WeightedMajority(
            self.expert_count,
            Schedule(max(1, len(rows)), _compute_learning_rate(self.expert_count, len(rows))),
            entropy,
        )
        for number in sorted(range(len(rows)), key=lambda number: rows[number][after - 1]):
            choices[number] = learner.choose() + 1
            learner.observe(rows[number][place : after - 1])

        def get_interval(row: int, column: int, confidence: float) -> Ends:
            if column == place:
                return None
            return result._interval_of(  # noqa: SLF001  (of the answer that this one replaces)
                row, column if column < place else column + self.expert_count, confidence
            )

        def with_choice(cells: tuple[Any, ...], choice: Any) -> tuple[Any, ...]:
            return (*cells[:place], choice, *cells[after:]) if cells else ()

        names = self.replace_loss_columns(tuple(zip(result.columns, result.types, strict=True)))
        return replace(
            result,
            columns=tuple(name for name, _ in names),
            types=tuple(kind for _, kind in names),
            rows=tuple(with_choice(row, choices[number]) for number, row in enumerate(rows)),
            scales=tuple(with_choice(row, None) for row in result.scales),
            _interval_of=get_interval,
            _bounded=with_choice(result.bounded_columns, False),
            _counts=with_choice(result.count_columns, False),
        )


def _compute_learning_rate(experts: int, rounds: int) -> Fraction:
    """Return √(ln(k)/T), the rate with the smallest regret, above 0."""
    return Fraction(math.sqrt(math.log(max(2, experts)) / max(1, rounds))).limit_denominator(1 << 20)
