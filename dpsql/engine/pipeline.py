"""The dataflow, in order: parse, lower, analyse, choose, verify, charge, run, release, post-process.

All but the charge, the engine's run and the draws are pure functions over frozen values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

from dpsql.accounting.spend import NOTHING
from dpsql.analysis.analyse import Analysis, analyse
from dpsql.analysis.decimals import decimal_digits
from dpsql.analysis.partitions.assign import with_partition_filters
from dpsql.backends import Backend, Exact, catalog
from dpsql.backends.scratch import Scratch
from dpsql.covariance import semidefinite
from dpsql.engine import notices
from dpsql.engine.accuracy import Search
from dpsql.engine.budgets import budget, cap, require_above, require_below
from dpsql.engine.charge_details import charge_details
from dpsql.engine.experts import Experts
from dpsql.engine.finish import finish
from dpsql.engine.lookups import PublicTables
from dpsql.engine.loss_split import loss_shares
from dpsql.engine.post_processor import PostProcessor, answer_rows, as_constants
from dpsql.engine.prepare import PreparedQuery, PreparedRelease, emitted
from dpsql.engine.receipts import receipt_of, versions_of
from dpsql.engine.replay import Replay
from dpsql.engine.sampling import require_one_sample
from dpsql.engine.stops import CANCELLED, Interruptibles, StopRequests, is_interruption, run_recorded
from dpsql.errors import (
    BackendError,
    BudgetExhausted,
    DatabaseError,
    InternalError,
    OperationalError,
    QueryRejected,
)
from dpsql.ledger import Entry, Ledger, Quote
from dpsql.ledger.protocol import Account
from dpsql.ledger.refusal import require_payable
from dpsql.mechanisms import Entropy, SystemEntropy
from dpsql.mechanisms.release_cache import clear_cache
from dpsql.plan.dependencies import Known, final_releases, steps, substitute
from dpsql.plan.expr import Expr, Scalar
from dpsql.plan.nodes import OuterQuery, PublicSubquery, Release, Values, private_tables
from dpsql.plan.provenance import provenance
from dpsql.planning.choose import LossShare, choose
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import verify
from dpsql.policy import Policy
from dpsql.postprocess.nobody import counted_sums, presented, with_null_sums
from dpsql.postprocess.occupied_groups import may_be_empty, occupied
from dpsql.release import GroupRows, Keys, ReleasedTable, open_stream, refine, release, release_in_stages
from dpsql.replay.combine import combined
from dpsql.replay.refine import CoupledRefinement, IndependentTopUp
from dpsql.request.query import Query, ResolvedQuery, resolve
from dpsql.request.target import Target
from dpsql.result import Receipt, Result
from dpsql.sql.emit.outer_query import Copies, Originals, emit_outer_query, unchanged
from dpsql.sql.emit.stages import Stages
from dpsql.sql.emit.statement import Statement
from dpsql.sql.lower.statement import lower
from dpsql.sql.read.parse import noting_translation, parse_once, require_room
from dpsql.synthesis.stream import Cells, RunningStream, StreamedCount
from dpsql.uncertainty.cells import RowProvenance
from dpsql.uncertainty.derived import DerivedIntervals, bounded_columns, intervals_of_answer
from dpsql.workers import Interruptible


@dataclass(frozen=True)
class Engine:
    """One policy, one database, one ledger; `analyst` asks, `reservation` is the one that is charged."""

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)
    reservation: int | None = None
    stops: StopRequests = field(default_factory=StopRequests, compare=False)

    @cached_property
    def catalog(self) -> catalog.Catalog:
        """What exists for an analyst."""
        built = catalog.build(self.policy, self.backend.schema(), self.backend.origin)
        return replace(built, database=self.backend.database)

    @cached_property
    def policy_digest(self) -> str:
        """The digest of the policy."""
        return self.policy.digest()

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self.policy, self.analyst, self.ledger, self.backend, self.account)

    @property
    def public(self) -> PublicTables:
        """What may be looked up before a charge, for one statement: each thing once, or once for good where nothing changes."""
        return self._public_tables.for_statement() if self.backend.unchanging else PublicTables(self.backend)

    @cached_property
    def _public_tables(self) -> PublicTables:
        return PublicTables(self.backend)

    @cached_property
    def _accounts(self) -> dict[str, Account]:
        return {table: Account.of(budget(self.policy, table)) for table in self.policy.private_tables()}

    def account(self, table: str) -> Account:
        """The budget of a private table with its accountant and limit."""
        return self._accounts[table]

    def prepare(self, asked: Query, at: Fraction | None = None, *, forecast: bool = False) -> PreparedQuery:
        """Everything up to the charge: pure, but for look-ups in public tables and stored releases.

        `at` is the loss of a step to an accuracy, without which it is the first step's. With `forecast`
        a loss beyond the whole budget is planned too, and shown as refused. Raises QueryRejected with the place in the text.
        """
        return self.replayed(self.planned(asked, at, forecast=forecast))

    def replayed(self, planned: PreparedQuery) -> PreparedQuery:
        """What was planned, with the stored releases that there are now, where the query allows them."""
        return self._replay.replay(planned) if planned.asked.replay else planned

    def planned(
        self,
        asked: Query,
        at: Fraction | None = None,
        *,
        apart: bool = False,
        free: bool = False,
        forecast: bool = False,
    ) -> PreparedQuery:
        """As `prepare`, without a look at stored releases; `apart` is as for `analyse`, `free` says that nothing will be charged.

        A plan stays right as long as policy, catalogue and public tables stay; where it has `constants`, it is of the
        moment at which it was asked for.
        """
        require_room()
        parsed = parse_once(asked.sql, asked.dialect)
        wanted = resolve(asked, parsed.options)
        require_above(self.policy.min_epsilon, wanted.loss)
        require_below(self.policy.max_epsilon, wanted.loss)
        public = self.public
        with noting_translation() if parsed.translated else nullcontext():
            lowered = lower(parsed, self.catalog, public, asked.parameters, wanted.max_groups, at=asked.time)
            outer = finish(lowered, public, self.backend.dialect.work)
        before = steps(outer)
        if not self.backend.parses(parsed.text):
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
            # One who is replaced may leave one part and come to another: no part is charged for itself.
            release: analyse(
                release if replaced else with_partition_filters(release),
                public,
                replace=replaced,
                apart=apart,
            )
            for release in before
            if isinstance(release, Release)
        }
        if not free:
            require_below(cap(self.policy, analyses), wanted.loss)
            if not forecast and not isinstance(wanted.loss, Target):
                charged = [part for part, analysis in analyses.items() if not analysis.free]
                accounts = {
                    name: self.account(name) for part in charged for name in private_tables(part.input)
                }
                require_payable(self.ledger, accounts, wanted.loss, self.analyst, self.reservation)
        agreed = wanted.at(self._epsilon(wanted, outer, analyses) if at is None else at)
        parts = loss_shares(analyses, self.account, agreed.epsilon, agreed.delta, self._replay.couples)
        prepared = tuple(
            self._measured(release, analysis, part, public, learn=not isinstance(wanted.loss, Target))
            for (release, analysis), part in zip(analyses.items(), parts, strict=True)
        )
        named = {release: f"#released{index}" for index, release in enumerate(analyses)}
        empty = may_be_empty({part.release: part.plan for part in prepared})
        sums = {part.release: counted_sums(part.plan) for part in prepared}
        above = Copies(named, empty, sums) if named else Originals()
        sql = emit_outer_query(outer, above, traced=True)
        for step in before:
            if not isinstance(step, Release):
                emit_outer_query(step.outer, above.of_step(step))  # for the copies that it reads
        return PreparedQuery(
            asked,
            agreed,
            parsed.explain,
            outer,
            prepared,
            above,
            sql,
            constants=lowered.constants,
            matrix=parsed.matrix,
            experts=Experts.of(parsed.experts, outer.outputs),
        )

    def _measured(
        self, release: Release, analysis: Analysis, price: LossShare, public: PublicTables, *, learn: bool
    ) -> PreparedRelease:
        plan, dialect = choose(analysis, price, public, learn=learn), self.backend.dialect
        verify(plan)
        groups = {} if dialect.public_groups else public.groups(release.input)
        read, tables = substitute(analysis, {}, groups), private_tables(release.input)
        statement = emitted(plan, read, dialect)
        return PreparedRelease(release, tables, plan, statement, price, dialect=dialect, groups=groups)

    def combine(self, asked: Query) -> Result:
        """The most accurate answer that follows from stored releases: free, and nothing private is read.

        The loss decides only which statistics are meant. Raises QueryRejected with code "nothing_released".
        """
        loss = asked.epsilon or asked.default or min(self.policy.max_epsilon or Fraction(1), Fraction(1))
        asked = replace(asked, epsilon=loss, target_error=None, confidence=None, replay=False)
        return self.answer_combined(self.planned(asked, free=True))

    def answer_combined(self, prepared: PreparedQuery) -> Result:
        """As `combine`, of a query that is prepared."""
        return self.answer(self._replay.combine(prepared))

    def _epsilon(
        self, wanted: ResolvedQuery, outer: OuterQuery, analyses: Mapping[Release, Analysis]
    ) -> Fraction:
        """The loss that was asked for, or the least that is accurate enough; any where nothing private is read."""
        if not isinstance(wanted.loss, Target):
            return wanted.loss
        found = self._search(outer, analyses, wanted.delta, wanted.loss).least_epsilon()
        return max(found, self.policy.min_epsilon) if analyses else found

    def _search(
        self, outer: OuterQuery, analyses: Mapping[Release, Analysis], delta: Fraction | None, target: Target
    ) -> Search:
        most = cap(self.policy, analyses)
        return Search(outer, analyses, self.public, self.account, delta, target, most, self._replay.couples)

    def search(self, prepared: PreparedQuery, target: Target) -> Search:
        """The search for the loss at which what was prepared meets a target."""
        analyses = {part.release: part.plan.analysis for part in prepared.releases}
        return self._search(prepared.outer, analyses, prepared.terms.delta, target)

    def quote(self, prepared: PreparedQuery) -> tuple[Quote, ...]:
        """What the ledger would say to the charge now; writes nothing."""
        return self.ledger.dry_run(prepared.bills, analyst=self.analyst, reservation=self.reservation)

    def require_bound(self, prepared: PreparedQuery) -> None:
        """Refuses a query that the database cannot bind, so that nothing is charged that is not answered.

        Raises OperationalError, with constant text. Nothing is run.
        """
        charged = (part for part in prepared.releases if part.event is not None)
        if not all(self.backend.binds(part.statement.sql, part.statement.held) for part in charged):
            raise OperationalError(
                "the database cannot bind the statement of the query; nothing was charged",
                code="unbound",
                hint="reconnect if a table or view has changed since the connection was opened",
            )

    def answer(self, prepared: PreparedQuery) -> Result:
        """Charges durably first, then reads, noises and post-processes what was prepared."""
        if isinstance(prepared.above, Originals):
            return self._public(prepared)
        places = unchanged(prepared.outer)
        if places is not None:
            return self._unchanged(prepared, places)
        with Scratch() as scratch:
            above = PostProcessor(scratch, prepared.above, self.backend)
            above.create(prepared.releases)
            # A query whose post-processing cannot even be bound fails here, before it is charged.
            scratch.query(prepared.outer_sql)
            entries = self._charge(prepared)

            def finished() -> Result:
                parts, tables, values = self._released(above, prepared, entries)
                self._keep(parts, tables, values, entries)
                consistent_tables = above.load_consistent(prepared, tables)
                rows, types = above.rows(prepared, consistent_tables, values)
                receipt = self.receipt(prepared, entries, [table.plan for table in tables])
                derived = above.derived(prepared, tables, consistent_tables, values, rows)
                return self._result(prepared, consistent_tables, rows, types, receipt, derived=derived)

            return self._after_charge(prepared, entries, finished, scratch)

    def release_alone(self, prepared: PreparedQuery) -> tuple[ReleasedTable, Receipt]:
        """The released table of a query that has one release, and its receipt: charged, read and stored as by `answer`."""
        entries = self._charge(prepared)

        def finished() -> tuple[ReleasedTable, Receipt]:
            table = self._release(prepared.only, prepared, entries)
            self._keep(prepared.releases, [table], {}, entries)
            return table, self.receipt(prepared, entries, [table.plan])

        return self._after_charge(prepared, entries, finished)

    def open_stream(self, prepared: PreparedQuery) -> tuple[RunningStream, Receipt]:
        """A stream of counts of the groups of a query with one release, all of it charged before its groups are read."""
        part, entries = prepared.only, self._charge(prepared)

        def begin() -> RunningStream:
            return open_stream(part.plan, part.statement, self.backend.run(part.statement.sql), self.entropy)

        def finished() -> tuple[RunningStream, Receipt]:
            try:
                running = _without_frames(begin)
            except (BackendError, InternalError) as error:
                self._record(part.tables, prepared, entries, error.code)
                raise
            return running, self.receipt(prepared, entries, [part.plan])

        return self._after_charge(prepared, entries, finished)

    def streamed(
        self, running: RunningStream, cells: Cells, prepared: PreparedQuery, entry: Entry | None
    ) -> StreamedCount:
        """One answer of a stream; a failure ends it, says nothing of exact counts, and is recorded as any other is."""
        self.require_current(entry)
        before = running.known(cells)
        if before is not None:
            return before
        entries = () if entry is None else (entry,)
        try:
            return _without_frames(lambda: running.answer(cells, self.entropy))
        except BaseException as error:
            if is_interruption(error) or isinstance(error, (BackendError, InternalError)):
                self._record(prepared.only.tables, prepared, entries, getattr(error, "code", CANCELLED))
            raise

    def require_current(self, entry: Entry | None) -> None:
        """Refuses what an entry has paid for where its period has ended since: see `Ledger.is_current`.

        Raises OperationalError (`stream_ended`).
        """
        if entry is None or not self.ledger.is_current(entry):
            raise OperationalError(
                "the budget that paid for the stream has begun anew since, by its period or a reset",
                code="stream_ended",
                hint="open another stream, which is charged anew",
            )

    def cancel(self) -> None:
        """Ends the statement that runs for its client, unless it is charged; for other threads to call."""
        self.stops.cancel(self.backend)

    def stop(self) -> None:
        """Ends the statement that runs for the owner; for other threads to call."""
        self.stops.stop(self.backend)

    def _after_charge(
        self,
        prepared: PreparedQuery,
        entries: Sequence[Entry],
        work: Callable[[], _Drawn],
        *beside: Interruptible,
    ) -> _Drawn:
        """What `work` returns, which is all that follows a charge; see `dpsql.engine.stops.run_recorded`."""
        record = self._recorder(prepared, entries) if entries else None
        return run_recorded(Interruptibles((self.backend, *beside)), work, record, self.stops)

    def _recorder(self, prepared: PreparedQuery, entries: Sequence[Entry]) -> Callable[[str], None]:
        """What records that a statement has failed after its charge, with a code, of all its tables."""
        tables = tuple(dict.fromkeys(table for part in prepared.releases for table in part.tables))
        return lambda code: self._record(tables, prepared, entries, code)

    def _record(
        self, tables: Sequence[str], prepared: PreparedQuery, entries: Sequence[Entry], code: str
    ) -> None:
        """Records a failure after a charge, which counts towards a lock."""
        if entries:
            self.ledger.fail(tables, entries[0], analyst=self.analyst, query=prepared.asked.sql, code=code)

    def _unchanged(self, prepared: PreparedQuery, places: Sequence[int]) -> Result:
        """The released rows themselves, in these columns."""
        entries = self._charge(prepared)

        def finished() -> Result:
            table = self._release(prepared.only, prepared, entries)
            self._keep(prepared.releases, [table], {}, entries)
            receipt, table = self.receipt(prepared, entries, [table.plan]), presented(table)
            groups = zip(with_null_sums(table.plan, table), occupied(table.plan, table), strict=True)
            inhabited_rows = [(row, number) for number, (row, inhabited) in enumerate(groups) if inhabited]
            rows = [(*(row[place] for place in places), number, 0) for row, number in inhabited_rows]
            types = [table.columns[place][1] for place in places]
            return self._result(prepared, [table], rows, types, receipt)

        return self._after_charge(prepared, entries, finished)

    def _public(self, prepared: PreparedQuery) -> Result:
        """A query on nothing private is answered exactly, and free."""
        values: dict[Scalar | PublicSubquery, Expr | Values] = {}
        for step in prepared.before:
            if not isinstance(step, Release):
                found, _ = self.backend.public_rows(
                    emit_outer_query(substitute(step.outer, values), prepared.above)
                )
                values[step] = as_constants(step, found)
        rows, types = self.backend.public_rows(
            emit_outer_query(substitute(prepared.outer, values), prepared.above)
        )
        return self._result(prepared, [], rows, types, self.receipt(prepared, (), []))

    def _released(
        self, above: PostProcessor, prepared: PreparedQuery, entries: Sequence[Entry]
    ) -> tuple[list[PreparedRelease], list[ReleasedTable], Known]:
        """Answers the releases, and the queries whose values stand in others, each after what it needs.

        Returns the releases with these values in their statements, their tables, and the values. The tables that only
        the outer query reads are not loaded yet.
        """
        values: dict[Scalar | PublicSubquery, Expr | Values] = dict(prepared.known)
        parts, last = {part.release: part for part in prepared.releases}, final_releases(prepared.before)
        made, tables = list[PreparedRelease](), list[ReleasedTable]()
        for step in prepared.before:
            if isinstance(step, Release):
                made.append(parts[step].with_values(values))
                tables.append(self._release(made[-1], prepared, entries))
                if step not in last:
                    above.load(step, presented(tables[-1]))
            elif step not in values:
                values[step] = above.evaluate(step, values)
        return made, tables, values

    def _keep(
        self,
        parts: Sequence[PreparedRelease],
        tables: Sequence[ReleasedTable],
        values: Known,
        entries: Sequence[Entry],
    ) -> None:
        """Stores what was charged, before anybody sees it."""
        if entries:
            self._replay.store(parts, tables, values, entries[0])

    def _charge(self, prepared: PreparedQuery) -> tuple[Entry, ...]:
        if not prepared.bills:
            return ()  # the keys alone, all of them public
        self.require_bound(prepared)
        self.stops.require_not_stopped()
        self.stops.begin_charge()
        try:
            entries = self.ledger.charge(
                prepared.bills,
                analyst=self.analyst,
                query=prepared.asked.sql,
                details=charge_details(prepared, self.policy, self.policy_digest, versions_of(self.backend)),
                refines=[base.number for base in prepared.refines],
                reservation=self.reservation,
            )
        except BudgetExhausted as error:
            error.hint = self._what_is_left_buys(prepared, error.code) or error.hint
            raise
        self.stops.charged(self._recorder(prepared, entries))
        return entries

    def _what_is_left_buys(self, prepared: PreparedQuery, code: str) -> str | None:
        """To one who asked for an accuracy: which one there still is. The budget is public, and so is its answer."""
        target = prepared.terms.target
        if target is None or target.share is not None or code != BudgetExhausted.code:
            return None
        quotes = self.quote(prepared)
        left = min(
            self.account(quote.table).accountant.remaining_epsilon(NOTHING, quote.left) for quote in quotes
        )
        if left <= 0:
            return None
        bought = self.search(prepared, target).error_at(left)
        return f"nothing was charged; what is left buys {replace(target, error=Fraction(bought))}"

    def _release(
        self, part: PreparedRelease, prepared: PreparedQuery, entries: Sequence[Entry]
    ) -> ReleasedTable:
        """One release; a failure, which the caller sees, is recorded in the ledger and counts towards a lock."""
        try:
            return self._drawn(part)
        except (BackendError, InternalError) as error:
            self._record(part.tables, prepared, entries, error.code)
            raise

    def _drawn(self, prepared: PreparedRelease) -> ReleasedTable:
        if prepared.stored is not None:
            return prepared.stored.table
        prepared = prepared.sampled(self.entropy)
        plan, statement, refinement = prepared.plan, prepared.statement, prepared.refinement
        if statement.stages is not None and refinement is None:
            return self._drawn_in_stages(prepared, statement.stages)
        # What is not charged, because it follows from the policy alone, reads nothing private either.
        with self._held(statement if plan.event is not None else None):
            exact = Exact([]) if plan.event is None else self.backend.run(statement.sql)

        def draw() -> ReleasedTable:
            match None if refinement is None else refinement.law:
                case CoupledRefinement() as law if refinement is not None:
                    return refine(plan, (statement, exact), refinement.table, law, self.entropy)
                case IndependentTopUp(plan=beside) if refinement is not None:
                    return combined([refinement.table, release(beside, statement, exact, self.entropy)])
            return release(plan, statement, exact, self.entropy)

        return _without_frames(draw)

    def _held(self, statement: Statement | None) -> AbstractContextManager[None]:
        """The temporary tables that a statement reads, where the engine's dialect holds any."""
        if statement is None or not statement.held:
            return nullcontext()
        return self.backend.staged(statement.held)

    def _drawn_in_stages(self, prepared: PreparedRelease, stages: Stages) -> ReleasedTable:
        """A release with clamps by group: contributions are read once, and the groups when clamps are chosen."""

        def read(plan: MeasurementPlan, selected: Sequence[Keys] | None = None) -> GroupRows:
            sums = prepared.sums(plan, selected)
            with self._held(sums):
                return sums, self.backend.run(sums.sql)

        with self.backend.staged(stages.tables):
            histograms = self.backend.run(stages.histograms)
            return _without_frames(lambda: release_in_stages(prepared.plan, histograms, read, self.entropy))

    def _result(
        self,
        prepared: PreparedQuery,
        tables: Sequence[ReleasedTable],
        rows: Sequence[tuple[Any, ...]],
        types: Sequence[str],
        receipt: Receipt,
        *,
        derived: DerivedIntervals | None = None,
    ) -> Result:
        outer, width = prepared.outer, len(prepared.outer.outputs)
        origins: RowProvenance | None = None
        if (found := provenance(outer)) is not None:
            places = [part.release for part in prepared.releases]
            read = [tables[places.index(trace.release)] for trace in found]
            parts = [(table.plan, trace, table) for table, trace in zip(read, found, strict=True)]
            origins = RowProvenance.of(parts, [(int(row[width]), int(row[width + 1])) for row in rows])
        digits = [decimal_digits(output.expr) for output in outer.outputs]
        bounded = bounded_columns(origins, derived, width)
        result = Result(
            columns=tuple(output.name for output in prepared.outer.outputs),
            types=tuple(
                kind if of is None else f"DECIMAL({of[0]},{of[1]})"
                for kind, of in zip(types, digits, strict=False)
            ),
            rows=semidefinite(answer_rows(rows, digits), prepared.matrix),
            scales=((None,) * width,) * len(rows) if origins is None else origins.scales(),
            receipt=receipt,
            _interval_of=intervals_of_answer(origins, derived),
            _bounded=bounded,
            _counts=() if origins is None else origins.counts,
            _branches=() if origins is None else tuple(int(row[width + 1]) for row in rows),
            _noticed=notices.of_answer(prepared, tables, origins, bounded),
        )
        return result if prepared.experts is None else prepared.experts.chosen(result, self.entropy)

    def receipt(
        self,
        prepared: PreparedQuery,
        entries: Sequence[Entry],
        measured: Sequence[MeasurementPlan] | None = None,
    ) -> Receipt:
        """Return the receipt, as `receipt_of`."""
        return receipt_of(
            prepared, entries, measured, self.policy, self.policy_digest, self.backend, self.analyst
        )


_Drawn = TypeVar("_Drawn")


def _without_frames(draw: Callable[[], _Drawn]) -> _Drawn:
    """What is released; an error that stops it says nothing of exact values, neither in its words nor by its frames."""
    failure: DatabaseError
    try:
        return draw()
    except BackendError as error:
        failure = error.with_traceback(None)
    except Exception as error:  # noqa: BLE001  (its words and its frames may hold exact values)
        failed = type(error).__name__
        failure = InternalError(f"the noise could not be added ({failed}); the charge stays", code="release")
    finally:
        clear_cache()
    raise failure
