"""What a caller asks, `Query`, and what that resolves to with the options that its text states, `ResolvedQuery`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypedDict, TypeVar

from dpsql.errors import LossError, ProgrammingError, QueryRejected
from dpsql.request.loss import Amount, parse_amount
from dpsql.request.parameters import BoundParameters, Parameter, Parameters, bind_parameters
from dpsql.request.target import (
    CONFIDENCE,
    RelativeError,
    Target,
    TargetError,
    parse_confidence,
    parse_target_error,
)

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
    """What the text of a query states itself, in its OPTIONS clause; None where it leaves an option to the call."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    max_groups: int | None = None
    target_error: TargetError | None = None
    confidence: Fraction | None = None


def get_naive_utc_now() -> dt.datetime:
    """The present time in UTC, without a zone, as moments are here."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class Query:
    """What the caller asks: a text with its parameters, a loss or an accuracy, and a contribution bound.

    `default` is the loss where neither the call nor the text states a loss or an accuracy. `dialect` is the dialect
    of the text. `replay` allows an answer from a stored release. `time` is when it is asked, in UTC without a zone: what
    `current_date` and `now()` mean in it, at each step towards its answer.
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
        """The query of a program's call.

        Raises LossError for an invalid loss, delta or accuracy, ProgrammingError for an invalid text, parameter or
        bound.
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
    """The terms that a query is answered on: its loss or target, its δ for group keys, and its contribution bound.

    `delta` is None where δ is spent in proportion to the loss. `found_epsilon` is the least loss that meets a target, None
    before the search.
    """

    loss: Fraction | Target
    delta: Fraction | None
    max_groups: int | None
    found_epsilon: Fraction | None = None

    def with_epsilon(self, epsilon: Fraction) -> ResolvedQuery:
        """The same terms at a loss: that of a target, or of a step towards it."""
        return (
            replace(self, found_epsilon=epsilon)
            if isinstance(self.loss, Target)
            else replace(self, loss=epsilon)
        )

    @property
    def epsilon(self) -> Fraction:
        """The loss. Raises TypeError for a target before the search."""
        loss = self.found_epsilon if isinstance(self.loss, Target) else self.loss
        if loss is None:
            raise TypeError("the loss of a target is known after the search")
        return loss

    @property
    def target(self) -> Target | None:
        """The accuracy that the loss was found for, None where the loss was asked for."""
        return self.loss if isinstance(self.loss, Target) else None

    @property
    def is_error_promised(self) -> bool:
        """Whether an absolute error was promised, which is that of the noise of one release."""
        return self.target is not None and self.target.relative_error is None

    def to_target_record(self) -> dict[str, str] | None:
        """The target and the loss that was found for it, for a receipt."""
        if self.target is None:
            return None
        return {
            "error": str(self.target.error),
            "confidence": str(self.target.confidence),
            "epsilon": str(self.epsilon),
        }


def resolve_query(asked: Query, options: StatedOptions) -> ResolvedQuery:
    """The terms that the call and the text state together.

    Raises QueryRejected where they state different ones, ProgrammingError where neither states a loss.
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
