"""Type rules that many functions share."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.plan.types import Type, common

Rule = Callable[[tuple[Type, ...]], Type | None]


def numeric(types: tuple[Type, ...]) -> Type | None:
    """Numbers to their common type; NULL counts as a number."""
    shared = common(types)
    return shared if shared is None or shared.numeric or shared is Type.NULL else None


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


NUMBER = (Type.INTEGER, Type.DOUBLE)
TEMPORAL = (Type.DATE, Type.TIMESTAMP)
ANY = tuple(Type)
