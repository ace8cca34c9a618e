"""A query on its way through the stages: `QueryRun`, and each of its releases, `PreparedRelease`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from dpsql.analysis.partitions.assignment import compute_boxes
from dpsql.analysis.release_analysis import Analysis
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.engine.expert_choices import ExpertLosses
from dpsql.engine.lookups import PublicLookups
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.engine.replay.reuse import CoupledRefinement, IndependentTopUp, combine_plans
from dpsql.errors import Position
from dpsql.ledger import Entry
from dpsql.ledger.protocol import TableCharge
from dpsql.plan import text
from dpsql.plan.nodes import OuterQuery, Release, list_released_columns
from dpsql.plan.steps import (
    KnownValues,
    PublicGroups,
    Step,
    find_sampling_rate,
    format_percent,
    list_final_releases,
    list_required_subqueries,
    substitute_subqueries,
)
from dpsql.plan.types import Value
from dpsql.planning.choose import LossShare
from dpsql.planning.clamp_histogram import list_clamped_statistics
from dpsql.planning.clamping import Clamp
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.planning.hierarchy import adjust_plans, list_hierarchies
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import Statistic
from dpsql.policy.request.query import Query, ResolvedQuery
from dpsql.privacy.accounting.events import Composed, Event
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box
from dpsql.privacy.mechanisms.entropy import Entropy, draw_secret
from dpsql.results.result import Result
from dpsql.sql.compile.compiler import PLACEHOLDER, Compiler
from dpsql.sql.compile.outer_query import ORDINAL, OriginalTables, ReleasedTables
from dpsql.sql.compile.statement import ReleaseStatement, can_read_selected, emit_release, emit_sums
from dpsql.sql.parse.parse import Statement

PENDING: Final[Any] = None
"""The value of what a later stage fills in."""


@dataclass(frozen=True, slots=True)
class ReplayedRelease:
    """An earlier release, or several combined: the table, and the first ledger entry of each charge."""

    table: ReleasedTable
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refinement:
    """A new release made from an earlier one with more noise; `number` is the earlier one's in the ledger.

    The earlier release is in `table`, and `entry` paid for it. `paid_event` is its cost, together with that of the releases which
    it refined itself.
    """

    number: int
    entry: int
    table: ReleasedTable
    law: CoupledRefinement | IndependentTopUp
    paid_event: Event

    def compute_total_event(self, event: Event) -> Event:
        """Return the cost of both releases together; `event` is that of a release at the full price."""
        return (
            event if isinstance(self.law, CoupledRefinement) else Composed((self.paid_event, self.law.event))
        )

    def get_drawn_plan(self, plan: MeasurementPlan) -> MeasurementPlan:
        """Return the plan of what is drawn now, for a release that `plan` measures."""
        return plan if isinstance(self.law, CoupledRefinement) else self.law.plan

    def build_answer_plan(self, plan: MeasurementPlan) -> MeasurementPlan:
        """Return the plan with the noise of the answer, which combines what is drawn now with the earlier release."""
        if isinstance(self.law, CoupledRefinement):
            return plan
        return combine_plans([self.table.plan, self.law.plan])


@dataclass(frozen=True, slots=True)
class PreparedRelease:
    """One release of a query: the tables that it reads, its share of the loss, its plan and its statement.

    `accounts` has the names of the accounts that pay for the tables; a table that it lacks pays by itself.

    The statement is emitted once the plan is verified. `values` are the values of earlier answers in `statement`. `groups` are
    the rows of groups of public rows, if the database does not compute them. `replayed_release` is the stored release that
    answers it, `refinement` the refinement of a stored one; both are None for a new release. `dialect` is that of the engine
    which holds the rows. `secret` selects the sampled units while the release is drawn.
    """

    release: Release
    tables: tuple[str, ...]
    plan: MeasurementPlan
    loss_share: LossShare
    statement: ReleaseStatement = PENDING
    replayed_release: ReplayedRelease | None = None
    refinement: Refinement | None = None
    values: KnownValues = field(default_factory=dict, hash=False)
    dialect: Dialect = DUCKDB
    groups: PublicGroups = field(default_factory=dict, hash=False)
    secret: str = field(default=PLACEHOLDER, repr=False, compare=False)
    accounts: Mapping[str, str] = field(default_factory=dict, hash=False)

    def with_statement(self, groups: PublicGroups) -> PreparedRelease:
        """Return the release with its statement, in which `groups` of public rows are written as constants."""
        read = substitute_subqueries(self.plan.analysis, {}, groups)
        return replace(self, statement=emit_statement(self.plan, read, self.dialect), groups=groups)

    def list_charged_boxes(self) -> tuple[tuple[str, Box], ...]:
        """Return the accounts that the release is charged to, each once, with the box that it reads; the whole of a shared one."""
        boxes = compute_boxes(self.plan.analysis.release).items()
        named = ((self.accounts.get(table, table), table, box) for table, box in boxes)
        return tuple(
            dict.fromkeys((account, box if account == table else WHOLE) for account, table, box in named)
        )

    @property
    def event(self) -> Event | None:
        """Return the event that is charged: None for a replayed release."""
        if self.replayed_release is not None:
            return None
        return self.plan.event if self.refinement is None else self.refinement.law.event

    def with_values(self, values: KnownValues) -> PreparedRelease:
        """Return the release with the values of earlier answers in its statement, which is emitted once for the same values."""
        read = (
            {step: values[step] for step in list_required_subqueries(self.release) if step in values}
            if values
            else {}
        )
        if self.replayed_release is not None or read == self.values:
            return self
        return replace(self, statement=self._emit_with_values(read, self.secret), values=read)

    def with_sampling_secret(self, entropy: Entropy) -> PreparedRelease:
        """Return the release with a fresh secret that selects its sampled units, if it reads a sample."""
        if find_sampling_rate(self.release.input) is None:
            return self
        drawn = draw_secret(entropy)
        return replace(self, statement=self._emit_with_values(self.values, drawn), secret=drawn)

    def _emit_with_values(self, values: KnownValues, secret: str) -> ReleaseStatement:
        plan = self.plan
        analysis = substitute_subqueries(plan.analysis, values, self.groups)
        return emit_statement(plan, analysis, self.dialect, secret)

    def emit_group_sums(
        self, plan: MeasurementPlan, selected: Sequence[tuple[Value, ...]] | None = None
    ) -> ReleaseStatement:
        """Return the last stage of `statement`, for a plan whose clamps are chosen so far.

        Quantiles are read when all clamps are chosen. If the keys of the `selected` groups are known, only these groups are read, as
        far as the statement can be restricted to them.
        """
        read = substitute_subqueries(plan.analysis, self.values, self.groups)
        chosen = all(clamp.chosen for clamp in plan.clamps)
        alone = selected is not None and can_read_selected(Compiler(self.dialect), read, plan.quantiles)
        quantiles = plan.quantiles if chosen else ()
        chosen_keys = selected if alone else None
        return emit_sums(
            Compiler(self.dialect, self.secret),
            read,
            quantiles,
            plan.clamps,
            selected=chosen_keys,
            unclamped=_collect_unclamped_statistics(plan),
        )

    @property
    def sql_texts(self) -> list[str]:
        """Return the SQL that is sent to the engine; for groups with clamps, that for the expected points."""
        stages = self.statement.stages
        if stages is None or self.refinement is not None:
            return [*_format_temporary_tables(self.statement.held_queries), self.statement.sql]
        made = _format_temporary_tables(stages.tables)
        expected = (
            replace(clamp, chosen=(clamp.default_index,) * len(clamp.sides)) for clamp in self.plan.clamps
        )
        last = self.emit_group_sums(replace(self.plan, clamps=tuple(expected)))
        return [
            *made,
            f"{stages.histograms};",
            *_format_temporary_tables(last.held_queries),
            f"-- with the clamps that are chosen:\n{last.sql}",
        ]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return the columns of the released table with their engine types, and the ordinal of its rows."""
        named = [(column.name, column.type.value) for column in list_released_columns(self.release)]
        return [*named, (ORDINAL, "BIGINT")]

    @property
    def mechanisms(self) -> list[dict[str, Any]]:
        """Return the mechanisms of the answer, as far as they are known beforehand."""
        return describe_mechanisms(
            self.plan if self.refinement is None else self.refinement.build_answer_plan(self.plan)
        )

    @property
    def drawn_mechanisms(self) -> list[dict[str, Any]]:
        """Return the mechanisms that are drawn for the charge: none for a replayed release."""
        if self.event is None:
            return []
        return describe_mechanisms(
            self.plan if self.refinement is None else self.refinement.get_drawn_plan(self.plan)
        )


def emit_statement(
    plan: MeasurementPlan, read: Analysis, dialect: Dialect, secret: str = PLACEHOLDER
) -> ReleaseStatement:
    """Return the statement of a plan, with the rows of the analysis `read`, which has the values of earlier answers."""
    parts = (plan.quantiles, plan.top_k, plan.clamps)
    return emit_release(Compiler(dialect, secret), read, *parts, counted=plan.counted_measures)


def _format_temporary_tables(tables: Sequence[tuple[str, str]]) -> list[str]:
    """Return the temporary tables that a statement reads, as text."""
    return [f"CREATE TEMPORARY TABLE {name} AS {sql};" for name, sql in tables]


def _collect_unclamped_statistics(plan: MeasurementPlan) -> set[Statistic]:
    """Return the statistics of the vectors that can get their noise by now, except for those that clamps give."""
    ready = (part for part in plan.vectors if part.clamp is None or plan.clamps[part.clamp].chosen)
    return {statistic for part in ready for statistic in part.source_statistics} - list_clamped_statistics(
        plan.clamps
    )


def describe_mechanisms(plan: MeasurementPlan) -> list[dict[str, Any]]:
    """Return the mechanisms of a plan, for receipts and the ledger."""
    noised: list[dict[str, Any]] = [
        {
            "statistic": measurement.vector.name,
            "noise": measurement.mechanism.describe(),
            "l1_sensitivity": str(measurement.sensitivity.l1),
            "l2_sensitivity_squared": str(measurement.sensitivity.l2_squared),
            "linf_sensitivity": str(measurement.sensitivity.linf),
            "cells": len(measurement.vector.components),
            **(
                {}
                if measurement.clamp is None
                else {"clamp": _describe_clamp(plan.clamps[measurement.clamp])}
            ),
        }
        for measurement in plan.vectors
    ]
    rate = find_sampling_rate(plan.analysis.release.input)
    if rate is not None:
        noised.insert(
            0, {"statistic": "units", "noise": f"Poisson sample, {format_percent(rate)} of the units"}
        )
    if plan.top_k is not None:
        best = plan.top_k
        noised.append({"statistic": f"the {best.top.count} best groups", "noise": best.mechanism.describe()})
    noised += [{"statistic": ranked.statistic, "noise": ranked.describe()} for ranked in plan.quantiles]
    if plan.synthesis is not None:
        noised += plan.synthesis.mechanism.describe()
    if isinstance(plan.selection, OptimalPartitionSelection):
        noised.append({"statistic": "keys", "noise": plan.selection.mechanism.describe()})
    return noised


def _describe_clamp(clamp: Clamp) -> dict[str, Any]:
    """Return the selected clamp, or the default that planning uses before the selection."""
    return {
        "choice": clamp.mechanism.describe(),
        "of": clamp.statistic,
        "points": len(clamp.grid),
        "most": str(clamp.upper_limit),
        "chosen": [str(sign * point) for sign, point in zip(clamp.sides, clamp.points, strict=True)]
        if clamp.chosen
        else "learnt",
        **({"beyond": clamp.max_n_clipped} if clamp.min_support else {}),
    }


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The purpose of a plan.

    `epsilon` is the loss of a step towards an accuracy; by default it is that of the first step. `separate_keys` is as for
    `analyze_release`. `is_free` says that nothing will be charged. A loss beyond the whole budget is planned too for a forecast,
    which shows it as refused.
    """

    epsilon: Fraction | None = None
    separate_keys: bool = False
    is_free: bool = False
    is_forecast: bool = False


@dataclass(frozen=True)
class QueryRun:
    """A query on its way through the stages of `dpsql.engine.stages`, each of which fills in a part.

    A run up to the charge is called a prepared query: nothing was charged, and no private row was read. It stays right as long as
    the policy, the schema and the public tables stay; with `constants`, it belongs to the moment at which it was made.

    `lookups` and `parsed`, the tree of the text, serve the stages up to the charge, and are not kept with a prepared query.
    `constants` are the values of the time that the statement reads. `notices` say where its meaning differs from that of its text.
    `matrix_columns` are the places of the entries on and above the diagonal of a covariance matrix. `expert_losses` are the losses
    from which experts are chosen.
    `releases` are in the order in which they are drawn; a query that reads nothing private has none. `outer_sql` post-processes
    them, over the tables that `post_processing` names. `known_values` are the values of the subqueries that were evaluated.
    `earlier_charges` are the charges of earlier steps towards the same target. `entries` are those of the charge, and
    `released_tables` are in the order of `releases`.
    """

    query: Query
    options: PlanOptions = PlanOptions()
    lookups: PublicLookups = field(default=PENDING, compare=False, repr=False)
    # parse
    parsed: Statement = field(default=PENDING, compare=False, repr=False)
    terms: ResolvedQuery = PENDING
    explain: bool = PENDING
    # lower
    outer: OuterQuery = PENDING
    steps: tuple[Step, ...] = field(default=PENDING, compare=False, repr=False)
    """The steps that precede the statement, in order of dependency."""
    sample: Position | None = field(default=None, compare=False, repr=False)
    constants: Mapping[str, str] = field(default_factory=dict, hash=False)
    notices: tuple[str, ...] = ()
    matrix_columns: tuple[int, ...] = ()
    expert_losses: ExpertLosses | None = None
    # analyze
    analyses: Mapping[Release, Analysis] = field(default=PENDING, compare=False, repr=False)
    # choose; verify adds the statements
    releases: tuple[PreparedRelease, ...] = PENDING
    # verify
    post_processing: ReleasedTables | OriginalTables = PENDING
    outer_sql: str = PENDING
    # drivers between verify and charge
    known_values: KnownValues = field(default_factory=dict, hash=False)
    earlier_charges: tuple[int, ...] = ()
    # charge
    entries: tuple[Entry, ...] = field(default=(), compare=False)
    # run and release
    released_tables: tuple[ReleasedTable, ...] = field(default=(), compare=False)
    # post_process
    result: Result = field(default=PENDING, compare=False)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the answer's columns, with their engine types."""
        found = tuple((output.name, str(output.expr.type.value)) for output in self.outer.outputs)
        return found if self.expert_losses is None else self.expert_losses.replace_loss_columns(found)

    @property
    def reads_private_rows(self) -> bool:
        """Return whether the query has a release; otherwise it reads public tables as they are."""
        return isinstance(self.post_processing, ReleasedTables)

    def without_planning_inputs(self) -> QueryRun:
        """Return the prepared query as it may be kept.

        Look-ups belong to the moment of planning, and the tree of the text is large.
        """
        return replace(self, lookups=PENDING, parsed=PENDING)

    def with_known_values(self, release: Release) -> QueryRun:
        """Return the run in which a release's statement has the values of the subqueries that it reads."""
        return replace(
            self,
            releases=tuple(
                part.with_values(self.known_values) if part.release == release else part
                for part in self.releases
            ),
        )

    def get_release(self, release: Release) -> PreparedRelease:
        """Return what was prepared for a release of the plan."""
        return next(part for part in self.releases if part.release == release)

    @property
    def single_release(self) -> PreparedRelease:
        """Return the release of a statement that has one."""
        (release,) = self.releases
        return release

    @property
    def plan(self) -> MeasurementPlan:
        """Return the measurement plan of a statement with one release."""
        return self.single_release.plan

    @property
    def statement(self) -> ReleaseStatement:
        """Return the SQL of a statement with one release."""
        return self.single_release.statement

    @property
    def loss_share(self) -> LossShare:
        """Return the loss that a statement with one release may spend."""
        return self.single_release.loss_share

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the private tables that are read."""
        return tuple(dict.fromkeys(table for release in self.releases for table in release.tables))

    @property
    def mechanisms(self) -> list[dict[str, Any]]:
        """Return the mechanisms of the answer, of all releases."""
        return [mechanism for release in self.releases for mechanism in release.mechanisms]

    @property
    def drawn_mechanisms(self) -> list[dict[str, Any]]:
        """Return the mechanisms of the releases that are drawn now."""
        return [mechanism for release in self.releases for mechanism in release.drawn_mechanisms]

    @property
    def shown_plans(self) -> list[MeasurementPlan]:
        """Return the plans of the shown releases: if totals are made consistent with their parts, with the noise after that."""
        last = list_final_releases(self.steps)
        plans = {part.release: part.plan for part in self.releases}
        read = [plans[release] for release in last]
        return list(
            (plans | dict(zip(last, adjust_plans(read, list_hierarchies(read)), strict=True))).values()
        )

    @property
    def replayed_entries(self) -> tuple[int, ...]:
        """Return the ledger's entries that paid for the replayed releases."""
        found = [part.replayed_release.entries for part in self.releases if part.replayed_release is not None]
        return tuple(dict.fromkeys(entry for entries in found for entry in entries))

    @property
    def refinements(self) -> tuple[Refinement, ...]:
        """Return the stored releases that are refined."""
        return tuple(part.refinement for part in self.releases if part.refinement is not None)

    @cached_property
    def plan_digest(self) -> str:
        """Return the digest of the plan."""
        return text.compute_digest(self.outer)

    @cached_property
    def event(self) -> Event | None:
        """Return all that is released now, as one event."""
        return _compose_events([release.event for release in self.releases])

    @cached_property
    def table_charges(self) -> tuple[TableCharge, ...]:
        """Return the charge of each part of an account: that of all releases that read the same part.

        Claim: what an account is charged bounds the loss of one unit by all releases that read any of its tables.
        Why: a release that reads several tables of one account is charged to it once, since its loss bounds a change of all rows of
        one unit in all tables at once (`dpsql.policy.models` refuses other tables); different releases compose. A shared account has
        no parts: charges to parts compose in parallel within one table alone.
        Source: Dwork, Roth 2014, Theorem 3.16 (composition), and the source of each accountant.
        """
        read: dict[tuple[str, Box], list[Event | None]] = {}
        for release in self.releases:
            for account, box in release.list_charged_boxes():
                read.setdefault((account, box), []).append(release.event)
        events = ((account, _compose_events(parts), box) for (account, box), parts in read.items())
        return tuple(TableCharge(account, event, box) for account, event, box in events if event is not None)


def _compose_events(events: Sequence[Event | None]) -> Event | None:
    charged = tuple(event for event in events if event is not None)
    return Composed(charged) if len(charged) > 1 else next(iter(charged), None)
