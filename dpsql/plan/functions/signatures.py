"""Type rules that several functions share."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.plan.types import Type, find_common_type

TypeRule = Callable[[tuple[Type, ...]], Type | None]

NUMBER = (Type.INTEGER, Type.DOUBLE)
INTEGER = (Type.INTEGER,)
TEMPORAL = (Type.DATE, Type.TIMESTAMP)
TEXT = (Type.VARCHAR,)
TRUTH = (Type.BOOLEAN,)
ANY = tuple(kind for kind in Type if kind is not Type.LIST)


def infer_numeric_type(types: tuple[Type, ...]) -> Type | None:
    """Return the common type of numbers; NULL counts as a number."""
    shared = find_common_type(types)
    return shared if shared is None or shared.numeric or shared is Type.NULL else None


def make_numeric_rule(count: int) -> TypeRule:
    """Return the rule that takes a given count of numbers to their common type."""
    return lambda types: infer_numeric_type(types) if len(types) == count else None


def infer_comparison_type(types: tuple[Type, ...]) -> Type | None:
    """Return BOOLEAN for values of one type."""
    return None if find_common_type(types) is None else Type.BOOLEAN


def infer_logic_type(types: tuple[Type, ...]) -> Type | None:
    """Return BOOLEAN for booleans."""
    return Type.BOOLEAN if set(types) <= {Type.BOOLEAN, Type.NULL} else None


def make_fixed_rule(result: Type, *parameters: tuple[Type, ...]) -> TypeRule:
    """Build a rule of fixed length: each parameter lists the types it takes, NULL always among them."""

    def infer_type(types: tuple[Type, ...]) -> Type | None:
        if len(types) != len(parameters):
            return None
        fits = all(t in takes or t is Type.NULL for t, takes in zip(types, parameters, strict=True))
        return result if fits else None

    return infer_type


def make_variadic_rule(least: int, takes: tuple[Type, ...] = ANY, result: Type | None = None) -> TypeRule:
    """Build a rule for `least` or more arguments of one type, which is the result's unless that is given."""

    def infer_type(types: tuple[Type, ...]) -> Type | None:
        shared = find_common_type(types) if len(types) >= least else None
        if shared is None or (shared not in takes and shared is not Type.NULL):
            return None
        return result or shared

    return infer_type


def format_placeholders(count: int) -> str:
    """Return the placeholders of a template for `count` arguments.

    >>> format_placeholders(2)
    '{0}, {1}'
    """
    return ", ".join(f"{{{place}}}" for place in range(count))


ONE_NUMBER = make_fixed_rule(Type.DOUBLE, NUMBER)
"""The rule of a function of one number whose result is DOUBLE."""
GUARDED = "defined for every DOUBLE, or TRY gives NULL where the engine is set to refuse some"
"""The reason why such a function cannot fail on any row."""
