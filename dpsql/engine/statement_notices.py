"""Notices that follow from a statement and the policy: constants that never match, constant tests, rows without a unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from dpsql.plan.dependencies import list_children
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn
from dpsql.plan.interval import find_position, format_interval
from dpsql.plan.nodes import (
    Join,
    JoinKind,
    OuterQuery,
    Release,
)
from dpsql.plan.render import format_expression
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type, Value

_LISTED = 6
_MOST_CONSTANTS = 4
"""The most constants of a comparison of which a notice says why they never match: each is looked up among all values of a column."""
_QUESTIONS = {"isnan": "false", "isinf": "false", "isfinite": "true"}
_NULL_TESTS = ("is_null",)
_EQUALITIES = ("eq", "ne", "in", "is_distinct", "is_not_distinct")
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def describe_excluded_constants(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each constant that a column is compared with and, by the policy, never equals or reaches."""
    for call, keys in _iterate_calls(outer):
        name = call.function.name
        arguments = [
            keys.get(each.name, each) if isinstance(each, ReleasedColumn) else each for each in call.arguments
        ]
        constants = [each for each in arguments if isinstance(each, Literal)]
        for column in arguments if constants else ():
            if isinstance(column, Column):
                mirrored = name if column is arguments[0] else _MIRRORED.get(name, name)
                known = [each for each in dict.fromkeys(constants) if _is_comparable(each, column)]
                never = _list_unmatched_constants(column, mirrored, known)
                yield from (
                    _describe_unmatched_constant(call, column, constant)
                    for constant in never[:_MOST_CONSTANTS]
                )
                if len(never) > _MOST_CONSTANTS:
                    yield f"The same holds for {len(never) - _MOST_CONSTANTS:,} more constants of {format_expression(call)}."


def describe_constant_questions(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each test for NaN or infinities whose result is the same for every row."""
    for call, keys in _iterate_calls(outer):
        name = call.function.name
        column = call.arguments[0] if name in _QUESTIONS else None
        column = keys.get(column.name, column) if isinstance(column, ReleasedColumn) else column
        if not isinstance(column, Column) or not column.facts.is_stored:
            continue
        bounded = column.facts.interval.is_bounded
        if column.type is Type.DOUBLE and (bounded or name == "isnan"):
            how = ", infinities as the ends of its bounds" * bounded
            yield (
                f"{format_expression(call)} is {_QUESTIONS[name]} for every value: NaN in {column} is read as NULL{how}. "
                f"{column} IS NULL finds NaN and NULL alike."
            )


def describe_absent_ids(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each condition on rows without a unit's id, which belong to no privacy unit and are not read."""
    parts = [*iterate_plan_parts(outer)]
    # Behind a LEFT JOIN it is asked whether there is a partner.
    optional = {part.right.alias for part in parts if isinstance(part, Join) and part.kind is JoinKind.LEFT}
    units = {
        (part.alias, part.unit.column.name)
        for part in parts
        if isinstance(part, Scan) and part.unit.private and part.unit.column is not None
    }
    for call, _ in _iterate_calls(outer):
        for column in call.arguments if call.function.name in _NULL_TESTS else ():
            known = isinstance(column, Column) and (column.source, column.name) in units
            if isinstance(column, Column) and known and column.source not in optional:
                yield (
                    f"Rows whose {column} is NULL belong to no privacy unit and are not read: {format_expression(call)} is the same for "
                    "every row that is read."
                )


def iterate_plan_parts(outer: OuterQuery) -> Iterator[object]:
    """Yield each part of a plan once."""
    waiting: list[object] = [outer]
    seen = set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += list_children(part)


def _iterate_calls(outer: OuterQuery) -> Iterator[tuple[Call, Mapping[str, Expr]]]:
    """Yield each call of a plan once, with the expressions of the keys that its names mean above the privacy boundary."""
    waiting: list[tuple[object, Mapping[str, Expr]]] = [(outer, {})]
    seen = set[tuple[int, int]]()
    while waiting:
        part, keys = waiting.pop()
        if (id(part), id(keys)) in seen:
            continue
        seen.add((id(part), id(keys)))
        if isinstance(part, Call):
            yield part, keys
        if isinstance(part, OuterQuery):
            keys = (
                {key.name: key.expr for key in part.source.keys} if isinstance(part.source, Release) else {}
            )
        waiting += [(child, keys) for child in reversed(list_children(part))]


def _is_comparable(constant: Literal, column: Column) -> bool:
    """Return whether a constant has the column's type, and is not NULL."""
    numbers = constant.type.numeric and column.type.numeric
    return constant.value is not None and (constant.type is column.type or numbers)


def _list_unmatched_constants(column: Column, name: str, constants: Sequence[Literal]) -> list[Literal]:
    """Return the constants with which a comparison of a column has the same result for each value that the policy allows."""
    stated = column.facts
    if name in _EQUALITIES and stated.domain is not None:
        listed = frozenset(stated.domain)
        return [each for each in constants if each.value not in listed]
    if not stated.interval.is_bounded:
        return []
    low, high = stated.interval.ends
    found = []
    for each in constants:
        at = find_position(each.value)
        if at is None:
            continue
        beyond = {"lt": low >= at, "le": low > at, "gt": high <= at, "ge": high < at}
        if beyond.get(name, name in _EQUALITIES and not stated.interval.contains(at)):
            found.append(each)
    return found


def _describe_unmatched_constant(call: Call, column: Column, constant: Literal) -> str:
    stated = column.facts
    if call.function.name in _EQUALITIES and stated.domain is not None:
        return _describe_unlisted_constant(constant, column, stated.domain)
    ends = "" if not stated.is_stored else ", and values beyond its bounds count as the nearest end"
    return f"{format_expression(constant)} in {format_expression(call)} is out of reach: {column} is in {format_interval(stated.interval, column.type)}{ends}."


def _describe_unlisted_constant(constant: Literal, column: Column, domain: tuple[Value, ...]) -> str:
    values = ", ".join(map(str, domain[:_LISTED])) + f", … ({len(domain):,} values)" * (len(domain) > _LISTED)
    near = get_close_matches(str(constant.value), map(str, domain), 1)
    return (
        f"{format_expression(constant)} is not among the values that the policy lists for {column}: {values}. Other values count as NULL."
        + "".join(f" Did you mean {each}?" for each in near)
    )
