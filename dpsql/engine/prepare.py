"""A query as it is asked, and all that is decided about it before anything is charged or read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

from dpsql.accounting.events import Composed, Event
from dpsql.accounting.partitions.boxes import Box
from dpsql.analysis.partitions.assign import boxes
from dpsql.errors import LossError, ProgrammingError, QueryRejected
from dpsql.ledger.protocol import Bill
from dpsql.plan.dependencies import Known, final_releases, substitute
from dpsql.plan.nodes import OuterQuery, Release, released_columns
from dpsql.plan.types import Value
from dpsql.planning.choose import LossShare
from dpsql.planning.clamping import Clamp
from dpsql.planning.hierarchy import adjusted_plans, hierarchies
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.partition_selection import OptimalPartitionSelection
from dpsql.release import ReleasedTable
from dpsql.replay.combine import combined_plan
from dpsql.replay.refine import CoupledRefinement, IndependentTopUp
from dpsql.request.loss import Amount, amount
from dpsql.request.parameters import bound
from dpsql.request.target import CONFIDENCE, Error, Share, Target, confidence_amount, error_amount
from dpsql.sql.emit.outer_query import ORDINAL, Copies, Originals
from dpsql.sql.emit.statement import Statement, emit
from dpsql.sql.read.dialect import DUCKDB
from dpsql.sql.read.options import Options

_Said = TypeVar("_Said")


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it is asked: its text, parameters, loss or accuracy, and own contribution bound.

    `default` is the loss of a query that is asked with none, nor with an accuracy, and says none itself. `dialect`
    is that of the text. `replay` says that what was released before may be answered again.
    """

    sql: str
    parameters: tuple[Value, ...] = ()
    epsilon: Fraction | None = Fraction(1)
    delta: Fraction | None = None
    max_groups: int | None = None
    default: Fraction | None = None
    dialect: str = DUCKDB
    target_error: Error | None = None
    confidence: Fraction | None = None
    replay: bool = True

    @classmethod
    def of(
        cls,
        sql: str,
        parameters: Sequence[Value],
        *,
        epsilon: Amount | None,
        delta: Amount | None,
        max_groups: int | None,
        target_error: Amount | Share | None,
        confidence: Amount | None,
        dialect: str,
        default: Fraction | None,
        replay: bool = True,
    ) -> Query:
        """A query as a program asks it.

        Raises LossError for a number that is no loss, delta or accuracy, ProgrammingError for a text, parameter or
        bound that is none.
        """
        if not isinstance(sql, str):
            raise ProgrammingError(f"a query is text, not {type(sql).__name__}", code="query_type")
        loss = None if epsilon is None else amount(epsilon)
        if type(replay) is not bool:
            raise ProgrammingError("replay is True or False", code="replay")
        if max_groups is not None and (type(max_groups) is not int or max_groups < 1):
            raise ProgrammingError("max_groups is a whole number from 1", code="max_groups")
        part = None if delta is None else amount(delta, "delta")
        if part is not None and part >= 1:
            raise LossError("delta is a probability below 1", hint="delta=1e-8")
        return cls(
            str.__str__(sql),
            bound(parameters),
            loss,
            part,
            max_groups,
            default,
            dialect,
            None if target_error is None else error_amount(target_error),
            None if confidence is None else confidence_amount(confidence),
            replay,
        )


@dataclass(frozen=True, slots=True)
class PrivacyTerms:
    """What a query is answered at: its loss, its delta for group keys, None for a share, and its own bound.

    `target` is the accuracy that the loss was found for, None where the loss was asked for.
    """

    epsilon: Fraction
    delta: Fraction | None
    max_groups: int | None
    target: Target | None = None

    @property
    def promised(self) -> bool:
        """Whether an error was promised beforehand, which is that of the noise of one release."""
        return self.target is not None and self.target.share is None

    def targeted(self) -> dict[str, str] | None:
        """The target and the loss that was found for it, for a receipt."""
        if self.target is None:
            return None
        return {
            "error": str(self.target.error),
            "confidence": str(self.target.confidence),
            "epsilon": str(self.epsilon),
        }


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """What a query is asked for: a loss, or the least loss that meets a target, and the rest of the terms."""

    loss: Fraction | Target
    delta: Fraction | None
    max_groups: int | None

    def at(self, epsilon: Fraction) -> PrivacyTerms:
        """The terms at a loss."""
        return PrivacyTerms(
            epsilon, self.delta, self.max_groups, self.loss if isinstance(self.loss, Target) else None
        )


def resolve(asked: Query, options: Options) -> ResolvedQuery:
    """What the call and the query say together.

    Raises QueryRejected where they say different things, ProgrammingError where nothing says the loss.
    """
    delta = _agreed("delta", asked.delta, options.delta)
    return ResolvedQuery(
        _loss(asked, options), delta, _agreed("max_groups", asked.max_groups, options.max_groups)
    )


def _loss(asked: Query, options: Options) -> Fraction | Target:
    epsilon = _agreed("epsilon", asked.epsilon, options.epsilon)
    error = _agreed("target_error", asked.target_error, options.target_error)
    confidence = _agreed("confidence", asked.confidence, options.confidence)
    if error is not None:
        if epsilon is not None:
            raise QueryRejected(
                "the query is asked for with a loss and with an accuracy, and each decides the other",
                code="ambiguous",
                hint="say epsilon or target_error",
            )
        return Target(error, CONFIDENCE if confidence is None else confidence)
    if confidence is not None:
        raise QueryRejected(
            "a confidence goes with the error that it is asked for",
            code="target_error",
            hint="target_error = 50, confidence = 0.95",
        )
    if epsilon is None:
        epsilon = asked.default
    if epsilon is None:
        raise ProgrammingError(
            "how much may this query lose?",
            code="epsilon_missing",
            hint="execute(…, epsilon=0.1), or execute(…, target_error=50)",
        )
    return epsilon


def _agreed(name: str, called: _Said, written: _Said) -> _Said:
    if called is not None and written is not None and called != written:
        raise QueryRejected(
            f"the query says one {name}, and the call says another",
            code="ambiguous",
            hint="say it in one of the two",
        )
    return called if written is None else written


@dataclass(frozen=True, slots=True)
class ReplayedRelease:
    """A release that was made before, or several put together: the table, and the first ledger entry of each charge."""

    table: ReleasedTable
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How a release is made from one that was made before with more noise; `number` is that of the ledger.

    That one is in `table`, and was paid for by `entry`, as `paid` says with all that it refines itself.
    """

    number: int
    entry: int
    table: ReleasedTable
    law: CoupledRefinement | IndependentTopUp
    paid: Event

    def whole(self, event: Event) -> Event:
        """What both have cost; `event` is that of a release at the whole price."""
        return event if isinstance(self.law, CoupledRefinement) else Composed((self.paid, self.law.event))

    def drawn(self, plan: MeasurementPlan) -> MeasurementPlan:
        """What is drawn now, for a release that `plan` measures."""
        return plan if isinstance(self.law, CoupledRefinement) else self.law.plan

    def answered(self, plan: MeasurementPlan) -> MeasurementPlan:
        """The noise of the answer: what is drawn now, put together with what was released."""
        if isinstance(self.law, CoupledRefinement):
            return plan
        return combined_plan([self.table.plan, self.law.plan])


@dataclass(frozen=True, slots=True)
class PreparedRelease:
    """One release of a statement: what is measured of which tables, and what it may spend.

    `recalled` is the release that was made before and is answered again, `refinement` how it is made from an earlier
    one; both are None where it is made anew.
    """

    release: Release
    tables: tuple[str, ...]
    plan: MeasurementPlan
    statement: Statement
    price: LossShare
    recalled: ReplayedRelease | None = None
    refinement: Refinement | None = None

    @property
    def event(self) -> Event | None:
        """What is charged: nothing for what was charged before."""
        if self.recalled is not None:
            return None
        return self.plan.event if self.refinement is None else self.refinement.law.event

    def statement_with(self, values: Known) -> Statement:
        """The statement in which values of earlier answers stand."""
        if not values:
            return self.statement
        plan = self.plan
        return emit(substitute(plan.analysis, values), plan.quantiles, plan.top_k, plan.clamps)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of the released table with their engine types, and the ordinal of its rows."""
        named = [(column.name, column.type.value) for column in released_columns(self.release)]
        return [*named, (ORDINAL, "BIGINT")]

    @property
    def mechanisms(self) -> list[dict[str, Any]]:
        """What is noised, chosen or tossed for in the answer, and how, as far as it is known beforehand."""
        return mechanisms_of(self.plan if self.refinement is None else self.refinement.answered(self.plan))

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The same of what is drawn for the charge: nothing for what was released before."""
        if self.event is None:
            return []
        return mechanisms_of(self.plan if self.refinement is None else self.refinement.drawn(self.plan))


def mechanisms_of(plan: MeasurementPlan) -> list[dict[str, Any]]:
    """What is noised, chosen or tossed for, and how: for receipts and the ledger."""
    noised: list[dict[str, Any]] = [
        {
            "statistic": measured.vector.name,
            "noise": measured.mechanism.describe(),
            "l1_sensitivity": str(measured.sensitivity.l1),
            "l2_sensitivity_squared": str(measured.sensitivity.l2_squared),
            "linf_sensitivity": str(measured.sensitivity.linf),
            "cells": len(measured.vector.components),
            **({} if measured.clamp is None else {"clamp": _clamp(plan.clamps[measured.clamp])}),
        }
        for measured in plan.vectors
    ]
    if plan.top_k is not None:
        best = plan.top_k
        noised.append({"statistic": f"the {best.top.count} best groups", "noise": best.mechanism.describe()})
    noised += [{"statistic": ranked.statistic, "noise": ranked.describe()} for ranked in plan.quantiles]
    if isinstance(plan.selection, OptimalPartitionSelection):
        noised.append({"statistic": "keys", "noise": plan.selection.mechanism.describe()})
    return noised


def _clamp(clamp: Clamp) -> dict[str, Any]:
    """What of a unit counts, as it was chosen; before that noise is as is expected of it."""
    return {
        "choice": clamp.mechanism.describe(),
        "of": clamp.statistic,
        "points": len(clamp.grid),
        "most": str(clamp.most),
        "chosen": [str(sign * point) for sign, point in zip(clamp.sides, clamp.points, strict=True)]
        if clamp.chosen
        else "learnt",
    }


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """All that is decided about a query before anything is charged or any private row is read.

    `releases` are in the order in which they are answered; there are none where the query reads
    nothing private. `post_sql` is what is done with them, over the tables that `above` names. `known` are the
    values of queries over what was released before, `steps` the charges of earlier steps to the same target.
    """

    asked: Query
    terms: PrivacyTerms
    explain: bool
    post: OuterQuery
    releases: tuple[PreparedRelease, ...]
    above: Copies | Originals
    post_sql: str
    known: Known = field(default_factory=dict, hash=False)
    steps: tuple[int, ...] = ()

    @property
    def only(self) -> PreparedRelease:
        """The release of a statement that has one."""
        (release,) = self.releases
        return release

    @property
    def plan(self) -> MeasurementPlan:
        """What is measured by a statement with one release."""
        return self.only.plan

    @property
    def statement(self) -> Statement:
        """The SQL of a statement with one release."""
        return self.only.statement

    @property
    def price(self) -> LossShare:
        """What a statement with one release may spend."""
        return self.only.price

    @property
    def tables(self) -> tuple[str, ...]:
        """The private tables that are read."""
        return tuple(dict.fromkeys(table for release in self.releases for table in release.tables))

    @property
    def mechanisms(self) -> list[dict[str, Any]]:
        """What is noised, chosen or tossed for in the answers of all releases, and how."""
        return [mechanism for release in self.releases for mechanism in release.mechanisms]

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """What is noised, chosen or tossed for by the releases that are made now, and how."""
        return [mechanism for release in self.releases for mechanism in release.drawn]

    @property
    def shown(self) -> list[MeasurementPlan]:
        """The plans of what is shown of each release: where totals agree with their parts, with the noise after that."""
        last = final_releases(self.post)
        plans = {part.release: part.plan for part in self.releases}
        read = [plans[release] for release in last]
        return list((plans | dict(zip(last, adjusted_plans(read, hierarchies(read)), strict=True))).values())

    @property
    def replayed(self) -> tuple[int, ...]:
        """The ledger's entries that paid for what is answered again."""
        found = [part.recalled.entries for part in self.releases if part.recalled is not None]
        return tuple(dict.fromkeys(entry for entries in found for entry in entries))

    @property
    def refines(self) -> tuple[Refinement, ...]:
        """Those that were made before with more noise, and are refined."""
        return tuple(part.refinement for part in self.releases if part.refinement is not None)

    @property
    def event(self) -> Event | None:
        """Everything that is released now, as one event."""
        return _composed([release.event for release in self.releases])

    @property
    def bills(self) -> tuple[Bill, ...]:
        """What is charged to each part of a table: the releases that read one and the same part together."""
        read: dict[tuple[str, Box], list[Event | None]] = {}
        for release in self.releases:
            for table, box in boxes(release.plan.analysis.release).items():
                read.setdefault((table, box), []).append(release.event)
        events = ((table, _composed(parts), box) for (table, box), parts in read.items())
        return tuple(Bill(table, event, box) for table, event, box in events if event is not None)


def _composed(events: Sequence[Event | None]) -> Event | None:
    charged = tuple(event for event in events if event is not None)
    return Composed(charged) if len(charged) > 1 else next(iter(charged), None)
