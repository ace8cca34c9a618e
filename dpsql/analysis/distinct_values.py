"""Bounds on the distinct values of an expression that one privacy unit can have in a group."""

from __future__ import annotations

from math import prod

from dpsql.analysis.domains import derive_domain, derive_listed_values
from dpsql.analysis.intervals import KnownIntervals
from dpsql.analysis.unit_identity import find_injective_identity
from dpsql.plan.expressions import UNIT_IDENTITY, Call, Expr, is_null, iterate_columns
from dpsql.plan.functions.conditional import split_case_branches
from dpsql.plan.nodes import Relation


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
