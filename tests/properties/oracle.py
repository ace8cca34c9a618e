"""The sensitivity oracle: what was derived for a plan, against what its neighbours' statistics do.

A `Bench` holds one engine. It prepares plans as `plan_and_match` does, but from the plan itself, and reads
the exact statistics of each database from the very statement that would be noised.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, get_args

import duckdb
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from properties.databases import Database, Tables, databases, holding, neighbours, nobodys, publics, show
from properties.expressions import DEEPEST, one_of
from properties.plans import plans, wanted
from properties.printing import user_sql
from properties.schema import PUBLIC, UNLINKED, Rules, create, policy
from properties.worlds import Statistics, apart, cells_of, change, moved, stairs

from dpsql.analysis.release_analysis import analyze_release
from dpsql.analysis.stability import PublicFacts
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.budgets import get_table_budget
from dpsql.engine.engine import Engine
from dpsql.engine.lookups import PublicLookups, to_constants
from dpsql.engine.query_run import PreparedRelease
from dpsql.errors import BackendError
from dpsql.ledger import Ledger, open_ledger
from dpsql.plan.expressions import Expr, Literal, Scalar
from dpsql.plan.nodes import Join, OuterQuery, PublicSubquery, Release, Values, list_private_tables
from dpsql.plan.steps import list_steps, substitute_subqueries
from dpsql.plan.types import Type, Value
from dpsql.planning.choose import LossShare, choose_plan
from dpsql.planning.group_selection import OptimalPartitionSelection, Threshold
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import verify_plan
from dpsql.policy import load
from dpsql.policy.fields import Accountant
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, LInfinityMechanism, Mechanism, Staircase
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.relations import emit_from_clause
from dpsql.sql.compile.statement import emit_release


@dataclass(frozen=True)
class Case:
    """A plan under a policy's rules, asked at a loss, and a database."""

    rules: Rules
    outer: OuterQuery
    epsilon: Fraction
    database: Database
    answers: Mapping[PublicSubquery, Values] = field(default_factory=dict)

    def __repr__(self) -> str:
        limit = self.outer.release.max_groups
        options = f"epsilon {self.epsilon}" + (f", max_groups {limit}" if limit else "")
        answered = "".join(
            f"  {known.alias} answered {known.rows}\n"
            if isinstance(known, Values)
            else f"  a value is {known}\n"
            for known in self.answers.values()
        )
        try:
            text = user_sql(self.outer)
        except TypeError:  # not all relations are written as SQL: the tree says what was asked, too
            text = repr(self.outer)
        return f"\n{text}\n  asked with {options}\n  policy: {self.rules}\n{answered}"

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        printer.text(repr(self))


class _Backend(DuckDBBackend):
    """Reads the schema once: it stays as it is."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(connection)
        self._schema = super().read_schema()

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        return self._schema


@dataclass(repr=False)
class Bench:
    """One engine with the tables of `laws.read_schema`, for plans and databases one after another."""

    connection: duckdb.DuckDBPyConnection = field(init=False)
    backend: DuckDBBackend = field(init=False)
    _engines: dict[Rules, Engine] = field(init=False, default_factory=dict)
    _ledgers: dict[str, Ledger] = field(init=False, default_factory=dict)
    _prices: dict[tuple[str, Fraction], LossShare] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute(create())
        self.backend = _Backend(self.connection)

    def engine(self, rules: Rules) -> Engine:
        """The engine under some rules."""
        if rules not in self._engines:
            loaded = load(policy(rules))
            if rules.accountant not in self._ledgers:
                budgets = {name: get_table_budget(loaded, name) for name in loaded.list_private_tables()}
                self._ledgers[rules.accountant] = open_ledger(":memory:", budgets)
            self._engines[rules] = Engine(loaded, self.backend, self._ledgers[rules.accountant], "tester")
        return self._engines[rules]

    def facts(self, public: Tables) -> PublicFacts:
        """What look-ups in public tables of this content give."""
        return _Held(self, public)

    def prepare(self, case: Case) -> PreparedRelease:
        """All that is decided about a plan, unverified."""
        release = case.outer.release
        analysis = analyze_release(
            release, self.facts(case.database.tables), replace=case.rules.neighbors == "replace"
        )
        price = self.price(case.rules, case.epsilon)
        plan = choose_plan(analysis, price, self.facts(case.database.tables))
        statement = emit_release(
            DUCKDB_COMPILER, substitute_subqueries(analysis, case.answers), plan.quantiles, clamps=plan.clamps
        )
        return PreparedRelease(release, list_private_tables(release.input), plan, price, statement)

    def price(self, rules: Rules, epsilon: Fraction) -> LossShare:
        """What a loss buys of any table."""
        if (rules.accountant, epsilon) not in self._prices:
            accountant = self.engine(rules).get_account(UNLINKED[0]).accountant
            rho = accountant.find_gaussian_rho(epsilon)
            self._prices[rules.accountant, epsilon] = LossShare(epsilon, rho, Fraction(1, 10**9))
        return self._prices[rules.accountant, epsilon]

    def statistics(self, prepared: PreparedRelease, tables: Tables) -> Statistics:
        """The exact cells of each group that a plan would noise."""
        try:
            with holding(self.connection, tables):
                exact = self.backend.run_statement(prepared.statement.sql)
        except BackendError:
            raise AssertionError(f"the engine failed on\n{show(tables)}") from None
        return cells_of(prepared, exact)

    def computed(self, release: Release, exprs: Sequence[Expr], *texts: str) -> list[tuple[Any, ...]]:
        """What the engine computes for expressions, and for `texts` of its SQL, on each row of a release."""
        source, conditions = emit_from_clause(DUCKDB_COMPILER, release.input, exprs)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return list(
            self.backend.run_statement(
                f"SELECT {', '.join([*map(DUCKDB_COMPILER.emit_expression, exprs), *texts])} FROM {source}{where}"
            ).reveal()
        )

    def check(self, case: Case) -> None:
        """Holds the oracle's laws for a case; AssertionError says which one fails, and on which tables."""
        tables = case.database.tables
        prepared = self.prepare(case)
        before = self.statistics(prepared, tables)
        for other in neighbours(case.database, case.rules):
            try:
                within(prepared.plan, before, self.statistics(prepared, other))
            except Moved as problem:
                raise AssertionError(f"{problem} between\n{show(tables)}\nand\n{show(other)}") from None
        rest = nobodys(tables, case.rules)
        if rest is not None and self.statistics(prepared, rest) != before:
            raise AssertionError(f"rows of nobody count in\n{show(tables)}")
        # Last, so that a wrong sensitivity is found by what neighbours do.
        verify_plan(prepared.plan)


class Moved(Exception):  # noqa: N818
    """Neighbours' statistics do what was not derived."""


def within(plan: MeasurementPlan, before: Statistics, after: Statistics) -> None:
    """Raises Moved if neighbours' statistics differ by more than was derived.

    Each block is held to both norms, and the noise to its charge in the norm that it is made for. Where
    keys are selected, groups that are in one world alone are what delta is spent on.
    """
    if isinstance(plan.selection, OptimalPartitionSelection):
        lost = Loss(epsilon=plan.selection.mechanism.epsilon * _tossed_apart(plan.selection, before, after))
        if lost.epsilon > Loss.charged(plan.event).epsilon:
            raise Moved(f"the tosses lose {lost} for {Loss.charged(plan.event)}")
        return
    lost = sum((_chosen(plan, place, before, after) for place in range(len(plan.clamps))), start=Loss())
    if plan.selection is not None:
        before, after = (_shown(plan.selection, found) for found in (before, after))
        _appear(plan, plan.selection, before, after)
        _appear(plan, plan.selection, after, before)
        both = before.keys() & after.keys()
        before, after = ({group: found[group] for group in both} for found in (before, after))
    for place, measured in enumerate(plan.vectors):
        l1, l2_squared, linf = change(before, after, place)
        name, known = measured.vector.name, measured.sensitivity
        if l1 > known.l1:
            raise Moved(f"{name} moves by {l1} in l1 norm, not by {known.l1},")
        if l2_squared > known.l2_squared:
            raise Moved(f"{name} moves by √{l2_squared} in l2 norm, not by √{known.l2_squared},")
        if linf > known.linf:
            raise Moved(f"{name} moves by {linf} in l∞ norm, not by {known.linf},")
        lost += _noised(measured.mechanism, before, after, place)
    for place, ranked in enumerate(plan.quantiles):
        lost += Loss(range=ranked.mechanism.compute_range(moved(before, after, plan, place)))
    price = Loss.charged(plan.event)
    if lost.epsilon > price.epsilon or lost.rho > price.rho or lost.range > price.range:
        raise Moved(f"the noise loses {lost} for {price}")


def _noised(mechanism: Mechanism, before: Statistics, after: Statistics, place: int) -> Loss:
    """What a mechanism loses on what a block's cells do."""
    if isinstance(mechanism, Staircase):
        return Loss(epsilon=stairs(before, after, place, mechanism.width) * mechanism.loss)
    return Loss.of(mechanism, *change(before, after, place))


def _tossed_apart(chosen: OptimalPartitionSelection, before: Statistics, after: Statistics) -> int:
    """How many groups one unit changes: as many as are paid for at most, and each by that unit alone.

    Groups of fewer units than are ever shown are all alike, whether or not the engine gives them.
    """
    nobody = ((0,),)
    moves = [
        abs(
            max(chosen.min_frequency - 1, after.get(group, nobody)[0][0])
            - max(chosen.min_frequency - 1, before.get(group, nobody)[0][0])
        )
        for group in before.keys() | after.keys()
    ]
    if max(moves, default=0) > 1:
        raise Moved(f"a group changes by {max(moves)} units, not by 1,")
    if sum(moves) > chosen.groups:
        raise Moved(f"{sum(moves)} groups change, not {chosen.groups},")
    return sum(moves)


def _chosen(plan: MeasurementPlan, place: int, before: Statistics, after: Statistics) -> Loss:
    """What the choice of a clamp loses."""
    return Loss(range=plan.clamps[place].mechanism.compute_range(apart(before, after, plan, place)))


def _shown(chosen: Threshold, found: Statistics) -> Statistics:
    """The groups of as many units as must be there, whatever the noise is."""
    return {keys: parts for keys, parts in found.items() if _units(chosen, parts) >= chosen.min_frequency}


def _units(chosen: Threshold, parts: tuple[tuple[int, ...], ...]) -> Fraction:
    """How many units a group is shown for."""
    return Fraction(sum(parts[chosen.vector][at] for at in chosen.components), chosen.scale)


def _appear(plan: MeasurementPlan, chosen: Threshold, here: Statistics, there: Statistics) -> None:
    """Groups that one unit brings: few enough, and each with no more units than delta is spent on."""
    groups = here.keys() - there.keys()
    if len(groups) > plan.analysis.bound.groups:
        raise Moved(f"{len(groups)} groups appear, not {plan.analysis.bound.groups},")
    for group in groups:
        units = _units(chosen, here[group])
        if units != chosen.min_frequency:
            raise Moved(f"the group {group} appears with {units} units, not {chosen.min_frequency},")


@dataclass(frozen=True)
class _Held:
    """Look-ups in public tables that are held for as long as each takes."""

    bench: Bench
    public: Tables

    def look_up_multiplicity(self, join: Join) -> int:
        """The most rows of the right side of `join` that one row can be equal to."""
        with holding(self.bench.connection, {name: self.public[name] for name in PUBLIC}):
            return PublicLookups(self.bench.backend).look_up_multiplicity(join)

    def read_rows(self, query: OuterQuery) -> Sequence[tuple[Any, ...]]:
        """The rows of a query on public tables."""
        with holding(self.bench.connection, {name: self.public[name] for name in PUBLIC}):
            return PublicLookups(self.bench.backend).read_rows(query)

    def evaluate_constants(self, query: OuterQuery) -> Sequence[tuple[Any, ...]] | None:
        """The rows of a query on constants."""
        return PublicLookups(self.bench.backend).evaluate_constants(query)

    @property
    def approximate_functions(self) -> frozenset[str]:
        """None: the engine is DuckDB."""
        return frozenset()


@dataclass(frozen=True)
class Loss:
    """The ε of pure noise, the ρ of Gaussian noise, and the range of choices."""

    epsilon: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    range: Fraction = Fraction(0)

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.epsilon + other.epsilon, self.rho + other.rho, self.range + other.range)

    def __str__(self) -> str:
        return f"ε {self.epsilon}, ρ {self.rho} and a range of {self.range}"

    @classmethod
    def of(cls, mechanism: Mechanism, l1: int, l2_squared: int, linf: int) -> Loss:
        """What a mechanism loses on statistics that move as far as this."""
        match mechanism:
            case Geometric():
                return cls(epsilon=mechanism.compute_epsilon(Fraction(l1)))
            case LInfinityMechanism():
                return cls(epsilon=mechanism.compute_epsilon(Fraction(linf)))
            case DiscreteGaussian():
                return cls(rho=mechanism.compute_rho(Fraction(l2_squared)))
        raise TypeError(f"no rule for the noise {mechanism.name}")

    @classmethod
    def charged(cls, event: Event | None) -> Loss:
        """What an event charges for, but for the selection of keys."""
        match event:
            case None | Selection():
                return cls()
            case Pure(epsilon=epsilon):
                return cls(epsilon=epsilon)
            case Gaussian(rho=rho):
                return cls(rho=rho)
            case BoundedRange(epsilon=epsilon):
                return cls(range=epsilon)
            case Composed(events=events):
                return sum(map(cls.charged, events), start=cls())
        raise TypeError(f"no rule for {event}")


RULES = st.builds(
    Rules,
    unit=st.sampled_from(("u", "u", "u", "row")),
    neighbors=st.sampled_from(("add_remove", "add_remove", "replace")),
    accountant=st.sampled_from(get_args(Accountant)),
    rows=st.sampled_from((2, 1, 3)),
    groups=st.sampled_from((None, None, 1, 2)),
    partition=st.sampled_from((False, False, False, True)),
    min_frequency=st.sampled_from((1, 1, 1, 2)),
)
_EPSILONS = st.sampled_from((Fraction(1), Fraction(1, 10), Fraction(5)))


@st.composite
def cases(draw: st.DrawFn, bench: Bench, featured: str | None = None, deepest: int = DEEPEST) -> Case:
    """Rules, a plan, and a database in which the columns that the plan reads have values."""
    rules, public = draw(RULES), draw(publics())
    outer = draw(
        plans(
            bench.engine(rules).catalog,
            rules,
            bench.facts(public),
            featured=featured,
            deepest=deepest,
            windows=True,
        )
    )
    database = draw(databases(wanted(outer), rules, public))
    answers = {
        step: draw(answered(step)) for step in list_steps(outer) if isinstance(step, (PublicSubquery, Scalar))
    }
    return Case(rules, outer, draw(_EPSILONS), database, answers)


@st.composite
def answered(draw: st.DrawFn, answer: PublicSubquery | Scalar) -> Values | Literal:
    """What an earlier release may have answered: any groups, each once, with any numbers of rows."""
    if isinstance(answer, Scalar):
        return to_constants(answer, [(draw(one_of(_ANSWERED[answer.type])),)])
    *keys, _ = answer.columns
    key = st.tuples(*(one_of(_ANSWERED[column.type]) for column in keys))
    rows = draw(st.lists(st.tuples(key, one_of((3, 0, -1))), max_size=4, unique_by=lambda row: row[0]))
    return to_constants(answer, [(*values, number) for values, number in rows])


_ANSWERED: dict[Type, tuple[Value, ...]] = {
    Type.INTEGER: (1, 0, 5, 2**53, 2**53 + 1, 2**55, 2**60, 2**61, None),
    Type.DOUBLE: (1.5, 0.0, 2.0**53, 1e308, math.inf, None),
    Type.VARCHAR: ("A", "B", "a", "Z", "", None),
    Type.DATE: (dt.date(2024, 2, 29), dt.date(2024, 2, 27), None),
    Type.TIMESTAMP: (dt.datetime(2024, 2, 29, 12), dt.datetime(2024, 2, 29), None),
    Type.BOOLEAN: (True, False, None),
    Type.TIME: (dt.time(12), dt.time.max, None),
    Type.UUID: (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None),
    Type.BLOB: (b"", b"\xff\x00", None),
}
"""Keys that may have been released."""
