"""Functions over windows of released or public rows, above the release boundary.

Claim: their values are as private as the rows that they look at.
Why: these have been released, or are public; whatever is computed of them is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.plan.interval import ANYWHERE, Interval, hull
from dpsql.plan.types import Type, common

_PLACES = Interval(0, 2**31)
"""Ranks and counts of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowFunction:
    """An entry of the registry `OVER`.

    `result` gives the type for those of the arguments, or None where it refuses them. `counts` are the
    arguments that must be whole constants, with the least that each may be. `passes_nulls` says that
    IGNORE NULLS may stand after the arguments, and `interval` maps those of the arguments to the value's. `keeps_scale` says
    that of DECIMAL values it is a DECIMAL with as many digits after the point. `framed` says that a frame changes the value:
    not where it follows from the place of a row in its partition.
    """

    name: str
    signature: str
    result: Callable[[tuple[Type, ...]], Type | None]
    counts: tuple[tuple[int, int], ...] = ()
    passes_nulls: bool = False
    interval: Callable[[Sequence[Interval]], Interval] = lambda _: ANYWHERE
    keeps_scale: bool = False
    framed: bool = True


def _takes(kind: Type) -> Callable[[tuple[Type, ...]], Type | None]:
    return lambda arguments: None if arguments else kind


def _place(_: Sequence[Interval]) -> Interval:
    return _PLACES


def _counted(arguments: tuple[Type, ...]) -> Type | None:
    return Type.INTEGER if len(arguments) < 2 else None


def _tiles(arguments: tuple[Type, ...]) -> Type | None:
    return Type.INTEGER if arguments == (Type.INTEGER,) else None


def _shifted(arguments: tuple[Type, ...]) -> Type | None:
    if not 1 <= len(arguments) <= 3 or arguments[1:2] not in ((), (Type.INTEGER,)):
        return None
    return _known(common((arguments[0], *arguments[2:])))


def _nth(arguments: tuple[Type, ...]) -> Type | None:
    return _known(arguments[0]) if arguments[1:] == (Type.INTEGER,) else None


def _same(arguments: tuple[Type, ...]) -> Type | None:
    return _known(arguments[0]) if len(arguments) == 1 else None


def _added(arguments: tuple[Type, ...]) -> Type | None:
    return _same(arguments) if all(kind.numeric for kind in arguments) else None


def _real(arguments: tuple[Type, ...]) -> Type | None:
    return None if _added(arguments) is None else Type.DOUBLE


def _known(kind: Type | None) -> Type | None:
    return None if kind is Type.NULL else kind


def _one(arguments: Sequence[Interval]) -> Interval:
    return arguments[0]


def _one_or_default(arguments: Sequence[Interval]) -> Interval:
    return hull([arguments[0], *arguments[2:]])


_ENTRIES = (
    WindowFunction("row_number", "ROW_NUMBER()", _takes(Type.INTEGER), interval=_place, framed=False),
    WindowFunction("rank", "RANK()", _takes(Type.INTEGER), interval=_place, framed=False),
    WindowFunction("dense_rank", "DENSE_RANK()", _takes(Type.INTEGER), interval=_place, framed=False),
    WindowFunction("percent_rank", "PERCENT_RANK()", _takes(Type.DOUBLE), framed=False),
    WindowFunction("cume_dist", "CUME_DIST()", _takes(Type.DOUBLE), framed=False),
    WindowFunction("ntile", "NTILE(n)", _tiles, ((0, 1),), interval=_place, framed=False),
    WindowFunction(
        "lag",
        "LAG(x, n, default)",
        _shifted,
        ((1, 0),),
        passes_nulls=True,
        interval=_one_or_default,
        keeps_scale=True,
        framed=False,
    ),
    WindowFunction(
        "lead",
        "LEAD(x, n, default)",
        _shifted,
        ((1, 0),),
        passes_nulls=True,
        interval=_one_or_default,
        keeps_scale=True,
        framed=False,
    ),
    WindowFunction(
        "first_value", "FIRST_VALUE(x)", _same, passes_nulls=True, interval=_one, keeps_scale=True
    ),
    WindowFunction("last_value", "LAST_VALUE(x)", _same, passes_nulls=True, interval=_one, keeps_scale=True),
    WindowFunction(
        "nth_value", "NTH_VALUE(x, n)", _nth, ((1, 1),), passes_nulls=True, interval=_one, keeps_scale=True
    ),
    WindowFunction("count", "COUNT(*)", _counted, interval=_place),
    WindowFunction("sum", "SUM(x)", _added, keeps_scale=True),
    WindowFunction("avg", "AVG(x)", _real, interval=_one),
    WindowFunction("min", "MIN(x)", _same, interval=_one, keeps_scale=True),
    WindowFunction("max", "MAX(x)", _same, interval=_one, keeps_scale=True),
)

OVER = MappingProxyType({entry.name: entry for entry in _ENTRIES})
