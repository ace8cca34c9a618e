"""The stages of a query, in order: parse, lower, analyze, choose, verify, charge, run, release, post-process.

All stages are pure functions over frozen values, except for the charge, the engine's run and the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from dpsql.analysis.partitions.assignment import with_partition_filters
from dpsql.analysis.release_analysis import Analysis, analyze_release
from dpsql.backends import Backend, analyst_schema
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine.accuracy_search import LossSearch
from dpsql.engine.budgets import compute_epsilon_cap, get_table_budget, require_above_floor, require_below_cap
from dpsql.engine.build_result import build_result
from dpsql.engine.draw import draw_noise
from dpsql.engine.expert_choices import ExpertLosses
from dpsql.engine.lookups import PublicLookups
from dpsql.engine.loss_split import require_one_sample, split_loss
from dpsql.engine.plan_completion import finish_statement
from dpsql.engine.post_processor import PostProcessor, to_constants
from dpsql.engine.postprocess.empty_groups import (
    list_counted_sums,
    list_possibly_empty_releases,
    mark_occupied_groups,
    present_table,
    with_null_sums,
)
from dpsql.engine.prepare import PreparedQuery, PreparedRelease, emit_statement
from dpsql.engine.receipts import build_charge_details, build_receipt, collect_versions
from dpsql.engine.released_table import ReleasedTable
from dpsql.engine.stop_requests import InterruptibleGroup, StopRequests, run_and_record
from dpsql.engine.stored_answers import ReleaseStore
from dpsql.errors import (
    BackendError,
    BudgetExhausted,
    InternalError,
    OperationalError,
    QueryRejected,
)
from dpsql.ledger import Entry, Ledger, Quote
from dpsql.ledger.protocol import Account
from dpsql.ledger.refusal import require_payable
from dpsql.ledger.workers import Interruptible
from dpsql.plan.dependencies import KnownValues, list_final_releases, list_steps, substitute_subqueries
from dpsql.plan.expressions import Expr, Scalar
from dpsql.plan.nodes import OuterQuery, PublicSubquery, Release, Values, list_private_tables
from dpsql.planning.choose import LossShare, choose_plan
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import verify_plan
from dpsql.policy import Policy
from dpsql.policy.request.query import Query, ResolvedQuery, resolve_query
from dpsql.policy.request.target import Target
from dpsql.privacy.accounting.charge import NOTHING
from dpsql.privacy.mechanisms import Entropy, SystemEntropy
from dpsql.results.result import Receipt, Result
from dpsql.sql.compile.outer_query import (
    OriginalTables,
    ReleasedTables,
    emit_outer_query,
    find_unchanged_columns,
)
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.parse import mark_translation_errors, parse_cached, require_stack_room


@dataclass(frozen=True)
class Engine:
    """One policy, one database and one ledger; `analyst` runs the queries, and `reservation` is charged if there is one."""

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)
    reservation: int | None = None
    stops: StopRequests = field(default_factory=StopRequests, compare=False)

    @cached_property
    def catalog(self) -> analyst_schema.AnalystSchema:
        """Return the schema that an analyst sees."""
        built = analyst_schema.build_analyst_schema(
            self.policy, self.backend.read_schema(), self.backend.find_origin
        )
        return replace(built, database_name=self.backend.database_name)

    @cached_property
    def policy_digest(self) -> str:
        """Return the digest of the policy."""
        return self.policy.compute_digest()

    @cached_property
    def _release_store(self) -> ReleaseStore:
        return ReleaseStore(self.policy, self.analyst, self.ledger, self.backend, self.get_account)

    @property
    def public_lookups(self) -> PublicLookups:
        """Return the look-ups in public tables for one statement: each is made once, or once for all statements if nothing changes."""
        return (
            self._public_lookups.with_fresh_evaluations()
            if self.backend.is_unchanging
            else PublicLookups(self.backend)
        )

    @cached_property
    def _public_lookups(self) -> PublicLookups:
        return PublicLookups(self.backend)

    @cached_property
    def _accounts(self) -> dict[str, Account]:
        return {
            table: Account.from_budget(get_table_budget(self.policy, table))
            for table in self.policy.list_private_tables()
        }

    def get_account(self, table: str) -> Account:
        """Return the budget of a private table, with its accountant and limit."""
        return self._accounts[table]

    def plan_and_match(
        self, query: Query, at: Fraction | None = None, *, forecast: bool = False
    ) -> PreparedQuery:
        """Prepare a query up to the charge: pure, except for look-ups in public tables and stored releases.

        `at` is the loss of a step towards an accuracy; by default it is that of the first step. With `forecast`, a loss beyond the
        whole budget is planned too, and shown as refused. Raises QueryRejected with the place in the text.
        """
        return self.match_stored(self.plan(query, at, forecast=forecast))

    def match_stored(self, prepared: PreparedQuery) -> PreparedQuery:
        """Return a prepared query with the stored releases that may answer it, if the query allows them."""
        return self._release_store.match_stored(prepared) if prepared.query.replay else prepared

    def plan(
        self,
        query: Query,
        at: Fraction | None = None,
        *,
        separate_keys: bool = False,
        is_free: bool = False,
        forecast: bool = False,
    ) -> PreparedQuery:
        """Prepare a query as `plan_and_match` does, without stored releases.

        `separate_keys` is as for `analyze_release`, and `is_free` says that nothing will be charged. A plan stays right as long as
        the policy, the schema and the public tables stay; with `constants`, it belongs to the moment at which it was made.
        """
        require_stack_room()
        parsed = parse_cached(query.sql, query.dialect)
        wanted = resolve_query(query, parsed.options)
        require_above_floor(self.policy.min_epsilon, wanted.loss)
        require_below_cap(self.policy.max_epsilon, wanted.loss)
        public = self.public_lookups
        with mark_translation_errors() if parsed.translated else nullcontext():
            lowered = lower_statement(
                parsed, self.catalog, public, query.parameters, wanted.max_groups, at=query.time
            )
            outer = finish_statement(lowered, public, self.backend.dialect.functions.work_rules)
        before = list_steps(outer)
        if not self.backend.can_parse(parsed.text):
            # The parser here forgives much that the engine does not; an answer must not rest on a guess.
            raise QueryRejected(
                "the parser of the database engine cannot read the query", code="syntax", text=parsed.text
            )
        replaced = self.policy.neighbors == "replace"
        require_one_sample(
            [step for step in before if isinstance(step, Release)],
            replace=replaced,
            targeted=isinstance(wanted.loss, Target),
            text=parsed.source.text,
            at=lowered.sample,
        )
        analyses = {
            # A replaced unit may leave one part and its successor may enter another: parts are not charged separately.
            release: analyze_release(
                release if replaced else with_partition_filters(release),
                public,
                replace=replaced,
                separate_keys=separate_keys,
            )
            for release in before
            if isinstance(release, Release)
        }
        if not is_free:
            require_below_cap(compute_epsilon_cap(self.policy, analyses), wanted.loss)
            if not forecast and not isinstance(wanted.loss, Target):
                charged = [part for part, analysis in analyses.items() if not analysis.is_free]
                accounts = {
                    name: self.get_account(name)
                    for part in charged
                    for name in list_private_tables(part.input)
                }
                require_payable(self.ledger, accounts, wanted.loss, self.analyst, self.reservation)
        agreed = wanted.with_epsilon(self._resolve_epsilon(wanted, outer, analyses) if at is None else at)
        parts = split_loss(
            analyses, self.get_account, agreed.epsilon, agreed.delta, self._release_store.can_couple
        )
        prepared = tuple(
            self._plan_release(
                release, analysis, part, public, allow_clamps=not isinstance(wanted.loss, Target)
            )
            for (release, analysis), part in zip(analyses.items(), parts, strict=True)
        )
        named = {release: f"#released{index}" for index, release in enumerate(analyses)}
        empty = list_possibly_empty_releases({part.release: part.plan for part in prepared})
        sums = {part.release: list_counted_sums(part.plan) for part in prepared}
        above = ReleasedTables(named, empty, sums) if named else OriginalTables()
        sql = emit_outer_query(outer, above, traced=True)
        for step in before:
            if not isinstance(step, Release):
                emit_outer_query(
                    step.outer, above.with_step(step)
                )  # for the copies of public tables that it reads
        return PreparedQuery(
            query,
            agreed,
            parsed.explain,
            outer,
            prepared,
            above,
            sql,
            constants=lowered.constants,
            matrix_columns=parsed.matrix,
            expert_losses=ExpertLosses.from_outputs(parsed.experts, outer.outputs),
        )

    def _plan_release(
        self,
        release: Release,
        analysis: Analysis,
        loss_share: LossShare,
        public: PublicLookups,
        *,
        allow_clamps: bool,
    ) -> PreparedRelease:
        plan, dialect = (
            choose_plan(analysis, loss_share, public, allow_clamps=allow_clamps),
            self.backend.dialect,
        )
        verify_plan(plan)
        groups = (
            {} if dialect.capabilities.supports_public_groups else public.read_public_groups(release.input)
        )
        read, tables = substitute_subqueries(analysis, {}, groups), list_private_tables(release.input)
        statement = emit_statement(plan, read, dialect)
        return PreparedRelease(release, tables, plan, statement, loss_share, dialect=dialect, groups=groups)

    def combine_stored_releases(self, query: Query) -> Result:
        """Return the most accurate answer that follows from stored releases, free; nothing private is read.

        The loss only decides which statistics are meant. Raises QueryRejected with code "nothing_released".
        """
        loss = query.epsilon or query.default or min(self.policy.max_epsilon or Fraction(1), Fraction(1))
        query = replace(query, epsilon=loss, target_error=None, confidence=None, replay=False)
        return self.answer_combined(self.plan(query, is_free=True))

    def answer_combined(self, prepared: PreparedQuery) -> Result:
        """Return the answer of `combine_stored_releases` for a prepared query."""
        return self.answer_query(self._release_store.combine_stored(prepared))

    def _resolve_epsilon(
        self, wanted: ResolvedQuery, outer: OuterQuery, analyses: Mapping[Release, Analysis]
    ) -> Fraction:
        """Return the requested loss, or the smallest that meets the target; any loss if nothing private is read."""
        if not isinstance(wanted.loss, Target):
            return wanted.loss
        found = self._build_search(outer, analyses, wanted.delta, wanted.loss).search_least_epsilon()
        return max(found, self.policy.min_epsilon) if analyses else found

    def _build_search(
        self, outer: OuterQuery, analyses: Mapping[Release, Analysis], delta: Fraction | None, target: Target
    ) -> LossSearch:
        most = compute_epsilon_cap(self.policy, analyses)
        return LossSearch(
            outer,
            analyses,
            self.public_lookups,
            self.get_account,
            delta,
            target,
            most,
            self._release_store.can_couple,
        )

    def build_loss_search(self, prepared: PreparedQuery, target: Target) -> LossSearch:
        """Return the search for the loss at which a prepared query meets a target."""
        analyses = {part.release: part.plan.analysis for part in prepared.releases}
        return self._build_search(prepared.outer, analyses, prepared.terms.delta, target)

    def compute_quotes(self, prepared: PreparedQuery) -> tuple[Quote, ...]:
        """Return the ledger's quotes for the charge at this moment; nothing is written."""
        return self.ledger.dry_run(prepared.table_charges, analyst=self.analyst, reservation=self.reservation)

    def require_bindable(self, prepared: PreparedQuery) -> None:
        """Refuse a query that the database cannot bind, so that no query is charged and then not answered.

        Raises OperationalError, with constant text. Nothing is run.
        """
        charged = (part for part in prepared.releases if part.event is not None)
        if not all(
            self.backend.can_bind(part.statement.sql, part.statement.held_queries) for part in charged
        ):
            raise OperationalError(
                "the database cannot bind the statement of the query; nothing was charged",
                code="unbound",
                hint="reconnect if a table or view has changed since the connection was opened",
            )

    def answer_query(self, prepared: PreparedQuery) -> Result:
        """Charge a prepared query durably, and then read, add noise and post-process."""
        if isinstance(prepared.post_processing, OriginalTables):
            return self._answer_public(prepared)
        places = find_unchanged_columns(prepared.outer)
        if places is not None:
            return self._answer_unchanged(prepared, places)
        with ScratchDatabase() as scratch:
            above = PostProcessor(scratch, prepared.post_processing, self.backend)
            above.create_tables(prepared.releases)
            # A query whose post-processing cannot even be bound fails here, before it is charged.
            scratch.run_query(prepared.outer_sql)
            entries = self.charge_query(prepared)

            def finish_answer() -> Result:
                parts, tables, values = self._run_releases(above, prepared, entries)
                self._store_releases(parts, tables, values, entries)
                consistent_tables = above.load_consistent_tables(prepared, tables)
                rows, types = above.compute_rows(prepared, consistent_tables, values)
                receipt = self.build_receipt(prepared, entries, [table.plan for table in tables])
                derived = above.find_derived_intervals(prepared, tables, consistent_tables, values, rows)
                return build_result(
                    prepared, consistent_tables, rows, types, receipt, entropy=self.entropy, derived=derived
                )

            return self.run_after_charge(prepared, entries, finish_answer, scratch)

    def answer_single_release(self, prepared: PreparedQuery) -> tuple[ReleasedTable, Receipt]:
        """Return the released table and the receipt of a query with one release, charged, read and stored as by `answer_query`."""
        entries = self.charge_query(prepared)

        def finish_release() -> tuple[ReleasedTable, Receipt]:
            table = self._run_release(prepared.single_release, prepared, entries)
            self._store_releases(prepared.releases, [table], {}, entries)
            return table, self.build_receipt(prepared, entries, [table.plan])

        return self.run_after_charge(prepared, entries, finish_release)

    def cancel(self) -> None:
        """End the running statement for its client, unless it is charged; for other threads to call."""
        self.stops.cancel(self.backend)

    def stop(self) -> None:
        """End the running statement for the owner; for other threads to call."""
        self.stops.stop(self.backend)

    def run_after_charge(
        self,
        prepared: PreparedQuery,
        entries: Sequence[Entry],
        work: Callable[[], _Outcome],
        *beside: Interruptible,
    ) -> _Outcome:
        """Return the result of `work`, which is all that follows a charge; see `dpsql.engine.stop_requests.run_and_record`."""
        record = self._make_failure_recorder(prepared, entries) if entries else None
        return run_and_record(InterruptibleGroup((self.backend, *beside)), work, record, self.stops)

    def _make_failure_recorder(
        self, prepared: PreparedQuery, entries: Sequence[Entry]
    ) -> Callable[[str], None]:
        """Return a function that records a failure after the charge, with a code, for all tables of the statement."""
        tables = tuple(dict.fromkeys(table for part in prepared.releases for table in part.tables))
        return lambda code: self.record_failure(tables, prepared, entries, code)

    def record_failure(
        self, tables: Sequence[str], prepared: PreparedQuery, entries: Sequence[Entry], code: str
    ) -> None:
        """Record a failure after a charge, which counts towards a lock."""
        if entries:
            self.ledger.record_failure(
                tables, entries[0], analyst=self.analyst, query=prepared.query.sql, code=code
            )

    def _answer_unchanged(self, prepared: PreparedQuery, places: Sequence[int]) -> Result:
        """Answer a query whose rows are the released rows, in these columns."""
        entries = self.charge_query(prepared)

        def finish_answer() -> Result:
            table = self._run_release(prepared.single_release, prepared, entries)
            self._store_releases(prepared.releases, [table], {}, entries)
            receipt, table = self.build_receipt(prepared, entries, [table.plan]), present_table(table)
            groups = zip(
                with_null_sums(table.plan, table), mark_occupied_groups(table.plan, table), strict=True
            )
            inhabited_rows = [(row, number) for number, (row, inhabited) in enumerate(groups) if inhabited]
            rows = [(*(row[place] for place in places), number, 0) for row, number in inhabited_rows]
            types = [table.columns[place][1] for place in places]
            return build_result(prepared, [table], rows, types, receipt, entropy=self.entropy)

        return self.run_after_charge(prepared, entries, finish_answer)

    def _answer_public(self, prepared: PreparedQuery) -> Result:
        """Answer a query that reads nothing private: exactly, and free."""
        values: dict[Scalar | PublicSubquery, Expr | Values] = {}
        for step in prepared.steps:
            if not isinstance(step, Release):
                found, _ = self.backend.read_public_rows(
                    emit_outer_query(substitute_subqueries(step.outer, values), prepared.post_processing)
                )
                values[step] = to_constants(step, found)
        rows, types = self.backend.read_public_rows(
            emit_outer_query(substitute_subqueries(prepared.outer, values), prepared.post_processing)
        )
        return build_result(
            prepared, [], rows, types, self.build_receipt(prepared, (), []), entropy=self.entropy
        )

    def _run_releases(
        self, above: PostProcessor, prepared: PreparedQuery, entries: Sequence[Entry]
    ) -> tuple[list[PreparedRelease], list[ReleasedTable], KnownValues]:
        """Draw the releases and evaluate the subqueries between them, each after those that it depends on.

        Returns the releases with these values in their statements, their tables, and the values. Tables that only the outer query
        reads are not loaded yet.
        """
        values: dict[Scalar | PublicSubquery, Expr | Values] = dict(prepared.known_values)
        parts, last = {part.release: part for part in prepared.releases}, list_final_releases(prepared.steps)
        made, tables = list[PreparedRelease](), list[ReleasedTable]()
        for step in prepared.steps:
            if isinstance(step, Release):
                made.append(parts[step].with_values(values))
                tables.append(self._run_release(made[-1], prepared, entries))
                if step not in last:
                    above.load_table(step, present_table(tables[-1]))
            elif step not in values:
                values[step] = above.evaluate_subquery(step, values)
        return made, tables, values

    def _store_releases(
        self,
        parts: Sequence[PreparedRelease],
        tables: Sequence[ReleasedTable],
        values: KnownValues,
        entries: Sequence[Entry],
    ) -> None:
        """Store the charged releases, before anyone sees them."""
        if entries:
            self._release_store.store_releases(parts, tables, values, entries[0])

    def charge_query(self, prepared: PreparedQuery) -> tuple[Entry, ...]:
        """Charge a query durably, before anything private is read, and return the entries: none where it is free.

        Raises:
            BudgetExhausted: if a table has too little budget left; nothing is charged then.
            OperationalError: if the database cannot bind the statements, or the statement was stopped.
        """
        if not prepared.table_charges:
            return ()  # only keys are released, and all are public
        self.require_bindable(prepared)
        self.stops.require_not_stopped()
        self.stops.begin_charge()
        try:
            entries = self.ledger.charge(
                prepared.table_charges,
                analyst=self.analyst,
                query=prepared.query.sql,
                details=build_charge_details(
                    prepared, self.policy, self.policy_digest, collect_versions(self.backend)
                ),
                refines=[base.number for base in prepared.refinements],
                reservation=self.reservation,
            )
        except BudgetExhausted as error:
            error.hint = self._describe_affordable_target(prepared, error.code) or error.hint
            raise
        self.stops.note_charge(self._make_failure_recorder(prepared, entries))
        return entries

    def _describe_affordable_target(self, prepared: PreparedQuery, code: str) -> str | None:
        """Return a hint with the accuracy that the remaining budget allows; None if the query has no target.

        The budget is public, and so is this answer.
        """
        target = prepared.terms.target
        if target is None or target.relative_error is not None or code != BudgetExhausted.code:
            return None
        quotes = self.compute_quotes(prepared)
        left = min(
            self.get_account(quote.table).accountant.compute_remaining_epsilon(NOTHING, quote.remaining)
            for quote in quotes
        )
        if left <= 0:
            return None
        bought = self.build_loss_search(prepared, target).predict_largest_error(left)
        return f"nothing was charged; the remaining budget is enough for {replace(target, error=Fraction(bought))}"

    def _run_release(
        self, part: PreparedRelease, prepared: PreparedQuery, entries: Sequence[Entry]
    ) -> ReleasedTable:
        """Return one released table; a failure is recorded in the ledger and counts towards a lock."""
        try:
            return draw_noise(self.backend, self.entropy, part)
        except (BackendError, InternalError) as error:
            self.record_failure(part.tables, prepared, entries, error.code)
            raise

    def build_receipt(
        self,
        prepared: PreparedQuery,
        entries: Sequence[Entry],
        measured: Sequence[MeasurementPlan] | None = None,
    ) -> Receipt:
        """Return the receipt of a query; see `dpsql.engine.receipts.build_receipt`."""
        return build_receipt(
            prepared, entries, measured, self.policy, self.policy_digest, self.backend, self.analyst
        )


_Outcome = TypeVar("_Outcome")
