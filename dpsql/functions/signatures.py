"""Type rules that several functions share."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.plan.types import Type, common

Rule = Callable[[tuple[Type, ...]], Type | None]

NUMBER = (Type.INTEGER, Type.DOUBLE)
INTEGER = (Type.INTEGER,)
TEMPORAL = (Type.DATE, Type.TIMESTAMP)
TEXT = (Type.VARCHAR,)
TRUTH = (Type.BOOLEAN,)
ANY = tuple(kind for kind in Type if kind is not Type.LIST)


def numeric(types: tuple[Type, ...]) -> Type | None:
    """Numbers to their common type; NULL counts as a number."""
    shared = common(types)
    return shared if shared is None or shared.numeric or shared is Type.NULL else None


def numbers(count: int) -> Rule:
    """So many numbers to their common type."""
    return lambda types: numeric(types) if len(types) == count else None


def comparable(types: tuple[Type, ...]) -> Type | None:
    """Values of one type to a boolean."""
    return None if common(types) is None else Type.BOOLEAN


def booleans(types: tuple[Type, ...]) -> Type | None:
    """Booleans to a boolean."""
    return Type.BOOLEAN if set(types) <= {Type.BOOLEAN, Type.NULL} else None


def fixed(result: Type, *parameters: tuple[Type, ...]) -> Rule:
    """A rule of fixed length: each parameter lists the types it takes, NULL always among them."""

    def rule(types: tuple[Type, ...]) -> Type | None:
        if len(types) != len(parameters):
            return None
        fits = all(t in takes or t is Type.NULL for t, takes in zip(types, parameters, strict=True))
        return result if fits else None

    return rule


def several(least: int, takes: tuple[Type, ...] = ANY, result: Type | None = None) -> Rule:
    """A rule for `least` or more arguments of one type, which is the result's unless that is given."""

    def rule(types: tuple[Type, ...]) -> Type | None:
        shared = common(types) if len(types) >= least else None
        if shared is None or (shared not in takes and shared is not Type.NULL):
            return None
        return result or shared

    return rule


def written(count: int) -> str:
    """The placeholders of a template for `count` arguments.

    >>> written(2)
    '{0}, {1}'
    """
    return ", ".join(f"{{{place}}}" for place in range(count))
