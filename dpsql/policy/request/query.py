"""The caller's request, `Query`, and the terms that it resolves to with the options in its text, `ResolvedQuery`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypedDict, TypeVar

from dpsql.errors import LossError, ProgrammingError, QueryRejected
from dpsql.policy.request.loss import (
    CONFIDENCE,
    Amount,
    RelativeError,
    Target,
    TargetError,
    parse_amount,
    parse_confidence,
    parse_target_error,
)
from dpsql.policy.request.parameters import BoundParameters, Parameter, Parameters, bind_parameters

_Option = TypeVar("_Option")


class QueryOptions(TypedDict, total=False):
    """The keyword arguments of a query; see `Connection.query`."""

    epsilon: Amount | None
    delta: Amount | None
    max_groups: int | None
    target_error: Amount | RelativeError | None
    confidence: Amount | None
    dialect: str | None
    replay: bool | None


@dataclass(frozen=True, slots=True)
class StatedOptions:
    """The options that the text of a query states in its OPTIONS clause; None for an option that it leaves to the call."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_groups: int | None = None
    target_error: TargetError | None = None
    confidence: Fraction | None = None


def get_naive_utc_now() -> dt.datetime:
    """Return the present time in UTC, without a zone."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class Query:
    """The caller's request: a text with its parameters, a loss or an accuracy, and a contribution bound.

    `default` is the loss if neither the call nor the text states a loss or an accuracy. `dialect` is the dialect of the text.
    `replay` allows an answer from a stored release. `time` is the moment of the request, in UTC without a zone: the meaning of
    `current_date` and `now()` in each step towards its answer.
    """

    sql: str
    parameters: BoundParameters | tuple[Parameter, ...] = ()
    epsilon: Fraction | None = Fraction(1)
    delta: Fraction | None = None
    max_groups: int | None = None
    default: Fraction | None = None
    dialect: str = "duckdb"
    target_error: TargetError | None = None
    confidence: Fraction | None = None
    replay: bool = True
    time: dt.datetime = field(default_factory=get_naive_utc_now, compare=False)

    @classmethod
    def from_call(
        cls,
        sql: str,
        parameters: Parameters,
        *,
        epsilon: Amount | None,
        delta: Amount | None,
        max_groups: int | None,
        target_error: Amount | RelativeError | None,
        confidence: Amount | None,
        dialect: str,
        default: Fraction | None,
        replay: bool = True,
    ) -> Query:
        """Return the query of a program's call.

        Raises LossError for an invalid loss, delta or accuracy, ProgrammingError for an invalid text, parameter or bound.
        """
        if not isinstance(sql, str):
            raise ProgrammingError(f"a query must be text, not {type(sql).__name__}", code="query_type")
        loss = None if epsilon is None else parse_amount(epsilon)
        if type(replay) is not bool:
            raise ProgrammingError("replay must be True or False", code="replay")
        if max_groups is not None and (type(max_groups) is not int or max_groups < 1):
            raise ProgrammingError("max_groups must be a whole number of at least 1", code="max_groups")
        probability = None if delta is None else parse_amount(delta, "delta")
        if probability is not None and probability >= 1:
            raise LossError("delta must be a probability below 1", hint="delta=1e-8")
        return cls(
            str.__str__(sql),
            bind_parameters(parameters),
            loss,
            probability,
            max_groups,
            default,
            dialect,
            None if target_error is None else parse_target_error(target_error),
            None if confidence is None else parse_confidence(confidence),
            replay,
        )


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """The terms of a query: its loss or target, its δ for group keys, and its contribution bound.

    `delta` is None if δ is spent in proportion to the loss. `found_epsilon` is the smallest loss that meets a target; it is None
    before the search.
    """

    loss: Fraction | Target
    delta: Fraction | None
    max_groups: int | None
    found_epsilon: Fraction | None = None

    def with_epsilon(self, epsilon: Fraction) -> ResolvedQuery:
        """Return the same terms with a loss: that of a target, or of a step towards it."""
        return (
            replace(self, found_epsilon=epsilon)
            if isinstance(self.loss, Target)
            else replace(self, loss=epsilon)
        )

    @property
    def epsilon(self) -> Fraction:
        """Return the loss; raise TypeError for a target before the search."""
        loss = self.found_epsilon if isinstance(self.loss, Target) else self.loss
        if loss is None:
            raise TypeError("the loss of a target is known after the search")
        return loss

    @property
    def target(self) -> Target | None:
        """Return the accuracy that the loss was found for; None if the query set its loss."""
        return self.loss if isinstance(self.loss, Target) else None

    @property
    def is_error_promised(self) -> bool:
        """Return whether an absolute error was promised, which is the error of the noise of one release."""
        return self.target is not None and self.target.relative_error is None

    def to_target_record(self) -> dict[str, str] | None:
        """Return the target and the loss that was found for it, for a receipt."""
        if self.target is None:
            return None
        return {
            "error": str(self.target.error),
            "confidence": str(self.target.confidence),
            "epsilon": str(self.epsilon),
        }


def resolve_query(asked: Query, options: StatedOptions) -> ResolvedQuery:
    """Return the terms that the call and the text state together.

    Raises QueryRejected if they state different ones, ProgrammingError if neither states a loss.
    """
    delta = _merge_option("delta", asked.delta, options.delta)
    return ResolvedQuery(
        _resolve_loss(asked, options),
        delta,
        _merge_option("max_groups", asked.max_groups, options.max_groups),
    )


def _resolve_loss(asked: Query, options: StatedOptions) -> Fraction | Target:
    epsilon = _merge_option("epsilon", asked.epsilon, options.epsilon)
    error = _merge_option("target_error", asked.target_error, options.target_error)
    confidence = _merge_option("confidence", asked.confidence, options.confidence)
    if error is not None:
        if epsilon is not None:
            raise QueryRejected(
                "a query takes a privacy loss or an accuracy, not both: each determines the other",
                code="ambiguous",
                hint="pass `epsilon` or `target_error`",
            )
        return Target(error, CONFIDENCE if confidence is None else confidence)
    if confidence is not None:
        raise QueryRejected(
            "confidence needs a target_error",
            code="target_error",
            hint="target_error = 50, confidence = 0.95",
        )
    if epsilon is None:
        epsilon = asked.default
    if epsilon is None:
        raise ProgrammingError(
            "no privacy loss given: pass `epsilon` or `target_error`",
            code="epsilon_missing",
            hint="execute(…, epsilon=0.1), or execute(…, target_error=50)",
        )
    return epsilon


def _merge_option(name: str, called: _Option, written: _Option) -> _Option:
    if called is not None and written is not None and called != written:
        raise QueryRejected(
            f"the text of the query and the call give different values for {name}",
            code="ambiguous",
            hint="give it in only one of the two",
        )
    return called if written is None else written
