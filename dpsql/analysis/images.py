"""Images: the values of an expression in the rows that conditions keep, computed by DuckDB without data.

Claim: the image of an expression contains its value in every row whose columns are in their domains and for which the
conditions of the relation are true, and does not depend on private data. It has no value that no such row has, as far as
the conditions read columns of few values; `Images.undecided_conditions` says whether some condition on such columns was not computed.
Why: it is computed for each combination of these values, by the SQL that reads the rows, on an engine without data; the
values follow from the policy and the plan. Every engine computes a function as DuckDB does, except those that its dialect
calls `approximate_functions`, and days beyond the calendar, where others have NULL: conditions with these are not computed. If a
condition reads other columns too, the part that it implies for the column alone is computed.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.analysis.domains import (
    MAX_DERIVED,
    Domain,
    derive_domain,
    derive_listed_values,
    list_whole_values,
    narrow_domain,
    normalize_group_key,
)
from dpsql.analysis.intervals import (
    KnownIntervals,
    derive_interval,
    derive_known_intervals,
    get_type_limits,
    narrow_intervals,
)
from dpsql.analysis.stability import PublicFacts
from dpsql.plan.expressions import (
    Call,
    Column,
    ColumnInfo,
    Expr,
    Literal,
    ReleasedColumn,
    Scalar,
    WindowCall,
    iterate_columns,
    substitute_columns,
    walk,
)
from dpsql.plan.functions import build_function_call
from dpsql.plan.interval import ANYWHERE
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    Source,
    Values,
    is_private,
    iterate_sources,
    list_optional_aliases,
)
from dpsql.plan.steps import list_required_steps, list_steps
from dpsql.plan.types import Type

MAX_COMBINATIONS = 100_000
"""Most combinations of values of columns for which an expression is computed."""

_BOX = "#box"
_COMPARES = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "in", "like"))
"""Conditions of columns and constants that are not true of NULL."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of expressions over the rows of a relation, whose conditions hold."""

    facts: PublicFacts
    relation: Relation
    found: dict[tuple[int, str, str], Domain | None] = field(default_factory=dict, compare=False, repr=False)
    """The values of columns, by the identity of the relation: derived tables within each other share columns."""
    undecided_conditions: list[Expr] = field(default_factory=list, compare=False, repr=False)
    """The requested conditions on columns alone that were not computed."""

    def compute_image(self, expr: Expr, known: KnownIntervals) -> Domain | None:
        """Return every value of `expr`, NULL last if it can be NULL; None where its columns have too many values, or others."""
        read = tuple(sorted(dict.fromkeys(iterate_columns(expr)), key=str))
        if not read or not is_statically_computable(expr, self.facts) or _can_leave_calendar(expr, known):
            return None
        if not self._are_possible:
            return ()
        given = {column: self._find_values(column, known) for column in read}
        if any(values is None for values in given.values()):
            return self._compute_remaining_values(expr, known)
        return self._compute_for_values(
            expr, {column: values or () for column, values in given.items()}, known
        )

    def _narrow_by_conditions(self, known: KnownIntervals) -> KnownIntervals:
        """Return the intervals that conditions give to expressions which they compare with computed constants."""
        for condition in _iterate_conditions(self.relation):
            if isinstance(condition, Call) and condition.function.name in _COMPARES:
                settled = (self._fold_constant(part) for part in condition.arguments)
                known = narrow_intervals(replace(condition, arguments=tuple(settled)), known)
        return known

    def _fold_constant(self, expr: Expr) -> Expr:
        """Return the constant that an expression of constants is equal to; any other expression unchanged."""
        if (
            not isinstance(expr, Call)
            or any(iterate_columns(expr))
            or not is_statically_computable(expr, self.facts)
        ):
            return expr
        one = Column(_BOX, "one", ColumnInfo(Type.BOOLEAN, ""))
        found = _compute_image(self.facts, expr, [], {one: (True,)})
        return expr if not found or found[0] is None else Literal(found[0], expr.type)

    @property
    def _are_possible(self) -> bool:
        """Return whether conditions that read constants and public values only are true."""
        settled = [part for part in _iterate_conditions(self.relation) if not any(iterate_columns(part))]
        asked = [part for part in settled if is_statically_computable(part, self.facts)]
        whole = Column(_BOX, "whole", ColumnInfo(Type.BOOLEAN, ""))
        return _compute_image(self.facts, whole, asked, {whole: (True,)}) != () if asked else True

    def _compute_for_values(
        self, expr: Expr, given: dict[Column, Domain], known: KnownIntervals
    ) -> Domain | None:
        """Return the values of an expression for combinations of values of the columns that it reads."""
        if _count_combinations(given) > MAX_COMBINATIONS:
            return None
        asked, given = self._select_conditions(given, known)
        if isinstance(expr, Column) and not asked:
            values = given[expr]
            return values if len(values) <= MAX_DERIVED or expr.facts.domain is not None else None
        return _compute_image(self.facts, expr, asked, given)

    def _select_conditions(
        self, given: dict[Column, Domain], known: KnownIntervals
    ) -> tuple[list[Expr], dict[Column, Domain]]:
        """Return the conditions on several columns that are computed, and the values of all columns that they read.

        A condition that reads further columns is computed as well where these have few values.
        """
        asked, found = list[Expr](), given
        for condition in _iterate_conditions(self.relation):
            read = set(iterate_columns(condition))
            if (
                len(read) < 2
                or not read & given.keys()
                or not is_statically_computable(condition, self.facts)
            ):
                continue
            more = {column: self._find_values(column, known) for column in read - found.keys()}
            if any(values is None for values in more.values()):
                continue
            together = found | {column: values or () for column, values in more.items()}
            if _count_combinations(together) <= MAX_COMBINATIONS:
                asked, found = [*asked, condition], together
        return asked, found

    def _find_values(self, column: Column, known: KnownIntervals) -> Domain | None:
        """Return the values of a column in the rows that conditions on it alone leave."""
        place = id(self.relation), column.source, column.name
        if place not in self.found:
            self.found[place] = self._compute_values(column, known)
        return self.found[place]

    def _compute_values(self, column: Column, known: KnownIntervals) -> Domain | None:
        known = self._narrow_by_conditions(known)
        stated = derive_domain(column, known, derive_listed_values(self.relation)) or list_whole_values(
            column, known, MAX_COMBINATIONS
        )
        traced = self._trace_values(column)
        if traced is not None:
            stated = traced if stated is None else _intersect_values(stated, traced)
        if stated is None:
            return None
        values = narrow_domain(stated, column, known)
        asked = []
        for condition in _iterate_conditions(self.relation):
            implied = _derive_implied_condition(
                condition,
                lambda part: (
                    set(iterate_columns(part)) == {column} and is_statically_computable(part, self.facts)
                ),
            )
            if implied is not None:
                asked.append(implied)
            if set(iterate_columns(condition)) == {column} and implied is not condition:
                self.undecided_conditions.append(condition)
        if asked:
            found = _compute_image(self.facts, column, asked, {column: values}, len(values))
            self.undecided_conditions.extend(asked if found is None else ())
            values = _intersect_values(values, found)
        for match in self._iterate_matches(column):
            values = _intersect_values(values, _compute_matched_values(self.facts, column, match, values))
        return values

    def _iterate_matches(self, column: Column) -> Iterator[SemiJoin]:
        """Return the conditions by which a row of a public source may match a column of a source that is known already."""
        relation, conditions = self.relation, [*_iterate_conditions(self.relation)]
        while not isinstance(relation, Source):
            match relation:
                case SemiJoin(right=right, on=on):
                    outside = {read for read in iterate_columns(on) if read.source != right.alias}
                    if outside == {column} and _is_known(right) and is_statically_computable(on, self.facts):
                        yield relation
                case Join(right=right) if _is_known(right):
                    both: Expr | None
                    pairs = [
                        (ours, theirs)
                        for ours, theirs in relation.on
                        if set(iterate_columns(ours)) == {column}
                    ]
                    equal = [build_function_call("eq", ours, theirs) for ours, theirs in pairs]
                    there = [
                        part
                        for part in conditions
                        if {read.source for read in iterate_columns(part)} == {right.alias}
                    ]
                    both = _build_conjunction([part for part in (*equal, *there) if part is not None])
                    found = relation.kind is JoinKind.INNER or any(map(_rejects_null, there))
                    if found and pairs and both is not None and is_statically_computable(both, self.facts):
                        yield SemiJoin(right, right, both)
            relation = relation.left if isinstance(relation, Join) else relation.input

    def _compute_remaining_values(self, expr: Expr, known: KnownIntervals) -> Domain | None:
        """Return the values of an expression that conditions on it leave, where its columns have too many values."""
        values = derive_domain(expr, self._narrow_by_conditions(known), derive_listed_values(self.relation))
        if values is None:
            return None
        whole, own = Column(_BOX, "whole", ColumnInfo(expr.type, "")), set(iterate_columns(expr))
        asked = []
        for condition in _iterate_conditions(self.relation):
            implied = _derive_implied_condition(
                _replace_parts(condition, {expr: whole}),
                lambda part: (
                    set(iterate_columns(part)) == {whole} and is_statically_computable(part, self.facts)
                ),
            )
            if implied is not None:
                asked.append(implied)
            elif own.issuperset(iterate_columns(condition)) and not _is_narrowing(condition):
                self.undecided_conditions.append(condition)
        return _compute_image(self.facts, whole, asked, {whole: values}) if asked else values

    def _trace_values(self, column: Column) -> Domain | None:
        """Return the values of a column of a derived table, from the rows that this is made of."""
        source = next(
            (found for found in iterate_sources(self.relation) if found.alias == column.source), None
        )
        if not isinstance(source, (Project, PerUnitGroupBy, PerUnitWindows)):
            return None
        exprs = source.keys if isinstance(source, PerUnitGroupBy) else source.items
        # By name: outside of a LEFT JOIN, a column of its right side has nullable facts.
        named = (known.name for known in source.columns)
        item = dict(zip(named, exprs, strict=False)).get(column.name)
        if item is None:
            return None
        inner = source.input
        values = derive_domain(
            item, derive_known_intervals(inner), derive_listed_values(inner), replace(self, relation=inner)
        )
        # A LEFT JOIN pads an unmatched row with NULL.
        outer = column.source in list_optional_aliases(self.relation)
        return values if values is None or not outer or None in values else (*values, None)


def _iterate_conditions(relation: Relation) -> Iterator[Expr]:
    """Return the conditions that are true of the rows of a relation: of WHERE, and of ON of inner joins."""
    match relation:
        case Filter():
            yield from _iterate_conjuncts(relation.predicate)
            yield from _iterate_conditions(relation.input)
        case SemiJoin():
            yield from _iterate_conditions(relation.input)
        case Join():
            if relation.kind is JoinKind.INNER:
                equal = (build_function_call("eq", *pair) for pair in relation.on)
                yield from (part for part in equal if part is not None)
                yield from () if relation.condition is None else _iterate_conjuncts(relation.condition)
            yield from _iterate_conditions(relation.left)


def _rejects_null(condition: Expr) -> bool:
    """Return whether a condition is true of no row whose columns are NULL, as where a LEFT JOIN finds no row."""
    return isinstance(condition, Call) and condition.function.name in _COMPARES


def _is_known(source: Source) -> bool:
    """Return whether the rows of a source are public and not computed from releases or other steps."""
    return not is_private(source) and not list_required_steps(source)


def _build_conjunction(parts: Sequence[Expr]) -> Expr | None:
    """Return the condition that all of some conditions are true."""
    found: Expr | None = parts[0] if parts else None
    for part in parts[1:]:
        found = None if found is None else build_function_call("and", found, part)
    return found


def _intersect_values(values: Domain, others: Domain | None) -> Domain:
    """Return those of some values that are among others, if these are known."""
    if others is None:
        return values
    found = frozenset(others)
    return tuple(value for value in values if value in found)


def _compute_matched_values(
    facts: PublicFacts, column: Column, match: SemiJoin, values: Domain
) -> Domain | None:
    """Return those of some values of a column that a row of a public source matches, or that none does."""
    if not values:
        return ()
    named = Column(_BOX, "c0", replace(column.facts, engine_type="", identity=None))
    box = Values(tuple((value,) for value in values), _BOX, (named,))
    rows = facts.read_rows(
        OuterQuery(
            replace(match, input=box, on=_replace_parts(match.on, {column: named})), (Output("k0", named),)
        )
    )
    return tuple(normalize_group_key(value) for (value,) in rows)


def _iterate_conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Return the conditions that are true where a predicate is, truth values of columns and constants among them."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for part in predicate.arguments:
            yield from _iterate_conjuncts(part)
    else:
        yield predicate


def _derive_implied_condition(condition: Expr, wanted: Callable[[Expr], bool]) -> Expr | None:
    """Return the part of a condition that follows from the wanted conjuncts; None if nothing follows.

    Claim: it is true where the condition is.
    Why: if an AND is true, each part is, and if an OR is true, one part is; an unknown part of an OR excludes nothing.
    """
    if wanted(condition):
        return condition
    if not isinstance(condition, Call):
        return None
    name, parts = condition.function.name, condition.arguments
    if name == "not" and isinstance(parts[0], Call) and parts[0].function.name in ("and", "or"):
        name = "or" if parts[0].function.name == "and" else "and"
        parts = tuple(
            part for each in parts[0].arguments if (part := build_function_call("not", each)) is not None
        )
    if name not in ("and", "or"):
        return None
    said = [_derive_implied_condition(part, wanted) for part in parts]
    found = [part for part in said if part is not None]
    if not found or (name == "or" and len(found) < len(said)):
        return None
    return found[0] if len(found) == 1 else build_function_call(name, *found)


def _is_narrowing(condition: Expr) -> bool:
    """Return whether a condition compares a column with a constant, so that the column's interval already holds it."""
    if not isinstance(condition, Call) or condition.function.name not in _COMPARES:
        return False
    return any(
        isinstance(part, Column) and around != ANYWHERE
        for part, around in narrow_intervals(condition).items()
    )


def iterate_key_conditions(release: Release, facts: PublicFacts) -> Iterator[Expr]:
    """Return the conditions on several keys of a release, and on nothing else, over its released keys.

    Claim: they are true of each group that has rows.
    Why: they are true of all rows of the relation, and rows of a group have its keys.
    """
    known: dict[Expr, Expr] = {
        key.expr: ReleasedColumn(key.name, key.expr.type)
        for key in release.keys
        if key.expr.type is not Type.DOUBLE
    }
    for condition in _iterate_conditions(release.input):
        # DuckDB computes over released values, whichever engine holds the rows.
        found = _derive_implied_condition(
            _replace_parts(condition, known),
            lambda part: (
                not any(iterate_columns(part)) and is_statically_computable(part, facts, known.values())
            ),
        )
        if found is not None and len({part for part in walk(found) if isinstance(part, ReleasedColumn)}) > 1:
            yield found


def _count_combinations(given: Mapping[Column, Domain]) -> int:
    return math.prod(map(len, given.values()))


def _compute_image(
    facts: PublicFacts,
    expr: Expr,
    asked: Sequence[Expr],
    given: Mapping[Column, Domain],
    most: int = MAX_DERIVED,
) -> Domain | None:
    """Compute the values of an expression where conditions are true, for all combinations of values of columns.

    None for more than `most`, and where one is past Python's calendar.
    """
    read = tuple(given)
    rows = tuple(itertools.product(*given.values()))
    if not rows:
        return ()
    named = tuple(
        Column(_BOX, f"c{place}", replace(column.facts, engine_type="", identity=None))
        for place, column in enumerate(read)
    )
    items = dict(zip(read, named, strict=True))
    outputs = tuple(
        Output(f"k{place}", substitute_columns(part, items)) for place, part in enumerate((expr, *asked))
    )
    tried = facts.evaluate_constants(OuterQuery(Values(rows, _BOX, named), outputs, distinct=True))
    if tried is None:
        return None
    found = [value for value, *true in tried if all(true)]
    # Not all conditions on the rows narrow the constants, so these may be further apart than the interval.
    if expr.type.temporal and any(isinstance(value, str) for value in found):
        return None
    values = {normalize_group_key(value) for value in found}
    if len(values) > most:
        return None
    there = sorted(value for value in values if value is not None)
    return (*there, None) if None in values else tuple(there)


def _replace_parts(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with some of its parts replaced."""
    if expr in known:
        return known[expr]
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_replace_parts(part, known) for part in expr.arguments))
    return expr


def is_statically_computable(expr: Expr, facts: PublicFacts, released: Collection[Expr] = ()) -> bool:
    """Return whether an expression has the same value when it is computed from constants as from rows, on every engine.

    Values of earlier releases are not known before these, except those that are `released` with the groups.
    """
    return all(_is_computable_part(part, facts, released) for part in walk(expr))


def _is_computable_part(part: Expr, facts: PublicFacts, released: Collection[Expr]) -> bool:
    if isinstance(part, Scalar):
        return not any(isinstance(step, Release) for step in list_steps(part.outer))
    if isinstance(part, (ReleasedColumn, WindowCall)):
        return part in released
    if not isinstance(part, Call) or not facts.approximate_functions:
        return True
    return part.function.name not in facts.approximate_functions and _is_within_calendar(part)


def _is_within_calendar(expr: Expr) -> bool:
    """Return whether a day or moment is surely of the years 1 to 9999; other values are."""
    if expr.type not in (Type.DATE, Type.TIMESTAMP):
        return True
    around = derive_interval(expr)
    return around.is_part_of(get_type_limits(expr.type))


def _can_leave_calendar(expr: Expr, known: KnownIntervals) -> bool:
    """Return whether values may lie outside Python's calendar, where they are shown in other ways."""
    return expr.type.temporal and not derive_interval(expr, known).is_bounded
