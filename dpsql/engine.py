"""The dataflow, in order: parse, lower, analyse, choose, verify, charge, run, release, post-process.

All but the charge, the engine's run and the draws are pure functions over frozen values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpsql import catalog
from dpsql.accounting import Budget, Entry, Ledger, Quote
from dpsql.accounting.events import to_json
from dpsql.accounting.ledger import Account
from dpsql.accounting.spend import NOTHING
from dpsql.accuracy import Search
from dpsql.analysis.analyse import Analysis, analyse
from dpsql.analysis.bounds import RELEASED
from dpsql.analysis.choose import Measured, choose
from dpsql.analysis.price import Price
from dpsql.analysis.verify import verify
from dpsql.backends import Backend, Exact
from dpsql.backends.scratch import Scratch
from dpsql.errors import BudgetExhausted, InternalError, QueryRejected
from dpsql.mechanisms import Entropy, SystemEntropy
from dpsql.plan import show
from dpsql.plan.expr import Expr, Literal, Scalar
from dpsql.plan.nodes import Answer, Join, Post, Relation, Release, Values, private_tables
from dpsql.plan.steps import Known, needs, releases, resolved, steps
from dpsql.plan.traces import traces
from dpsql.policy import Policy
from dpsql.prepared import Asked, Prepared, PreparedRelease, Request, mechanisms_of, requested
from dpsql.pricing import prices
from dpsql.release import ReleasedTable, release
from dpsql.result import Receipt, Result
from dpsql.sql.emit import emit
from dpsql.sql.lower import lower
from dpsql.sql.parse import parse, require_room, told_of_translation
from dpsql.sql.post import Copies, Originals, emit_copy, emit_post, unchanged
from dpsql.sql.rows import emit_multiplicity
from dpsql.target import Target
from dpsql.uncertainty import Origins, ends_of


def budget(policy: Policy, table: str) -> Budget:
    """The budget that a policy gives to a private table."""
    spec = policy.budget_of(table)
    return Budget(spec.accountant, spec.epsilon, spec.delta)


@dataclass(frozen=True, slots=True)
class PublicTables:
    """Look-ups in public tables, whose values are no secret."""

    backend: Backend
    _known: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def multiplicity(self, join: Join) -> int:
        """The most rows of the right side of `join` that one row can be equal to."""
        right = resolved(join.right, self._values(join.right))
        sql = emit_multiplicity(replace(join, right=right))
        if sql not in self._known:
            self._known[sql] = self.backend.public_number(sql)
        return self._known[sql]

    def rows(self, query: Post) -> Sequence[tuple[Any, ...]]:
        """The rows of a query on public tables."""
        sql = emit_post(query, Originals())
        if sql not in self._rows:
            self._rows[sql], _ = self.backend.public_rows(sql)
        return self._rows[sql]

    def _values(self, source: Relation) -> Known:
        """The values of the queries of public tables that a public source reads."""
        values: dict[Scalar | Answer, Expr | Values] = {}
        for step in needs(source):
            if isinstance(step, Release):
                raise TypeError("what depends on a release is looked up by nobody before it")
            found, _ = self.backend.public_rows(emit_post(resolved(step.post, values), Originals()))
            values[step] = _known(step, found)
        return values


@dataclass(frozen=True)
class Engine:
    """One policy, one database, one ledger; `analyst` is who asks."""

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)

    @cached_property
    def catalog(self) -> catalog.Catalog:
        """What exists for an analyst."""
        return catalog.build(self.policy, self.backend.schema())

    @property
    def public(self) -> PublicTables:
        """What may be looked up before a charge, each thing once."""
        return PublicTables(self.backend)

    def account(self, table: str) -> Account:
        """The budget of a table with its accountant and limit."""
        return Account.of(budget(self.policy, table))

    def prepare(self, asked: Asked) -> Prepared:
        """Everything up to the charge: pure, but for look-ups in public tables.

        Raises QueryRejected with the place in the text.
        """
        require_room()
        parsed = parse(asked.sql, asked.dialect)
        wanted = requested(asked, parsed.options)
        self._require_below_cap(wanted.loss)
        public = self.public
        with told_of_translation() if parsed.translated else nullcontext():
            post = lower(parsed, self.catalog, public, asked.parameters, wanted.max_groups)
        if not self.backend.parses(parsed.text):
            # The parser here forgives much that the engine does not; an answer must not rest on a guess.
            raise QueryRejected(
                "the database's own parser cannot read the query", code="syntax", text=parsed.text
            )
        replaced = self.policy.neighbors == "replace"
        analyses = {release: analyse(release, public, replace=replaced) for release in releases(post)}
        agreed = wanted.at(self._epsilon(wanted, post, analyses))
        asked_for = tuple(analyses)
        parts = prices(asked_for, self.account, agreed.epsilon, agreed.delta)
        prepared = tuple(
            _measured(analysis, part, public, learn=not isinstance(wanted.loss, Target))
            for analysis, part in zip(analyses.values(), parts, strict=True)
        )
        named = {release: f"#released{index}" for index, release in enumerate(asked_for)}
        above = Copies(named) if named else Originals()
        sql = emit_post(post, above, traced=True)
        for step in steps(post):
            if not isinstance(step, Release):
                emit_post(step.post, above)  # for the copies that it reads
        return Prepared(asked, agreed, parsed.explain, post, prepared, above, sql)

    def _require_below_cap(self, loss: Fraction | Target) -> None:
        cap = self.policy.max_epsilon
        if cap is not None and not isinstance(loss, Target) and loss > cap:
            raise QueryRejected(
                f"epsilon {float(min(loss, Fraction(10**300))):g} is above the policy's cap of {float(cap):g} for one query",
                code="epsilon_cap",
                hint="ask with a smaller epsilon",
            )

    def _epsilon(self, wanted: Request, post: Post, analyses: Mapping[Release, Analysis]) -> Fraction:
        """The loss that was asked for, or the least that is accurate enough; any where nothing private is read."""
        if not isinstance(wanted.loss, Target):
            return wanted.loss
        return self._search(post, analyses, wanted.delta, wanted.loss).least_epsilon()

    def _search(
        self, post: Post, analyses: Mapping[Release, Analysis], delta: Fraction | None, target: Target
    ) -> Search:
        return Search(post, analyses, self.public, self.account, delta, target, self.policy.max_epsilon)

    def quote(self, prepared: Prepared) -> tuple[Quote, ...]:
        """What the ledger would say to the charge now; writes nothing."""
        return self.ledger.dry_run(prepared.charges) if prepared.charges else ()

    def answer(self, prepared: Prepared) -> Result:
        """Charges durably first, then reads, noises and post-processes what was prepared."""
        if isinstance(prepared.above, Originals):
            return self._public(prepared)
        places = unchanged(prepared.post)
        if places is not None:
            return self._unchanged(prepared, places)
        with Scratch() as scratch:
            self._furnish(scratch, prepared, prepared.above)
            # A query whose post-processing cannot even be bound fails here, before it is charged.
            scratch.query(prepared.post_sql)
            entries = self._charge(prepared)
            tables, values = self._released(scratch, prepared, prepared.above)
            post = resolved(prepared.post, values, within_releases=False)
            rows, types = scratch.query(emit_post(post, prepared.above, traced=True))
        return self._result(prepared, tables, rows, types, entries)

    def _unchanged(self, prepared: Prepared, places: Sequence[int]) -> Result:
        """The released rows themselves, in these columns."""
        entries = self._charge(prepared)
        table = self._release(prepared.only, {})
        rows = [(*(row[place] for place in places), number, 0) for number, row in enumerate(table.rows)]
        return self._result(prepared, [table], rows, [table.columns[place][1] for place in places], entries)

    def _public(self, prepared: Prepared) -> Result:
        """A query on nothing private is answered exactly, and free."""
        values: dict[Scalar | Answer, Expr | Values] = {}
        for step in steps(prepared.post):
            if not isinstance(step, Release):
                found, _ = self.backend.public_rows(emit_post(resolved(step.post, values), prepared.above))
                values[step] = _known(step, found)
        rows, types = self.backend.public_rows(emit_post(resolved(prepared.post, values), prepared.above))
        return self._result(prepared, [], rows, types, ())

    def _furnish(self, scratch: Scratch, prepared: Prepared, above: Copies) -> None:
        """Makes the empty released tables, and copies of the public tables that are read beside them."""
        for part in prepared.releases:
            ends = [(end.name, end.type.value) for end in above.ends.get(part.release, ())]
            scratch.create(above.released[part.release], [*part.columns, *ends])
        for table, read in above.columns.items():
            columns = list(read.values())
            rows, _ = self.backend.public_rows(emit_copy(table, columns))
            scratch.create(
                table, [(column.name, column.type.value) for column in columns] or [("#", "BIGINT")]
            )
            scratch.fill(table, _series(rows, len(columns)) if columns else [[1] * len(rows)])

    def _released(
        self, scratch: Scratch, prepared: Prepared, above: Copies
    ) -> tuple[list[ReleasedTable], Known]:
        """Answers the releases, and the scalar queries over them, each after what it needs."""
        values: dict[Scalar | Answer, Expr | Values] = {}
        known = {release.release: release for release in prepared.releases}
        tables = []
        for step in steps(prepared.post):
            if isinstance(step, Release):
                table = self._release(known[step], values)
                series = _series(table.rows, len(table.columns))
                ends = [ends_of(table.plan, table, end) for end in above.ends.get(step, ())]
                scratch.fill(above.released[step], [*series, list(range(len(table.rows))), *ends])
                tables.append(table)
            else:
                query = resolved(step.post, values, within_releases=False)
                found, _ = scratch.query(emit_post(query, above))
                values[step] = _known(step, found)
        return tables, values

    def _charge(self, prepared: Prepared) -> tuple[Entry, ...]:
        if not prepared.charges:
            return ()  # the keys alone, all of them public
        details = {
            "plan": show.digest(prepared.post),
            "data_version": self.policy.data_version,
            "mechanisms": prepared.mechanisms,
        }
        try:
            return self.ledger.charge(
                prepared.charges, analyst=self.analyst, query=prepared.asked.sql, details=details
            )
        except BudgetExhausted as error:
            error.hint = self._what_is_left_buys(prepared, error.code) or error.hint
            raise

    def _what_is_left_buys(self, prepared: Prepared, code: str) -> str | None:
        """To one who asked for an accuracy: which one there still is. The budget is public, and so is its answer."""
        target = prepared.terms.target
        if target is None or code != BudgetExhausted.code:
            return None
        quotes = self.quote(prepared)
        left = min(
            self.account(quote.table).accountant.remaining_epsilon(NOTHING, quote.left) for quote in quotes
        )
        if left <= 0:
            return None
        analyses = {part.release: part.plan.analysis for part in prepared.releases}
        bought = self._search(prepared.post, analyses, prepared.terms.delta, target).error_at(left)
        return f"nothing was charged; what is left buys {replace(target, error=Fraction(bought))}"

    def _release(self, prepared: PreparedRelease, values: Known) -> ReleasedTable:
        plan, statement = prepared.plan, prepared.statement
        if values:
            statement = emit(resolved(plan.analysis, values), plan.ranked, plan.best, plan.clamps)
        # What is not charged, because it follows from the policy alone, reads nothing private either.
        exact = Exact([]) if plan.event is None else self.backend.run(statement.sql)
        failed = ""
        try:
            return release(plan, statement, exact, self.entropy)
        except Exception as error:  # noqa: BLE001  (its words and its frames may hold exact values)
            failed = type(error).__name__
        raise InternalError(f"the noise could not be added ({failed}); the charge stays", code="release")

    def _result(
        self,
        prepared: Prepared,
        tables: Sequence[ReleasedTable],
        rows: Sequence[tuple[Any, ...]],
        types: Sequence[str],
        entries: Sequence[Entry],
    ) -> Result:
        post, width = prepared.post, len(prepared.post.outputs)
        found = traces(post)
        origins: Origins | None = None
        if found is not None:
            places = [part.release for part in prepared.releases]
            parts = [
                (tables[at].plan, trace, tables[at])
                for trace in found
                for at in (places.index(trace.release),)
            ]
            origins = Origins.of(parts, [(int(row[width]), int(row[width + 1])) for row in rows])
        return Result(
            columns=tuple(output.name for output in prepared.post.outputs),
            types=tuple(types[:width]),
            rows=tuple(tuple(row[:width]) for row in rows),
            scales=((None,) * width,) * len(rows) if origins is None else origins.scales(),
            receipt=self.receipt(prepared, entries, [table.plan for table in tables]),
            _interval_of=_unknown if origins is None else origins.interval,
            _bounded=() if origins is None else origins.bounded,
            _counts=() if origins is None else origins.counts,
        )

    def receipt(
        self, prepared: Prepared, entries: Sequence[Entry], measured: Sequence[Measured] | None = None
    ) -> Receipt:
        """The receipt of a query that was charged as `entries` say, or, without any, explained.

        `measured` are the plans of its releases with all that was chosen on the way.
        """
        event = prepared.event
        return Receipt(
            query=prepared.asked.sql,
            plan=show.digest(prepared.post),
            analyst=self.analyst,
            privacy_unit=self.policy.privacy_unit,
            neighbors=self.policy.neighbors,
            data_version=self.policy.data_version,
            policy=self.policy.digest(),
            mechanisms=tuple(
                prepared.mechanisms
                if measured is None
                else [mechanism for plan in measured for mechanism in mechanisms_of(plan)]
            ),
            loss=None if event is None else json.loads(to_json(event)),
            entries=tuple(
                {
                    "id": entry.id,
                    "table": entry.table,
                    "at": entry.at.isoformat(),
                    "loss": str(entry.spend.loss_fraction),
                    "delta": str(entry.spend.delta_fraction),
                    "digest": entry.digest,
                }
                for entry in entries
            ),
            versions=_versions(self.backend),
            target=prepared.terms.targeted(),
        )


def _measured(analysis: Analysis, price: Price, public: PublicTables, *, learn: bool) -> PreparedRelease:
    release, plan = analysis.release, choose(analysis, price, public, learn=learn)
    verify(plan)
    statement = emit(analysis, plan.ranked, plan.best, plan.clamps)
    return PreparedRelease(release, private_tables(release.input), plan, statement, price)


def _unknown(_row: int, _column: int, _confidence: float) -> None:
    """The interval of a cell that is derived from several released ones."""


def _series(rows: Sequence[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    """Rows as columns."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _known(step: Scalar | Answer, rows: Sequence[tuple[Any, ...]]) -> Literal | Values:
    """What a query has given, as constants: of a scalar query its value, NULL where it has no row."""
    cleaned = tuple(tuple(map(_tame, row)) for row in rows)
    if isinstance(step, Answer):
        return Values(cleaned, step.alias, step.columns)
    return Literal(cleaned[0][0] if cleaned else None, step.type)


def _tame(value: Any) -> Any:
    """A released value as a constant among private rows: finite, and as small as it is taken to be.

    What is not is NULL: were it moved to the nearest such number, two keys could become one.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return None if type(value) is int and abs(value) > RELEASED else value


def _versions(backend: Backend) -> dict[str, str]:
    return {backend.name: backend.version, **{name: _version(name) for name in ("dpsql", "sqlglot")}}


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
