"""Public domains of group keys.

Claim: the domain of a key, if it has one, contains every value of the expression, and does not depend on private data.
Why: it is derived from declared values and bounds, constants and the plan only; rows whose key is not in the list of a
condition are filtered out.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any, Protocol

from dpsql.analysis.intervals import KnownIntervals, derive_interval
from dpsql.analysis.number_types import find_nearest_float
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.plan.expressions import UNIT_IDENTITY, Call, Column, Expr, Literal, is_null, iterate_columns
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.interval import find_position
from dpsql.plan.nodes import Filter, Join, Relation, SemiJoin
from dpsql.plan.types import Type, Value

MAX_DERIVED = 1_000
"""Most values of a domain that follows from bounds rather than from a declared list."""
MAX_GROUPS = 100_000
"""Most combinations of keys that are released from domains."""

EXACT = 2**53
"""Whole numbers up to here are DOUBLE too, so that arithmetic on them is the same in either type."""

Domain = tuple[Value, ...]
ListedValues = Mapping[Expr, Domain | None]
"""The values that conditions allow an expression, without NULL; None for any value but NULL."""

_LISTED = frozenset({Type.VARCHAR, Type.INTEGER, Type.DATE, Type.TIME, Type.UUID, Type.BLOB})
"""Types whose values are equal only if they are the same: 0.0 and -0.0 are not."""
_PRESENT = frozenset({Type.VARCHAR, Type.INTEGER, Type.BOOLEAN, Type.UUID, Type.BLOB})
"""Types in which only NULL has the key NULL; NaN and days outside of the calendar have it too."""


class ImageProvider(Protocol):
    """A provider of the values of an expression for all values of the columns that it reads."""

    def compute_image(self, expr: Expr, known: KnownIntervals) -> Domain | None:
        """Compute every value of `expr`, NULL last if it can be NULL; None where it cannot be computed."""
        ...


def derive_domain(
    expr: Expr, known: KnownIntervals, stated: ListedValues | None = None, image: ImageProvider | None = None
) -> Domain | None:
    """Derive every value that `expr` can take, NULL last if it can be NULL; None if that is not public.

    `known` and `stated` are what conditions say of it. With an `image` they are those that it has of some values of
    its columns; else some may be values that it has of none.
    """
    values = _derive_domain(expr, known, stated, {})
    computed = None if image is None else image.compute_image(expr, known)
    if computed is None:
        return values
    if values is not None:
        found = frozenset(computed)
        return tuple(value for value in values if value in found)
    there = narrow_domain(computed, expr, known)
    return tuple(value for value in there if value is not None) if expr in (stated or {}) else there


def narrow_domain(values: Domain, expr: Expr, known: KnownIntervals) -> Domain:
    """Return those of an expression's values, and NULL, that conditions leave."""
    around = known.get(expr)
    if around is None:
        return values
    places = ((value, find_position(value)) for value in values)
    return tuple(value for value, place in places if place is None or around.contains(place))


_Found = dict[int, Domain | None]
"""The domains of the parts of one expression by identity, each derived once; the expression outlives it."""


def _derive_part_domain(expr: Expr, known: KnownIntervals, found: _Found) -> Domain | None:
    if not isinstance(expr, Call):
        return _derive_domain(
            expr, known, None, found
        )  # it may be a temporary object, whose identity is reused
    if id(expr) not in found:
        found[id(expr)] = _derive_domain(expr, known, None, found)
    return found[id(expr)]


def _derive_domain(
    expr: Expr, known: KnownIntervals, stated: ListedValues | None, found: _Found
) -> Domain | None:
    """Derive the domain of an expression from the domains of its parts."""
    values = _derive_values(expr, known, found)
    stated = stated or {}
    named = stated.get(expr)
    if named is not None and values is None:
        return tuple(sorted(named))  # type: ignore[type-var]  # all are of one type
    if values is None:
        return None
    distinct = tuple(dict.fromkeys(value for value in values if value is not None))
    if expr in stated:
        return tuple(value for value in distinct if named is None or value in named)
    return (*distinct, None) if is_nullable(expr) or None in values else distinct


def derive_listed_values(relation: Relation) -> ListedValues:
    """Derive the values that filters leave to expressions, from x = c, x IN (c, …), x IS NOT NULL, and ANDs and ORs of them."""
    match relation:
        case Filter():
            return _intersect_listed(
                derive_listed_values(relation.input), _derive_predicate_values(relation.predicate)
            )
        case SemiJoin():
            return derive_listed_values(relation.input)
        case Join():
            return derive_listed_values(relation.left)
        case _:
            return {}


def _derive_predicate_values(predicate: Expr) -> ListedValues:
    """Derive the values that expressions can have where a predicate is true."""
    if not isinstance(predicate, Call):
        return {}
    match predicate.function.name:
        case "and":
            return reduce(_intersect_listed, map(_derive_predicate_values, predicate.arguments))
        case "or":
            return reduce(_union_listed, map(_derive_predicate_values, predicate.arguments))
        case "eq" | "in":
            first, *others = predicate.arguments
            if isinstance(first, Literal) and len(others) == 1:
                first, others = others[0], [first]
            return _derive_membership(first, others)
        case "not":
            return _derive_not_null(predicate.arguments[0])
        case _:
            return {}


def _derive_not_null(expr: Expr) -> ListedValues:
    """Derive the values where an expression is false: where x IS NULL is false, x has a value."""
    if not isinstance(expr, Call) or expr.function.name != "is_null":
        return {}
    (argument,) = expr.arguments
    return {argument: None} if argument.type in _PRESENT else {}


def _derive_membership(expr: Expr, others: Sequence[Expr]) -> ListedValues:
    if isinstance(expr, Literal) or expr.type not in _LISTED or len(others) > MAX_DERIVED:
        return {}
    constants = [other for other in others if isinstance(other, Literal) and other.type is expr.type]
    distinct = dict.fromkeys(constant.value for constant in constants)
    return {expr: tuple(distinct)} if len(constants) == len(others) else {}


def _intersect_listed(left: ListedValues, right: ListedValues) -> ListedValues:
    shared = {expr: _intersect_domains(left[expr], right[expr]) for expr in left.keys() & right.keys()}
    return {**left, **right, **shared}


def _intersect_domains(ours: Domain | None, theirs: Domain | None) -> Domain | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    return tuple(value for value in ours if value in theirs)


def _union_listed(left: ListedValues, right: ListedValues) -> ListedValues:
    return {expr: _union_domains(left[expr], right[expr]) for expr in left.keys() & right.keys()}


def _union_domains(ours: Domain | None, theirs: Domain | None) -> Domain | None:
    return None if ours is None or theirs is None else tuple(dict.fromkeys((*ours, *theirs)))


def normalize_group_key(value: Any) -> Any:
    """Return a value as the key of its group: -0.0 is 0.0, and NaN NULL."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else value + 0.0


def list_combinations(domains: tuple[Domain, ...]) -> tuple[tuple[Value, ...], ...]:
    """List all combinations, in the order of the domains."""
    return tuple(itertools.product(*domains))


def is_nullable(expr: Expr) -> bool:
    """Return whether a group may have NULL for this key. Rows that the policy excludes are dropped."""
    return _is_nullable_part(expr, {})


def _is_nullable_part(expr: Expr, found: dict[int, bool]) -> bool:
    match expr:
        case Column():
            return expr.facts.nullable
        case Literal():
            return expr.value is None
        case Call():
            if id(expr) not in found:  # a part of one expression, which outlives it
                found[id(expr)] = _can_give_null(expr, found)
            return found[id(expr)]
        case _:
            return True


def _can_give_null(expr: Call, found: dict[int, bool]) -> bool:
    if expr.function.never_null:
        return False
    if expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        return any(
            _is_nullable_part(value, found) for value in (otherwise, *(value for _, value in branches))
        )
    some = (_is_nullable_part(argument, found) for argument in expr.arguments)
    if expr.function.name == "coalesce":
        return all(some)
    return not expr.function.strict or any(some)


def _derive_values(expr: Expr, known: KnownIntervals, found: _Found) -> Domain | None:
    if isinstance(expr, Literal):
        return (expr.value,)
    if isinstance(expr, Column) and expr.facts.domain is not None:
        return expr.facts.domain
    if expr.type is Type.BOOLEAN:
        return (False, True)
    if isinstance(expr, Call):
        chosen = _derive_choice_values(expr, known, found)
        if chosen is not None:
            return chosen
        listed = _list_function_values(expr, known)
        if listed is not None:
            return listed
        computed = _compute_arithmetic_values(expr, known, found)
        if computed is not None:
            return computed
    return _list_whole_values(expr, known)


def _derive_choice_values(expr: Call, known: KnownIntervals, found: _Found) -> Domain | None:
    """Derive the domain of an expression that only picks among others."""
    if expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        options = [*(value for _, value in branches), otherwise]
    elif expr.function.name == "coalesce" or _is_date_as_timestamp(expr):
        # Arguments after one that is never NULL are never used.
        there = [not is_nullable(argument) for argument in expr.arguments]
        options = list(expr.arguments[: there.index(True) + 1 if True in there else None])
    else:
        return None
    domains = [
        _derive_part_domain(option, known, found) for option in options if option.type is not Type.NULL
    ]
    known_domains = [values for values in domains if values is not None]
    if len(known_domains) < len(domains):
        return None
    together = tuple(itertools.chain.from_iterable(known_domains))
    return tuple(_to_type(expr.type, value) for value in together if value is not None)


def _is_date_as_timestamp(expr: Call) -> bool:
    """Return whether a DATE is read as the TIMESTAMP at which it begins."""
    return expr.function.name == "cast_timestamp" and expr.arguments[0].type is Type.DATE


def _to_type(kind: Type, value: Value) -> Value:
    """Return a value of an option's domain as the whole expression shows it: in its common type."""
    if kind is Type.DOUBLE:
        return float(value)  # type: ignore[arg-type]
    if kind is Type.TIMESTAMP and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value


def list_whole_values(expr: Expr, known: KnownIntervals, most: int = MAX_DERIVED) -> Domain | None:
    """List all whole values of a bounded interval, of 64 bits for INTEGER; None if there are none or too many.

    NULL, which is at no place of an interval, is last where the expression may be NULL.
    """
    values = _list_whole_values(expr, known, most)
    return (*values, None) if values is not None and is_nullable(expr) else values


def _list_whole_values(expr: Expr, known: KnownIntervals, most: int = MAX_DERIVED) -> Domain | None:
    """List the values like `list_whole_values`, without NULL."""
    whole = expr.type in (Type.INTEGER, Type.DATE) or (isinstance(expr, Call) and expr.function.integral)
    around = derive_interval(expr, known)
    if not whole or not around.is_bounded:
        return None
    low, high = (math.ceil(around.ends[0]), math.floor(around.ends[1]))
    if expr.type is Type.INTEGER:
        low, high = max(low, -(2**63)), min(high, 2**63 - 1)
    if not 0 <= high - low < most:
        return None
    places = range(low, high + 1)
    if expr.type is Type.DATE:
        return tuple(dt.date.fromordinal(place) for place in places)
    return tuple(map(float, places)) if expr.type is Type.DOUBLE else tuple(places)


def _list_function_values(expr: Call, known: KnownIntervals) -> Domain | None:
    """List all results of a function, where its entry states them and they are not too many."""
    around = tuple(derive_interval(argument, known) for argument in expr.arguments)
    values = expr.function.values(expr.arguments, around)
    if values is None:
        return None
    listed = tuple(itertools.islice(values, MAX_DERIVED + 1))
    return listed if len(listed) <= MAX_DERIVED else None


_ARITHMETIC: dict[str, Callable[..., int | float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "negate": operator.neg,
    "cast_double": float,
    "cast_float": lambda value: find_nearest_float(value) or 0.0,
    "cast_bigint": int,
    "cast_integer": int,
}
"""Functions that Python computes like the engine, if all numbers are whole and exact."""


def _compute_arithmetic_values(expr: Call, known: KnownIntervals, found: _Found) -> Domain | None:
    """Compute all results of arithmetic on few values, where these are fewer than its interval holds: `x // 10 * 10`."""
    operation = _ARITHMETIC.get(expr.function.name)
    if operation is None:
        return None
    inputs = [_derive_part_domain(argument, known, found) for argument in expr.arguments]
    given = [[value for value in values if value is not None] for values in inputs if values is not None]
    if len(given) < len(inputs) or math.prod(map(len, given)) > MAX_DERIVED:
        return None
    if not all(_is_whole(value) for values in given for value in values):
        return None
    results = sorted({operation(*values) for values in itertools.product(*given)})
    if any(abs(result) > EXACT for result in results):
        return None
    around = known.get(expr)
    return tuple(
        _to_type(expr.type, result)
        for result in results
        if around is None or around.contains(Fraction(result))
    )


def _is_whole(value: Value) -> bool:
    """Return whether a value is a whole number that both integers and doubles hold exactly."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= EXACT and value == math.floor(value)


# Bounds on the distinct values of an expression that one privacy unit can have in a group.


def bound_distinct_values(expr: Expr, relation: Relation, known: KnownIntervals) -> int | None:
    """Return the most values, NULL left out, that an expression has over all rows of one unit; None where that has no bound.

    Claim: whatever the rows of a unit hold, the expression has no more values other than NULL than this number.
    Why: the unit's id, and what follows from it alone, is one value in all its rows; a column is read as one of the
    values of its domain, or as NULL; CASE has the values of its branches, and a function one value for each combination of
    those of its columns. None of these is a declaration that the data could break.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2 (a unit enlarges a set by what it brings).
    """
    if is_null(expr):
        return 0
    if find_injective_identity(expr, relation) == UNIT_IDENTITY:
        return 1
    values = derive_domain(expr, known, derive_listed_values(relation))
    found = [] if values is None else [sum(value is not None for value in values)]
    if isinstance(expr, Call):
        read = [
            bound_distinct_values(column, relation, known) for column in dict.fromkeys(iterate_columns(expr))
        ]
        found += [prod(count + 1 for count in read if count is not None)] * (None not in read)  # or NULL
    if isinstance(expr, Call) and expr.function.name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        each = [
            bound_distinct_values(part, relation, known)
            for part in dict.fromkeys([*(value for _, value in branches), otherwise])
        ]
        found += [sum(count for count in each if count is not None)] * (None not in each)
    return min(found, default=None)
