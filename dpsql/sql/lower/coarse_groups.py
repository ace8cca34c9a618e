"""Rewrite sums over released groups as sums over the rows of those groups.

`SELECT plan, SUM(n) FROM (SELECT plan, region, COUNT(*) AS n FROM visits GROUP BY plan, region) GROUP BY plan` is
`SELECT plan, COUNT(*) FROM visits GROUP BY plan`. The first would add up noise, and groups that are not released for being rare
would be missing in it; the second has neither defect.

Claim: without noise the rewritten groups are those of the statement, with the same values. They are one release, which is analyzed,
charged and verified as if the statement had asked for it.
Why: each row is in one inner group, and all rows of an inner group are in one outer group, since outer keys are functions of inner
keys. So the sum of sums over the inner groups is the sum over the rows, and so it is with a factor or a condition that reads inner
keys alone, which is one value for all rows of an inner group. Conditions on inner keys keep or drop all rows of a group, so that they
may be conditions on rows. If equalities with constants and the outer keys determine all inner keys, at most one inner group fulfills
the condition, so its MAX, MIN and AVG are its SUM. The inner groups of an outer group are counted by the distinct values of the inner
keys. Whatever is not known to be such a sum is left as it is.
Source: Gray et al. 1997, "Data cube: a relational aggregation operator", section 5 (distributive aggregates); Dwork, Roth 2014,
Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.analysis.nullability import is_never_null
from dpsql.analysis.number_types import MOST_DIGITS, find_decimal_digits, is_float
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    ReleasedColumn,
    replace_order_parts,
    replace_parts,
    walk,
)
from dpsql.plan.functions import FUNCTIONS, OVERLOADS, build_function_call, build_typed_call
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Key,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    Release,
    is_private,
)
from dpsql.plan.steps import list_children
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.count import build_row_text
from dpsql.sql.lower.joins import build_filter

_ZERO, _ONE = Literal(0, Type.INTEGER), Literal(1, Type.INTEGER)
_NULL = Literal(None, Type.NULL)
_ADDITIVE = frozenset({"count_rows", "count", "sum"})
_CHOICES = frozenset({"min", "max", "avg", "median"})
"""Aggregates of one value that are that value."""
_PLACE = exp.Null()


class _UnknownGroupsError(Exception):
    """Groups that are not rewritten."""


@dataclass(frozen=True, slots=True)
class _ReleasedGroups:
    """The groups of a release that are the rows of a relation, if conditions on their keys select them.

    `known` holds the columns of the relation as expressions over the released columns.
    """

    release: Release
    known: Mapping[Expr, Expr]
    conditions: tuple[Expr, ...] = ()


def _find_groups(relation: Relation) -> _ReleasedGroups:
    """Return the groups that are the rows of a relation. Raises _UnknownGroupsError for other rows."""
    match relation:
        case Filter():
            below = _find_groups(relation.input)
            return replace(
                below, conditions=(*below.conditions, replace_parts(relation.predicate, below.known))
            )
        case Project(distinct=False, once=False):
            below = _find_groups(relation.input)
            items = zip(relation.columns, relation.items, strict=True)
            known: dict[Expr, Expr] = {column: replace_parts(item, below.known) for column, item in items}
            return replace(below, known=known)
        case PublicSubquery(outer=OuterQuery(limit=None, offset=0, distinct=False, qualify=None) as outer):
            below = (
                _ReleasedGroups(outer.source, {})
                if isinstance(outer.source, Release)
                else _find_groups(outer.source)
            )
            outputs = zip(relation.columns, outer.outputs, strict=True)
            known = {column: replace_parts(output.expr, below.known) for column, output in outputs}
            having = () if outer.having is None else (replace_parts(outer.having, below.known),)
            return replace(below, known=known, conditions=(*below.conditions, *having))
        case _:
            raise _UnknownGroupsError


@dataclass(slots=True)
class _CoarseRelease:
    """The release of the rows of some groups by coarser keys, as it is built."""

    groups: _ReleasedGroups
    keys: tuple[Expr, ...]
    aggregations: list[Aggregation] = field(default_factory=list)

    @property
    def release(self) -> Release:
        """Return the release of the inner groups."""
        return self.groups.release

    def build_release(self) -> Release:
        """Build the release."""
        conditions = [self._to_row_value(condition) for condition in self.groups.conditions]
        rows = build_filter(self.release.input, conditions) if conditions else self.release.input
        keys = tuple(Key(f"k{place}", self._to_row_value(key)) for place, key in enumerate(self.keys))
        return replace(self.release, input=rows, keys=keys, aggregations=tuple(self.aggregations))

    def build_key(self, place: int) -> ReleasedColumn:
        """Build a key as a column of the release."""
        value = self._to_row_value(self.keys[place])
        return ReleasedColumn(
            f"k{place}", value.type, decimal=find_decimal_digits(value), float32=is_float(value)
        )

    def build_aggregate(self, item: PerUnitAggregate) -> Expr:
        """Build an aggregate over the groups from aggregates over their rows. Raises _UnknownGroupsError."""
        argument = None if item.argument is None else replace_parts(item.argument, self.groups.known)
        if item.function == "count_rows":
            return self._count_groups()
        if argument is None or item.order_by is not None or item.rank is not None:
            raise _UnknownGroupsError
        if item.function == "sum":
            return self._add_sum(argument)
        if (
            item.function in _CHOICES
            and (single := self._find_single_value(item.function, argument)) is not None
        ):
            return self._add_sum(single)
        if item.function == "count_distinct" and self.is_function_of_keys(argument):
            return self._add(item.function, self._to_row_value(argument))
        if item.function in ("avg", "count") and self._is_always_known(argument):
            number = self._count_groups()
            return number if item.function == "count" else self._divide(self._add_sum(argument), number)
        raise _UnknownGroupsError

    def is_no_wider(self) -> bool:
        """Return whether no row adds more to an aggregate than to one of the inner groups: a factor of theirs would multiply noise."""
        sizes, inner = (
            [self._bound_summand(item) for item in items]
            for items in (self.aggregations, self.release.aggregations)
        )
        return max(sizes, default=0) <= max(inner, default=0)

    def _bound_summand(self, item: Aggregation) -> Fraction | float:
        """Return the most that a row can add to a sum or a count."""
        if item.argument is None or item.function != "sum":
            return 1
        around = derive_interval(item.argument, derive_known_intervals(self.release.input))
        if around.low is None or around.high is None:
            return math.inf
        return max(abs(around.low), abs(around.high))

    def is_function_of_keys(self, expr: Expr) -> bool:
        """Return whether an expression is computed from the keys of the inner groups, by functions that private rows may be given to."""
        return all(self._is_part_of_key(part) for part in walk(expr))

    def _is_part_of_key(self, part: Expr) -> bool:
        match part:
            case Call():
                return FUNCTIONS.get(part.function.name) is part.function
            case ReleasedColumn():
                return part.end_of is None and part.name in {key.name for key in self.release.keys}
            case Literal():
                return True
            case _:
                return False

    def _to_row_value(self, expr: Expr) -> Expr:
        """Return an expression over the keys of the inner groups as one over their rows."""
        if not self.is_function_of_keys(expr):
            raise _UnknownGroupsError
        return replace_parts(
            expr, {ReleasedColumn(key.name, key.expr.type): key.expr for key in self.release.keys}
        )

    def _find_aggregation(self, expr: Expr) -> Aggregation | None:
        """Return the additive aggregate of the inner groups that an expression is."""
        if not isinstance(expr, ReleasedColumn) or expr.end_of is not None:
            return None
        found = next((item for item in self.release.aggregations if item.name == expr.name), None)
        return found if found is not None and found.function in _ADDITIVE else None

    def _is_always_known(self, expr: Expr) -> bool:
        """Return whether an aggregate has a value in each inner group."""
        item = self._find_aggregation(expr)
        if item is None or item.argument is None or item.function == "count":
            return item is not None
        return is_never_null(item.argument, self.release.input)

    def _find_single_value(self, function: str, expr: Expr) -> Expr | None:
        """Return an expression whose sum is its MIN, MAX or AVG over an outer group, since one inner group at most has a value."""
        condition, value, otherwise = _split_condition(expr)
        determined = {key.name for key in self.keys if isinstance(key, ReleasedColumn)}
        determined |= set() if condition is None else {*_iterate_constant_keys(condition)}
        if not {key.name for key in self.release.keys} <= determined:
            return None
        if otherwise.value is None or condition is None:
            return value if condition is None else build_function_call("case", condition, value, _NULL)
        return expr if function == "max" and self._is_never_negative(value) else None

    def _is_never_negative(self, expr: Expr) -> bool:
        item = self._find_aggregation(expr)
        if item is None or item.argument is None or item.function == "count":
            return item is not None
        low = derive_interval(item.argument, derive_known_intervals(self.release.input)).low
        return low is not None and low >= 0

    def _add_sum(self, expr: Expr) -> Expr:
        """Return the sum of an expression over the inner groups."""
        item = self._find_aggregation(expr)
        return (
            self._add("sum", self._to_summand(expr))
            if item is None
            else self._add(item.function, item.argument)
        )

    def _to_summand(self, expr: Expr) -> Expr:
        """Return an expression over rows whose sum over the rows of each inner group is the given expression."""
        item = self._find_aggregation(expr)
        if item is not None:
            return _build_summand(item)
        if isinstance(expr, Literal) and expr.value in (None, 0) and expr.value is not False:
            return expr
        if not isinstance(expr, Call) or FUNCTIONS.get(expr.function.name) is not expr.function:
            raise _UnknownGroupsError
        return self._to_call_summand(expr)

    def _to_call_summand(self, expr: Call) -> Expr:
        name, arguments = expr.function.name, expr.arguments
        if name == "case":
            branches, otherwise = split_case_branches(arguments)
            parts = [
                part
                for condition, value in branches
                for part in (self._to_row_value(condition), self._to_summand(value))
            ]
            return replace(expr, arguments=(*parts, self._to_summand(otherwise)))
        if name == "coalesce" and [*arguments[1:]] in ([_ZERO], [Literal(0.0, Type.DOUBLE)]):
            return replace(expr, arguments=(self._to_summand(arguments[0]), *arguments[1:]))
        if name in ("negate", "cast_double") or (name == "cast_bigint" and arguments[0].type is Type.INTEGER):
            return replace(expr, arguments=(self._to_summand(arguments[0]),))
        if name in ("multiply", "divide") and self.is_function_of_keys(arguments[1]):
            return replace(expr, arguments=(self._to_summand(arguments[0]), self._to_row_value(arguments[1])))
        if name == "multiply" and self.is_function_of_keys(arguments[0]):
            return replace(expr, arguments=(self._to_row_value(arguments[0]), self._to_summand(arguments[1])))
        raise _UnknownGroupsError

    def _count_groups(self) -> Expr:
        """Return the number of inner groups in an outer group."""
        bare = set(self.keys)
        rest = [key.expr for key in self.release.keys if ReleasedColumn(key.name, key.expr.type) not in bare]
        if not rest:
            raise _UnknownGroupsError
        if len(rest) == 1 and rest[0].type is not Type.DOUBLE and is_never_null(rest[0], self.release.input):
            return self._add("count_distinct", rest[0])
        return self._add("count_distinct", build_row_text(_Calls(), _PLACE, rest))

    def _add(self, function: str, argument: Expr | None) -> ReleasedColumn:
        """Add an aggregate over rows, and return its column."""
        entry = AGGREGATES[function]
        kind = entry.result_type(None if argument is None else argument.type)
        if kind is None:
            raise _UnknownGroupsError
        digits = None if argument is None or not entry.keeps_scale else find_decimal_digits(argument)
        digits = None if digits is None else (MOST_DIGITS, digits[1])
        for known in self.aggregations:
            if (known.function, known.argument) == (function, argument):
                return ReleasedColumn(known.name, known.type, decimal=digits)
        self.aggregations.append(Aggregation(f"a{len(self.aggregations)}", function, argument, kind))
        return ReleasedColumn(self.aggregations[-1].name, kind, decimal=digits)

    def _divide(self, total: Expr, number: Expr) -> Expr:
        quotient = build_function_call("divide", total, number)
        there = build_function_call("gt", number, _ZERO)
        found = quotient and there and build_function_call("case", there, quotient, _NULL)
        if found is None:
            raise _UnknownGroupsError
        return found


class _Calls:
    """Build calls that no text of a statement has."""

    def build_call(self, _: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """Build the call of a function. Raises _UnknownGroupsError where it refuses the arguments' types."""
        built = (
            build_typed_call(function, arguments) for function in OVERLOADS.get(name) or (FUNCTIONS[name],)
        )
        found = next(filter(None, built), None)
        if found is None:
            raise _UnknownGroupsError
        return found


def _cast_to(value: Expr, kind: Type) -> Expr:
    """Return a number as one of a type."""
    found = value if value.type is kind else build_function_call("cast_double", value)
    if found is None or found.type is not kind:
        raise _UnknownGroupsError
    return found


def _build_summand(item: Aggregation) -> Expr:
    """Return what a row adds to a count or a sum."""
    if item.argument is None:
        return _ONE
    if item.function == "sum":
        return item.argument
    missing = build_function_call("is_null", item.argument)
    found = None if missing is None else build_function_call("case", missing, _ZERO, _ONE)
    if found is None or item.argument.type is Type.DOUBLE:  # a NaN is not counted
        raise _UnknownGroupsError
    return found


def _split_condition(expr: Expr) -> tuple[Expr | None, Expr, Literal]:
    """Return the condition, the value and the other value of CASE WHEN condition THEN value [ELSE 0] END; no condition for others."""
    if isinstance(expr, Call) and expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        if len(branches) == 1 and isinstance(otherwise, Literal) and otherwise.value in (None, 0):
            return *branches[0], otherwise
    return None, expr, _NULL


def _iterate_constant_keys(condition: Expr) -> Iterator[str]:
    """Yield the names of the released columns that a condition sets equal to constants."""
    if not isinstance(condition, Call):
        return
    if condition.function.name == "and":
        for part in condition.arguments:
            yield from _iterate_constant_keys(part)
    elif condition.function.name == "eq":
        for one, other in (condition.arguments, condition.arguments[::-1]):
            if isinstance(one, ReleasedColumn) and isinstance(other, Literal) and one.type is other.type:
                yield one.name


# Rewrite a plan, part by part.


@dataclass(frozen=True, slots=True)
class CoarseGroups:
    """The rewriting of a plan: `hidden` are the releases of which nothing else may be computed over all groups.

    Of other releases, groups are rewritten if no other part of the statement reads them and no more statistics are measured.
    `origins` are the hidden releases by those that take their place, which may hide groups, too.
    """

    shared: Collection[int]
    hidden: set[Release]
    built: dict[int, PublicSubquery] = field(default_factory=dict)
    origins: dict[Release, Release] = field(default_factory=dict)

    @classmethod
    def from_plan(cls, outer: OuterQuery, hidden: set[Release]) -> CoarseGroups:
        """Return the rewriting of a plan."""
        uses = Counter[int]()
        releases = Counter[Release]()
        for part in _iterate_parts(outer):
            uses.update(map(id, list_children(part)))
            releases.update([part] if isinstance(part, Release) else [])
        shared = {id(part) for part in _iterate_parts(outer) if uses[id(part)] > 1}
        shared |= {
            id(part) for part in _iterate_parts(outer) if isinstance(part, Release) and releases[part] > 1
        }
        return cls(shared, {*hidden})

    def list_versions(self, release: Release) -> list[Release]:
        """List a release as it was lowered, and all that took its place."""
        found = [release]
        for made, origin in self.origins.items():  # the inner ones were made before
            found += [made] if origin in found else []
        return found

    def rewrite_part(self, part: object) -> object:
        """Return a part of the plan, the parts of which are rewritten, or what it is rewritten as."""
        if isinstance(part, PerUnitGroupBy) and not is_private(part):
            return self._rewrite_groups(part)
        return self._join_releases(part) if isinstance(part, OuterQuery) else part

    def _rewrite_groups(self, part: PerUnitGroupBy) -> PerUnitGroupBy | PublicSubquery:
        try:
            groups = _find_groups(part.input)
            release = groups.release
            if release.top is not None or release.all_public_rows or not release.keys:
                return part
            coarse = _CoarseRelease(groups, tuple(replace_parts(key, groups.known) for key in part.keys))
            columns = part.columns[len(part.keys) :]
            values = [
                _cast_to(coarse.build_aggregate(item), column.type)
                for item, column in zip(part.aggregates, columns, strict=True)
            ]
            exprs = [*(coarse.build_key(place) for place in range(len(part.keys))), *values]
            made = coarse.build_release()
        except _UnknownGroupsError:
            return part
        if not values or any(isinstance(key, Literal) for key in coarse.keys):
            return part
        if release not in self.hidden and not self._is_better(part, coarse):
            return part
        outputs = (Output(column.name, expr) for column, expr in zip(part.columns, exprs, strict=True))
        found = PublicSubquery(OuterQuery(made, tuple(outputs)), part.alias, part.columns)
        self.built[id(found)] = found
        if release in self.hidden:
            self.hidden.add(made)
            self.origins[made] = release
        return found

    def _is_better(self, part: PerUnitGroupBy, coarse: _CoarseRelease) -> bool:
        """Return whether the release alone answers, is the only reader of the groups, and measures no more and no wider values."""
        read = {id(each) for each in _iterate_parts(part) if not isinstance(each, tuple)}
        bare = all(isinstance(key, ReleasedColumn) for key in coarse.keys)
        added = len(coarse.aggregations) <= len(coarse.release.aggregations)
        return (
            bare
            and added
            and not (read & set(self.shared))
            and all(item.function in _ADDITIVE for item in coarse.aggregations)
            and coarse.is_no_wider()
        )

    def _join_releases(self, outer: OuterQuery) -> OuterQuery:
        """Return a query over rewritten groups as one over their release."""
        if isinstance(outer.source, Release) or not self._is_rewritten(outer.source):
            return outer
        groups = _find_groups(outer.source)
        conditions = [*groups.conditions]
        conditions += [] if outer.having is None else [replace_parts(outer.having, groups.known)]
        found = replace(
            outer,
            source=groups.release,
            outputs=tuple(
                replace(output, expr=replace_parts(output.expr, groups.known)) for output in outer.outputs
            ),
            having=reduce(_join_conditions, conditions) if conditions else None,
            order=replace_order_parts(outer.order, groups.known),
            qualify=None if outer.qualify is None else replace_parts(outer.qualify, groups.known),
        )
        left = [*(output.expr for output in found.outputs), *(item.expr for item in found.order)]
        left += [part for part in (found.having, found.qualify) if part is not None]
        return outer if any(isinstance(part, Column) for expr in left for part in walk(expr)) else found

    def _is_rewritten(self, relation: Relation) -> bool:
        """Return whether the rows of a relation are rewritten groups, of which conditions select some."""
        while isinstance(relation, Filter) or (
            isinstance(relation, Project) and not relation.distinct and not relation.once
        ):
            relation = relation.input
        return id(relation) in self.built


def _join_conditions(one: Expr, other: Expr) -> Expr:
    found = build_function_call("and", one, other)
    if found is None:
        raise TypeError("two conditions can be joined")
    return found


def _iterate_parts(part: object) -> Iterable[object]:
    """Yield the parts of a plan once each."""
    waiting: list[object] = [part]
    seen = set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += list_children(found)
