"""Stored releases: find, refine, combine and store them, for one policy and one database."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial

from dpsql.backends import Backend
from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.engine.postprocess.answer import PostProcessor
from dpsql.engine.query_run import PreparedRelease, QueryRun, Refinement, ReplayedRelease
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.engine.replay.reuse import (
    CoupledRefinement,
    Coverage,
    IndependentTopUp,
    combine_tables,
    find_coupled_refinement,
    find_independent_top_up,
    is_combinable,
    list_compatible_indices,
)
from dpsql.engine.replay.stored_release import (
    Fingerprint,
    FingerprintRules,
    StoredRelease,
    make_corruption_error,
)
from dpsql.errors import QueryRejected
from dpsql.ledger import Ledger
from dpsql.ledger.anchor import NAMED
from dpsql.ledger.protocol import Account, NewRelease, ReleaseRecord
from dpsql.plan.expressions import Expr, Scalar
from dpsql.plan.nodes import PublicSubquery, Release, Values, reads_a_table_twice
from dpsql.plan.steps import KnownValues, find_sampling_rate, list_releases, list_required_subqueries
from dpsql.planning.choose import compute_mean_log_error
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import verify_plan
from dpsql.policy import Policy
from dpsql.privacy.accounting.events import Gaussian, Pure
from dpsql.sql.compile.outer_query import ReleasedTables

# The identity of a database: the name that its owner gave it in the policy, or else what the engine says about it.


def find_ledger_identity(policy: Policy, backend: Backend) -> str | None:
    """Return the identity of the database that a ledger keeps; None for a database without data."""
    if backend.database_identity is None:
        return None
    return backend.database_identity.ledger_text if policy.database is None else NAMED + policy.database


def get_database_mark(policy: Policy, backend: Backend) -> str:
    """Return what distinguishes a database from every other, as far as its owner or the engine can say.

    Claim: a release is only replayed, or refined, for the database that it was made from.
    Why: the identity enters the digests by which releases are found. A name is the owner's word. Without one, the identity of a
    file is its path and its inode, and that of a database in memory is a random number of the connection. A schema or a policy is
    not part of it, because many databases may share one.
    """
    if policy.database is not None:
        return NAMED + policy.database
    return "" if backend.database_identity is None else backend.database_identity.instance_mark


# Replay: answer the releases of a statement from stored releases, exactly, by refinement, or by combination.


_NAMED, _COVERED = 8, 1000
"""How many plans' fingerprints are remembered, and how many statistics whose coverage is known to be stored."""

Find = Callable[[PreparedRelease, KnownValues], PreparedRelease]
"""How a stored release is found for a release of a statement, given the values of its subqueries."""


@dataclass(frozen=True)
class ReleaseStore:
    """The stored releases of one policy and database in a ledger.

    Claim: an answer from stored releases costs no privacy loss.
    Why: it is a function of released values and public metadata. Whether a stored release exists follows from earlier queries.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """

    policy: Policy
    analyst: str
    ledger: Ledger
    backend: Backend
    get_account: Callable[[str], Account]
    _fingerprints: deque[tuple[MeasurementPlan, KnownValues, Fingerprint]] = field(
        default_factory=lambda: deque(maxlen=_NAMED), repr=False, compare=False
    )
    _covered_statistics: deque[str] = field(
        default_factory=lambda: deque(maxlen=_COVERED), repr=False, compare=False
    )

    @cached_property
    def rules(self) -> FingerprintRules:
        """Return the part of fingerprints that does not depend on the plan."""
        return FingerprintRules.from_policy(
            self.policy, self.analyst, get_database_mark(self.policy, self.backend)
        )

    def match_stored(self, prepared: QueryRun) -> QueryRun:
        """Return the statement with its stored releases, and the values of subqueries that follow from them."""
        return self._match_releases(
            prepared, partial(self._find_exact_or_refined, promised=prepared.terms.is_error_promised)
        )

    def combine_stored(self, prepared: QueryRun) -> QueryRun:
        """Return the statement with all stored releases of its statistics combined, whatever their noise.

        Raises QueryRejected with code "nothing_released" if some statistic has no stored release.
        """
        found = self._match_releases(prepared, self._combine_coverages)
        for part in found.releases:
            if part.event is not None:
                raise QueryRejected(
                    "there is no stored release of this query",
                    code="nothing_released",
                    hint="run the query with an epsilon first: combine reads only stored releases",
                )
        return found

    def _match_releases(self, prepared: QueryRun, find: Find) -> QueryRun:
        if not isinstance(prepared.post_processing, ReleasedTables):
            return prepared
        read = {step for part in prepared.releases for step in list_required_subqueries(part.release)}
        if not read:
            found = tuple(find(part, {}) for part in prepared.releases)
            return replace(prepared, releases=_refine_each_once(found))
        with ScratchDatabase() as scratch:
            above = PostProcessor(scratch, prepared.post_processing, self.backend)
            above.create_tables(prepared.releases)
            return self._match_in_order(prepared, above, read, find)

    def _match_in_order(
        self, prepared: QueryRun, above: PostProcessor, read: set[Scalar | PublicSubquery], find: Find
    ) -> QueryRun:
        """Match releases as `_match_releases` does, if they use values of other releases."""
        parts = {part.release: part for part in prepared.releases}
        values: dict[Scalar | PublicSubquery, Expr | Values] = {}
        for step in prepared.steps:
            if isinstance(step, Release):
                if all(inner in values for inner in list_required_subqueries(step)):
                    parts[step] = found = find(parts[step], values)
                    if found.replayed_release is not None:
                        above.load_table(step, found.replayed_release.table)
            elif step in read and all(_is_replayed(parts[inner]) for inner in list_releases(step.outer)):
                values[step] = above.evaluate_subquery(step, values)
        return replace(prepared, releases=_refine_each_once(parts.values()), known_values=values)

    def _find_exact_or_refined(
        self, part: PreparedRelease, values: KnownValues, *, promised: bool
    ) -> PreparedRelease:
        """Return the stored release of the same measurement, or else the cheapest refinement of one with more noise."""
        if part.plan.event is None:
            return part
        records, found = self._find_exact_release(part, values)
        if found is not None:
            return found
        part = part.with_values(values)
        able = [
            self._find_refinement(part, release, promised=promised)
            for release in records
            if not release.is_refined
        ]
        least = min(filter(None, able), key=_get_charged_difference, default=None)
        return replace(part, refinement=least)

    def _find_exact_release(
        self, part: PreparedRelease, values: KnownValues
    ) -> tuple[Sequence[ReleaseRecord], PreparedRelease | None]:
        """Return the stored releases of the statistic, and the replay of the one with the same measurement, or None."""
        names = self._compute_fingerprint(part.plan, values)
        refinable = self._can_refine(part.tables)
        # Where nothing is refined, the stored releases with other noise are not read.
        records = self.ledger.list_stored_releases(names.statistic, None if refinable else names.measurement)
        for release in records:
            if release.release.measurement == names.measurement:
                table = _build_table(_parse_record(release), part)
                return records, replace(
                    part, plan=table.plan, replayed_release=ReplayedRelease(table, (release.entry,))
                )
        return records, None

    def _combine_coverages(self, part: PreparedRelease, values: KnownValues) -> PreparedRelease:
        """Return the combined releases that cover a plan's statistics; among several coverages, the one with the smallest error."""
        if part.plan.event is None:
            return part
        own = self._compute_fingerprint(part.plan, values).statistic
        plans = {own: part.plan}
        for record in self.ledger.list_stored_releases(self.rules.compute_rows_digest(part.plan, values)):
            layout = Coverage.parse(record.release.body)
            plan = layout.find_covered_plan(part.plan, values)
            if plan is not None:
                plans.setdefault(layout.statistic, plan)
        found = [self._combine_statistic(replace(part, plan=plan), name) for name, plan in plans.items()]
        if len(found) == 1:
            return found[0]
        return min(
            filter(_is_replayed, found), key=lambda each: compute_mean_log_error(each.plan), default=part
        )

    def _combine_statistic(self, part: PreparedRelease, statistic: str) -> PreparedRelease:
        """Return all releases of a statistic, combined if each has independent noise; else the first of them."""
        records = self.ledger.list_stored_releases(statistic)
        refined = {release.release.refines for release in records}
        ends = [release for release in records if release.number not in refined]
        tables = [(_build_table(_parse_record(release), part), release.entry) for release in ends]
        if not tables:
            return part
        able = [pair for pair in tables if is_combinable(pair[0].plan)] or tables[:1]
        able = [able[place] for place in list_compatible_indices([each.plan for each, _ in able])]
        table = combine_tables([each for each, _ in able])
        return replace(
            part, plan=table.plan, replayed_release=ReplayedRelease(table, tuple(entry for _, entry in able))
        )

    def _find_refinement(
        self, part: PreparedRelease, record: ReleaseRecord, *, promised: bool
    ) -> Refinement | None:
        """Return the refinement of a stored release to this one, or None.

        If an accuracy is `promised`, the noise must have the law of a single release.

        The noise of the stored release is computed from the exact components, which must be those that it was added to. So the policy
        must declare a data version, and engine and statement must be the same.
        """
        if not self._can_refine(part.tables) or find_sampling_rate(part.release.input) is not None:
            return None  # another sample has other exact components
        written = _parse_record(record)
        if written.source != self._compute_source_digest(part):
            return None
        accountants = [self.get_account(table).accountant for table in part.tables]
        law: CoupledRefinement | IndependentTopUp | None = None
        if self.can_couple(part.tables):
            law = find_coupled_refinement(part.plan, written)
        elif not promised and not any(accountant.can_charge_difference for accountant in accountants):
            law = find_independent_top_up(
                part.plan, written, [accountant.compute_charge for accountant in accountants]
            )
            if law is not None:
                verify_plan(law.plan)
        if law is None:
            return None
        return Refinement(record.number, record.entry, _build_table(written, part), law, written.event)

    def can_couple(self, tables: Sequence[str]) -> bool:
        """Return whether a release that reads these tables may be refined by coupled noise."""
        return self._can_refine(tables) and all(
            self.get_account(table).accountant.can_charge_difference for table in tables
        )

    def _can_refine(self, tables: Sequence[str]) -> bool:
        """Return whether releases of these tables may be refined: the policy declares a data version, and no budget renews."""
        return "data_version" in self.policy.model_fields_set and self._renewing_tables.isdisjoint(tables)

    @cached_property
    def _renewing_tables(self) -> frozenset[str]:
        """Return the tables whose budget renews: their guarantee is per period, and an earlier release may be of another period."""
        found = set[str]()
        for table in self.policy.list_private_tables():
            own = self.policy.find_analyst_budget(table, self.analyst)
            if self.policy.get_budget(table).renew is not None or (own is not None and own.renew is not None):
                found.add(table)
        return frozenset(found)

    def store_releases(self, released: QueryRun) -> None:
        """Store the new releases of a charged query, all or none, under the first entry of its charge."""
        new, values = [], released.known_values
        for part, table in zip(released.releases, released.released_tables, strict=True):
            # A refined release is stored with the total loss of both releases.
            if part.event is not None and part.plan.event is not None:
                names = self._compute_fingerprint(part.plan, values)
                base, paid = None, part.plan.event
                if part.refinement is not None:
                    base, paid = part.refinement.number, part.refinement.compute_total_event(paid)
                body = StoredRelease.from_table(table, paid, self._compute_source_digest(part)).to_text()
                new.append(NewRelease(names.statistic, names.measurement, body, base))
                known = names.statistic in self._covered_statistics
                layout = None if known else Coverage.from_plan(names.statistic, part.plan, values)
                if layout is not None:
                    rows = self.rules.compute_rows_digest(part.plan, values)
                    new.append(NewRelease(rows, names.statistic, layout.to_text(), once=True))
        self.ledger.store_releases(new, released.entries[0])
        self._covered_statistics.extend(each.measurement for each in new if each.once)

    def _compute_fingerprint(self, plan: MeasurementPlan, values: KnownValues) -> Fingerprint:
        """Return the fingerprint of a plan, computed once for looking it up and for storing it."""
        for known, with_values, found in self._fingerprints:
            if known is plan and with_values == values:
                return found
        names = self.rules.compute_fingerprint(plan, values)
        self._fingerprints.append((plan, dict(values), names))
        return names

    def _compute_source_digest(self, part: PreparedRelease) -> str:
        """Return the digest of the engine and the statement that make a release.

        A statement that reads a table twice ran with an unsound optimizer before 0.2.0, so its exact components may have been others:
        such a release is not refined.
        """
        repeated = "\nwithout common_subplan" * reads_a_table_twice(part.release.input)
        source = f"{self.backend.name} {self.backend.version}\n{part.statement.sql}{repeated}"
        return hashlib.sha256(source.encode()).hexdigest()


def _refine_each_once(parts: Iterable[PreparedRelease]) -> tuple[PreparedRelease, ...]:
    """Return the releases, of which only one refines each stored release; others are charged in full."""
    found, refined = [], set[int]()
    for part in parts:
        base = None if part.refinement is None else part.refinement.number
        found.append(replace(part, refinement=None) if base in refined else part)
        refined |= set() if base is None else {base}
    return tuple(found)


def _is_replayed(part: PreparedRelease) -> bool:
    return part.replayed_release is not None


def _parse_record(record: ReleaseRecord) -> StoredRelease:
    return StoredRelease.parse(record.release.body)


def _build_table(written: StoredRelease, part: PreparedRelease) -> ReleasedTable:
    """Return the released table of a stored release of the same measurement as `part`."""
    try:
        return written.to_table(part.plan)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        raise make_corruption_error() from None


def _get_charged_difference(refinement: Refinement) -> Fraction:
    match refinement.law.event:
        case Pure(epsilon):
            return epsilon
        case Gaussian(rho):
            return rho
