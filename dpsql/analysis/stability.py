"""Stability of relational operators: the number of rows of one privacy unit below the release boundary.

Each rule has the form: if a unit has at most r rows in the input, it has at most c·r rows in the output, and the rows of
other units do not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import ceil, floor, prod
from typing import ClassVar, Protocol

from dpsql.analysis import intervals
from dpsql.analysis.domains import derive_domain, derive_listed_values
from dpsql.analysis.nullability import is_never_null
from dpsql.analysis.unit_identity import find_identity_where_present
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import UNIT_IDENTITY, Column, Expr, iterate_columns, substitute_columns
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetKind,
    SetOperation,
    Source,
    Values,
    has_public_subquery,
    is_private,
    iterate_sources,
    list_inputs,
    list_private_scans,
)
from dpsql.plan.steps import list_releases, list_required_steps
from dpsql.plan.tables import Contribution, Scan, UnitKind
from dpsql.plan.types import Value
from dpsql.policy import normalize_name

MAX_ROWS = 2**30
"""The greatest bound on the rows of a unit: keeps every per-unit sum within 64 bits."""
MOST_JOINED = 2**24
"""The most rows of one unit in all joins of a statement, times the tables of each: about a second of an engine."""


Conditions = tuple[Expr, ...]
"""Predicates that every counted row fulfills."""


class PublicFacts(Protocol):
    """Look-ups in public tables, before any charge."""

    def look_up_multiplicity(self, join: Join) -> int:
        """Return the most rows of the right side of `join` that match one row; 0 for an empty table."""
        ...

    def read_rows(self, query: OuterQuery) -> Sequence[tuple[Value, ...]]:
        """Return the rows of a query on public tables."""
        ...

    def evaluate_constants(self, query: OuterQuery) -> Sequence[tuple[Value, ...]] | None:
        """Return the rows of a query on rows of constants; None where that is more work than a statement is planned with."""
        ...

    @property
    def approximate_functions(self) -> Collection[str]:
        """Return the functions that the engine of private rows computes other than DuckDB, in the last digits."""
        ...


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """The contribution bound of a release: one privacy unit has at most `rows` rows, in at most `groups` groups.

    The emitted SQL enforces it. `limits_groups` says that the bound on groups needs enforcement of its own, since neither
    rows nor keys imply it. `covers_groups` says that it removes no group of a unit that keeps to the declared bounds.
    `per_unit` is false if each row is a privacy unit, so that nothing needs enforcement. Groups of fewer than
    `min_frequency` units are not released.
    """

    tag: ClassVar[str] = "Bound"

    rows: int
    groups: int
    limits_groups: bool
    covers_groups: bool
    per_unit: bool
    min_frequency: int


def bound_rows(relation: Relation, facts: PublicFacts) -> int:
    """Return the most rows of one privacy unit in a relation, if its tables keep to their declared bounds.

    Claim: filters, semi-joins and windows add no rows, and ROW_NUMBER <= n leaves n of each partition of the rows that it
    numbers; a join multiplies rows by at most the number of matches of one row; groups and distinct rows are at most the
    combinations of their values that conditions leave; a set operation has the rows of both sides, or, where each row is a
    unit, of one of them.
    Why: a row joins only rows with an equal key, and a LEFT JOIN keeps an unmatched row once. A condition on columns that
    are expressions of the input is one on the rows of the input. A set operation reads a table of such rows once, so that
    a row is on one side.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2 (stability of transformations).

    If units have identifiers, the guarantee does not rest on this number: the emitted SQL counts at most this many rows of
    each unit. If each row is a unit, only filters and joins with public tables are accepted, whose multiplicity is looked
    up; values that a subquery computes are not relied on.
    """
    return _RowBounds(facts).bound_rows(relation)


def require_bounded_joins(outer: OuterQuery, facts: PublicFacts) -> None:
    """Raise QueryRejected if the joins of a statement could make too many rows of one unit that keeps to its declared bounds.

    Claim: where it does not, an engine that joins in the order of the plan has at most `MOST_JOINED` rows of one unit in all joins
    that make more rows than the unit has in some table, each times the tables of its FROM clause.
    Why: `bound_rows` bounds the rows of each join. One more row of a unit can double what each of many joins makes, so that
    it takes longer than the rows of all others.
    Source: none but the definitions.
    """
    rows, found = _RowBounds(facts), dict[int, int]()
    total = sum(_count_joined_rows(release.input, rows, found) for release in list_releases(outer))
    if total > MOST_JOINED:
        raise QueryRejected(
            f"the joins could make {total:,} rows of one privacy unit, times the number of joined "
            f"tables; at most {MOST_JOINED:,} are allowed",
            code="fanout",
            hint=(
                "join fewer tables, join on keys that are unique or declared by links, or group each "
                "table by the unit first"
            ),
        )


def _count_joined_rows(relation: Relation, rows: _RowBounds, found: dict[int, int]) -> int:
    """Count the rows of a unit in all joins of a relation, each join as often as it is emitted and times its tables."""
    if id(relation) not in found:
        parts = [part for part in list_inputs(relation) if is_private(part)]
        total = sum(_count_joined_rows(part, rows, found) for part in parts)
        if isinstance(relation, Join):
            most = rows.bound_rows(relation)
            if most > max(map(rows.bound_rows, list_private_scans(relation))):
                total += most * len(list(iterate_sources(relation)))
        found[id(relation)] = total
    return found[id(relation)]


@dataclass(frozen=True, slots=True)
class _RowBounds:
    """Bound the rows of one unit in each relation, memoized."""

    facts: PublicFacts
    _counted: dict[int, int] = field(default_factory=dict)
    _matched: dict[int, int] = field(default_factory=dict)
    _keyed: dict[tuple[int, frozenset[tuple[str, str]]], int] = field(default_factory=dict)
    _alike: dict[tuple[int, str, str], int] = field(default_factory=dict)

    def bound_rows(self, relation: Relation) -> int:
        """Return the most rows of a unit."""
        if id(relation) not in self._counted:  # all are parts of one plan, which outlives this
            self._counted[id(relation)] = self._bound_relation_rows((), relation)
        return self._counted[id(relation)]

    def bound_rows_where(self, known: Conditions, relation: Relation) -> int:
        """Return the most rows of a unit for which conditions on columns of the relation are true."""
        most = self.bound_rows(relation)
        return min(most, self._bound_relation_rows(known, relation)) if known else most

    def _bound_relation_rows(self, known: Conditions, relation: Relation) -> int:
        match relation:
            case Scan():
                return 1 if relation.contribution is None else relation.contribution.rows
            case Filter():
                return self.bound_rows_where((*known, relation.predicate), relation.input)
            case SemiJoin():
                return self.bound_rows_where(known, relation.input)
            case Project() | PerUnitGroupBy() | PerUnitWindows():
                within = _push_down_conditions(known, relation)
                return min(
                    [
                        self.bound_rows_where(within, relation.input),
                        *_iterate_distinct_bounds(relation, known, within),
                    ]
                )
            case SetOperation(kind=SetKind.UNION_ALL | SetKind.UNION):
                sides = (self.bound_rows(relation.left), self.bound_rows(relation.right))
                return max(sides) if _has_row_units(relation) else sum(sides)
            case SetOperation():
                return self.bound_rows(relation.left)
            case Join():
                return self._bound_join_rows(relation, known)
            case PublicSubquery() | Values():
                raise TypeError("public rows belong to no privacy unit")

    def _bound_join_rows(self, join: Join, known: Conditions) -> int:
        """Return the most rows of a join for which conditions are true, from the matches of one row on either side."""
        left, forwards = self.bound_rows_where(known, join.left), self._bound_right_matches(join)
        if not is_private(join.right):
            return left * max(1, forwards)
        if join.kind is JoinKind.INNER or _needs_right_row(join.right, known):
            also = () if join.condition is None else (join.condition,)
            right = self.bound_rows_where((*known, *also), join.right)
            return min(left * forwards, right * self._bound_left_matches(join), left * right)
        # A LEFT JOIN keeps an unmatched row once; if the right side has a row, `back` rows on the left match it.
        right = self.bound_rows_where(() if join.condition is None else (join.condition,), join.right)
        back = min(left, self._bound_left_matches(join))
        return min(left * max(1, forwards), max(left, right * back + left - back))

    def _bound_right_matches(self, join: Join) -> int:
        """Return the most rows of the right side that one row of the left matches."""
        if id(join) not in self._matched:
            self._matched[id(join)] = self._compute_right_matches(join)
        return self._matched[id(join)]

    def _compute_right_matches(self, join: Join) -> int:
        if not is_private(join.right):
            # Lowering joins a public subquery on its group keys; other public tables are looked up.
            return 1 if has_public_subquery(join.right) else self.facts.look_up_multiplicity(join)
        theirs = [column for _, column in join.on]
        if _is_unique_key(theirs, join.right):
            return 1
        return min(
            self.bound_rows_by_key(theirs, join.right),
            *(self.bound_equal_rows(c, join.right) for c in theirs),
        )

    def _bound_left_matches(self, join: Join) -> int:
        """Return the most rows of the left side that one row of the right matches."""
        ours = [side for side, _ in join.on]
        return min(
            self.bound_rows_by_key(ours, join.left),
            *(self.bound_equal_rows(side, join.left) for side in ours),
        )

    def bound_rows_by_key(self, exprs: Sequence[Expr], relation: Relation) -> int:
        """Return the most rows of a unit in which several expressions have given values, by the keys that links refer to."""
        held = [expr for expr in exprs if isinstance(expr, Column)]
        place = (id(relation), frozenset(_collect_names(held)))
        if place not in self._keyed:
            self._keyed[place] = self._compute_rows_by_key(held, relation)
        return self._keyed[place]

    def _compute_rows_by_key(self, held: Sequence[Column], relation: Relation) -> int:
        most = self.bound_rows(relation)
        match relation:
            case Filter() | SemiJoin():
                return self.bound_rows_by_key(held, relation.input)
            case Join():
                theirs = [expr for expr in held if expr.source == relation.right.alias]
                ours = [expr for expr in held if expr.source != relation.right.alias]
                found = self.bound_rows_by_key(ours, relation.left) * max(
                    1, self._bound_right_matches(relation)
                )
                # In a LEFT JOIN, only matched rows have values of the right side.
                if is_private(relation.right) and (theirs or relation.kind is JoinKind.INNER):
                    found = min(
                        found,
                        self.bound_rows_by_key(theirs, relation.right) * self._bound_left_matches(relation),
                    )
                return min(most, found)
            case Scan(contribution=Contribution() as contribution):
                names = {normalize_name(expr.name) for expr in held}
                return 1 if any(names.issuperset(key) for key in contribution.unique) else most
            case Project() | PerUnitWindows():
                items = [item for expr in held if (item := _find_item(expr, relation)) is not None]
                return min(most, self.bound_rows_by_key(items, relation.input))
            case _:
                return most

    def bound_equal_rows(self, expr: Expr, relation: Relation) -> int:
        """Return the most rows of a unit that share a value of an expression, NULL aside, by the policy's declarations."""
        if not isinstance(expr, Column):
            return self.bound_rows(relation)
        place = (id(relation), expr.source, expr.name)
        if place not in self._alike:
            self._alike[place] = self._compute_equal_rows(expr, relation)
        return self._alike[place]

    def _compute_equal_rows(self, expr: Column, relation: Relation) -> int:
        most = self.bound_rows(relation)
        match relation:
            case Filter() | SemiJoin():
                return self.bound_equal_rows(expr, relation.input)
            case Join() if expr.source != relation.right.alias:
                return min(
                    most,
                    self.bound_equal_rows(expr, relation.left) * max(1, self._bound_right_matches(relation)),
                )
            case Join() if is_private(relation.right):
                return min(
                    most, self.bound_equal_rows(expr, relation.right) * self._bound_left_matches(relation)
                )
            case Scan(contribution=Contribution() as contribution):
                return 1 if normalize_name(expr.name) in contribution.keys else most
            case PerUnitGroupBy():
                return 1 if _is_unique_key([expr], relation) else most
            case Project() | PerUnitWindows():
                item = _find_item(expr, relation)
                return most if item is None else min(most, self.bound_equal_rows(item, relation.input))
            case SetOperation(kind=SetKind.UNION_ALL | SetKind.UNION):
                place = [known.name for known in relation.columns].index(expr.name)
                sides = [side for side in (relation.left, relation.right) if not isinstance(side, Scan)]
                return min(most, sum(self.bound_equal_rows(side.columns[place], side) for side in sides))
            case _:
                return most


def _bound_combinations(exprs: Sequence[Expr], relation: Relation, conditions: Conditions) -> int:
    """Return the most combinations of values among the rows of one unit for which conditions are true.

    A unit's identifier is one value.
    """
    left = _apply_conditions(conditions, relation)
    known, stated = intervals.derive_known_intervals(left), derive_listed_values(left)
    most = 1
    for expr in exprs:
        if find_identity_where_present(expr, relation) == UNIT_IDENTITY:
            size: int | None = 1 if is_never_null(expr, relation) else 2  # an outer join adds NULL
        else:
            values = derive_domain(expr, known, stated)
            size = None if values is None else len(values)
        most = MAX_ROWS if size is None else min(MAX_ROWS, most * size)
    return max(1, most)


def _push_down_conditions(known: Conditions, source: Project | PerUnitGroupBy | PerUnitWindows) -> Conditions:
    """Return those of the conditions that name nothing but keys or items of a source, over its input."""
    items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
    inner = {column.name: item for column, item in zip(source.columns, items, strict=False)}
    parts = (part for condition in known for part in intervals.iterate_conjuncts(condition))
    named = ((part, set(iterate_columns(part))) for part in parts)
    return tuple(
        substitute_columns(part, {column: inner[column.name] for column in read})
        for part, read in named
        if all(column.source == source.alias and column.name in inner for column in read)
    )


def _iterate_distinct_bounds(
    source: Project | PerUnitGroupBy | PerUnitWindows, known: Conditions, within: Conditions
) -> Iterator[int]:
    """Yield bounds on the rows of a unit that are distinct in the expressions of a source; `within` as in `_push_down_conditions`."""
    match source:
        case PerUnitWindows():
            yield from _iterate_row_number_bounds(source, known, within)
        case PerUnitGroupBy():
            yield _bound_combinations(source.keys, source.input, within)
        case Project(distinct=True):
            yield _bound_combinations(source.items, source.input, within)


def _iterate_row_number_bounds(
    source: PerUnitWindows, known: Conditions, within: Conditions
) -> Iterator[int]:
    """Yield bounds on the rows of a unit from conditions on ROW_NUMBER: the numbers that pass, times the partitions."""
    items: dict[Column, Expr] = dict(zip(source.columns, source.items, strict=False))
    said = intervals.derive_known_intervals(_apply_conditions(known, source)).items()
    numbers = {(expr.source, expr.name): around for expr, around in said if isinstance(expr, Column)}
    for column, window in zip(source.columns[len(source.items) :], source.windows, strict=True):
        around = numbers.get((column.source, column.name))
        if around is not None and around.high is not None and window.function == "row_number":
            partition = [substitute_columns(part, items) for part in window.partition]
            least = max(1, ceil(around.low or 1))
            # If conditions exclude every row, one row is still a bound, and keeps sensitivities above zero.
            yield max(1, floor(around.high) - least + 1) * _bound_combinations(
                partition, source.input, within
            )


def _has_row_units(relation: Relation) -> bool:
    """Return whether each private row that a relation reads is a unit by itself."""
    return all(scan.unit.kind is UnitKind.ROW for scan in list_private_scans(relation))


def _needs_right_row(right: Source, known: Conditions) -> bool:
    """Return whether conditions are true only of rows with a value of the right side of a join."""
    there = intervals.derive_known_intervals(_apply_conditions(known, right))
    return any(isinstance(expr, Column) and expr.source == right.alias for expr in there)


def _apply_conditions(conditions: Conditions, relation: Relation) -> Relation:
    """Return the rows for which conditions are true."""
    return reduce(Filter, conditions, relation)


def _is_unique_key(columns: Sequence[Column], relation: Relation) -> bool:
    """Return whether these columns are a unique key among the rows of a unit, by GROUP BY or DISTINCT."""
    match relation:
        case Filter() | SemiJoin():
            return _is_unique_key(columns, relation.input)
        case PerUnitGroupBy():
            keys = relation.columns[: len(relation.keys)]
            return _collect_names(keys) <= _collect_names(columns)
        case Project() | PerUnitWindows():
            distinct = isinstance(relation, Project) and relation.distinct
            if distinct and _collect_names(relation.columns) <= _collect_names(columns):
                return True
            items = (_find_item(column, relation) for column in columns)
            return _is_unique_key([item for item in items if isinstance(item, Column)], relation.input)
        case _:
            return False


def _collect_names(columns: Sequence[Column]) -> set[tuple[str, str]]:
    return {(column.source, column.name) for column in columns}


def _find_item(column: Column, source: Project | PerUnitWindows) -> Expr | None:
    """Return the expression that a column of a derived table is; None of a window."""
    place = [known.name for known in source.columns].index(column.name)
    return source.items[place] if place < len(source.items) else None


def derive_contribution_bound(
    release: Release, sizes: Sequence[int | None], facts: PublicFacts, *, public: bool
) -> ContributionBound:
    """Derive the contribution bound of a release, given the number of values of each key, None if unknown.

    If keys are `public`, no other group is released.

    Claim: in the emitted SQL, one unit has at most `rows` counted rows, in at most `groups` groups.
    Why: the groups of a unit are ranked by its own rows only, and the statement that aggregates drops rows and groups
    beyond the bounds. `groups` is at most the number of rows, of keys, and of keys that can differ among the rows of a
    unit.
    Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
    """
    tables = list_private_scans(release.input)
    rows = bound_rows(release.input, facts)
    if rows > MAX_ROWS:
        raise QueryRejected(
            f"one privacy unit could have {rows:,} rows after the joins",
            code="fanout",
            hint="join on a key that is unique in the public table, or lower rows_per_unit",
        )
    proven = min(rows, _multiply_sizes(sizes) or rows) if public else rows
    apart = [size for size, one in zip(sizes, mark_constant_keys(release, facts), strict=True) if not one]
    natural = min(proven, _multiply_sizes(apart) or rows)
    declared = [scan.contribution for scan in tables if scan.contribution is not None]
    groups = [known.groups for known in declared]
    stated = min(filter(None, (*groups, release.max_groups, natural)))
    return ContributionBound(
        rows=rows,
        groups=min(proven, stated),
        limits_groups=stated < proven,
        covers_groups=stated == natural,
        per_unit=rows > 1
        or _reads_subquery_values(release.input)
        or any(scan.unit.kind is UnitKind.COLUMN for scan in tables),
        min_frequency=max(known.min_frequency for known in declared),
    )


def _multiply_sizes(sizes: Sequence[int | None]) -> int | None:
    """Return the number of combinations; None if some number is unknown."""
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _reads_subquery_values(relation: Relation) -> bool:
    """Return whether rows are joined to public rows that depend on the value of a subquery, which may change."""
    match relation:
        case Join(right=right) if (
            not is_private(right) and not has_public_subquery(right) and list_required_steps(right)
        ):
            return True
        case _:
            return any(map(_reads_subquery_values, list_inputs(relation)))


def mark_constant_keys(release: Release, facts: PublicFacts) -> list[bool]:
    """Return for each key whether the owner's declarations give it one value per unit.

    Declarations are not trusted: the emitted SQL enforces the bound on groups that follows.
    """
    return [_is_constant(key.expr, release.input, facts) for key in release.keys]


def _is_constant(expr: Expr, relation: Relation, facts: PublicFacts) -> bool:
    """Return whether an expression has one value per unit, if its tables keep to their declared bounds.

    That is so for columns of tables with one row per unit, for columns declared constant, and for columns of a public
    table that is joined on such columns, if at most one row matches.
    """
    return all(_has_one_value(column, relation, facts) for column in iterate_columns(expr))


def _has_one_value(column: Column, relation: Relation, facts: PublicFacts) -> bool:
    match relation:
        case Filter() | SemiJoin():
            return _has_one_value(column, relation.input, facts)
        case Join(left=left, right=right) if column.source != right.alias:
            return _has_one_value(column, left, facts)
        case Join(left=left, right=right):
            asked = [ours for ours, _ in relation.on] + (
                [] if relation.condition is None else [relation.condition]
            )
            alike = all(
                one.source == right.alias or _has_one_value(one, left, facts)
                for expr in asked
                for one in iterate_columns(expr)
            )
            if is_private(right):
                # A LEFT JOIN pads unmatched rows of a unit with NULL.
                found = relation.kind is JoinKind.INNER or (alike and relation.condition is None)
                return found and _has_one_value(column, right, facts)
            return alike and (has_public_subquery(right) or facts.look_up_multiplicity(relation) <= 1)
        case _ if column.facts.is_unit or bound_rows(relation, facts) == 1:
            return True
        case Scan(contribution=Contribution(constant=constant)):
            return normalize_name(column.name) in constant
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [known.name for known in relation.columns].index(column.name)
            items = relation.keys if isinstance(relation, PerUnitGroupBy) else relation.items
            return place < len(items) and _is_constant(items[place], relation.input, facts)
        case _:
            return False


def is_declared_bound(release: Release, rows: int) -> bool:
    """Return whether `rows` is the declared bound of a table all of whose rows are read."""
    declared = [
        scan.contribution.rows for scan in list_private_scans(release.input) if scan.contribution is not None
    ]
    return rows in declared and _reads_whole_tables(release.input)


def _reads_whole_tables(relation: Relation) -> bool:
    match relation:
        case Join():
            return (
                relation.condition is None
                and _reads_whole_tables(relation.left)
                and _reads_whole_tables(relation.right)
            )
        case Project():
            return not relation.distinct and _reads_whole_tables(relation.input)
        case _:
            return isinstance(relation, Scan)


def describe_stability(relation: Relation, facts: PublicFacts) -> str:
    """Return the stability of one node, for EXPLAIN."""
    if not is_private(relation):
        return "public"
    match relation:
        case Scan():
            return _describe_scan(relation)
        case Filter() | SemiJoin():
            return "stability 1"
        case Join(right=right) if has_public_subquery(right) and not is_private(right):
            return "stability 1: at most one released row per key"
        case Join(right=right) if not is_private(right):
            times = max(1, facts.look_up_multiplicity(relation))
            return f"stability {times}: at most {times} public row{'s' * (times != 1)} per key"
        case Join() | SetOperation():
            return f"within each unit; at most {_format_row_count(bound_rows(relation, facts))} per unit"
        case PerUnitWindows():
            return (
                f"windows within each unit; at most {_format_row_count(bound_rows(relation, facts))} per unit"
            )
        case PerUnitGroupBy():
            return (
                f"groups within each unit; at most {_format_row_count(bound_rows(relation, facts))} per unit"
            )
        case _:
            return f"{'distinct within each unit; ' * getattr(relation, 'distinct', False)}at most {_format_row_count(bound_rows(relation, facts))} per unit"


def _describe_scan(scan: Scan) -> str:
    unit = scan.unit
    rows = 1 if scan.contribution is None else scan.contribution.rows
    if unit.column is not None:
        whose = f"unit {unit.column}"
    elif unit.link is not None:
        whose = f"unit through {unit.link.column} = {unit.link.owner.table}.{unit.link.key}"
    elif unit.is_known:
        whose = "each row is a unit"
    else:
        whose = "unit of the joined row"
    return f"{whose}, at most {_format_row_count(rows)} per unit"


def _format_row_count(rows: int) -> str:
    return f"{rows:,} row{'s' * (rows != 1)}"
