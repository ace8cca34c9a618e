"""Functions over windows of released or public rows, above the release boundary.

Claim: their values are as private as the rows that they look at.
Why: these have been released, or are public; whatever is computed of them is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.plan.interval import ANYWHERE, Interval, merge_intervals
from dpsql.plan.types import Type, find_common_type

_PLACES = Interval(0, 2**31)
"""Ranks and counts of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowFunction:
    """An entry of the registry `OVER`.

    `result` gives the type for those of the arguments, or None where it refuses them. `least_constants` are the
    arguments that must be whole constants, with the least that each may be. `supports_ignore_nulls` says that
    IGNORE NULLS may stand after the arguments, and `interval` maps those of the arguments to the value's. `keeps_scale` says
    that of DECIMAL values it is a DECIMAL with as many digits after the point. `depends_on_frame` says that a frame changes the value:
    not where it follows from the place of a row in its partition.
    """

    name: str
    signature: str
    result: Callable[[tuple[Type, ...]], Type | None]
    least_constants: tuple[tuple[int, int], ...] = ()
    supports_ignore_nulls: bool = False
    interval: Callable[[Sequence[Interval]], Interval] = lambda _: ANYWHERE
    keeps_scale: bool = False
    depends_on_frame: bool = True


def _make_no_argument_rule(kind: Type) -> Callable[[tuple[Type, ...]], Type | None]:
    return lambda arguments: None if arguments else kind


def _derive_place_interval(_: Sequence[Interval]) -> Interval:
    return _PLACES


def _infer_count_type(arguments: tuple[Type, ...]) -> Type | None:
    return Type.INTEGER if len(arguments) < 2 else None


def _infer_tile_type(arguments: tuple[Type, ...]) -> Type | None:
    return Type.INTEGER if arguments == (Type.INTEGER,) else None


def _infer_shift_type(arguments: tuple[Type, ...]) -> Type | None:
    if not 1 <= len(arguments) <= 3 or arguments[1:2] not in ((), (Type.INTEGER,)):
        return None
    return _exclude_null_type(find_common_type((arguments[0], *arguments[2:])))


def _infer_nth_value_type(arguments: tuple[Type, ...]) -> Type | None:
    return _exclude_null_type(arguments[0]) if arguments[1:] == (Type.INTEGER,) else None


def _infer_argument_type(arguments: tuple[Type, ...]) -> Type | None:
    return _exclude_null_type(arguments[0]) if len(arguments) == 1 else None


def _infer_sum_type(arguments: tuple[Type, ...]) -> Type | None:
    return _infer_argument_type(arguments) if all(kind.numeric for kind in arguments) else None


def _infer_average_type(arguments: tuple[Type, ...]) -> Type | None:
    return None if _infer_sum_type(arguments) is None else Type.DOUBLE


def _exclude_null_type(kind: Type | None) -> Type | None:
    return None if kind is Type.NULL else kind


def _derive_first_interval(arguments: Sequence[Interval]) -> Interval:
    return arguments[0]


def _derive_default_interval(arguments: Sequence[Interval]) -> Interval:
    return merge_intervals([arguments[0], *arguments[2:]])


_ENTRIES = (
    WindowFunction(
        "row_number",
        "ROW_NUMBER()",
        _make_no_argument_rule(Type.INTEGER),
        interval=_derive_place_interval,
        depends_on_frame=False,
    ),
    WindowFunction(
        "rank",
        "RANK()",
        _make_no_argument_rule(Type.INTEGER),
        interval=_derive_place_interval,
        depends_on_frame=False,
    ),
    WindowFunction(
        "dense_rank",
        "DENSE_RANK()",
        _make_no_argument_rule(Type.INTEGER),
        interval=_derive_place_interval,
        depends_on_frame=False,
    ),
    WindowFunction(
        "percent_rank", "PERCENT_RANK()", _make_no_argument_rule(Type.DOUBLE), depends_on_frame=False
    ),
    WindowFunction("cume_dist", "CUME_DIST()", _make_no_argument_rule(Type.DOUBLE), depends_on_frame=False),
    WindowFunction(
        "ntile",
        "NTILE(n)",
        _infer_tile_type,
        ((0, 1),),
        interval=_derive_place_interval,
        depends_on_frame=False,
    ),
    WindowFunction(
        "lag",
        "LAG(x, n, default)",
        _infer_shift_type,
        ((1, 0),),
        supports_ignore_nulls=True,
        interval=_derive_default_interval,
        keeps_scale=True,
        depends_on_frame=False,
    ),
    WindowFunction(
        "lead",
        "LEAD(x, n, default)",
        _infer_shift_type,
        ((1, 0),),
        supports_ignore_nulls=True,
        interval=_derive_default_interval,
        keeps_scale=True,
        depends_on_frame=False,
    ),
    WindowFunction(
        "first_value",
        "FIRST_VALUE(x)",
        _infer_argument_type,
        supports_ignore_nulls=True,
        interval=_derive_first_interval,
        keeps_scale=True,
    ),
    WindowFunction(
        "last_value",
        "LAST_VALUE(x)",
        _infer_argument_type,
        supports_ignore_nulls=True,
        interval=_derive_first_interval,
        keeps_scale=True,
    ),
    WindowFunction(
        "nth_value",
        "NTH_VALUE(x, n)",
        _infer_nth_value_type,
        ((1, 1),),
        supports_ignore_nulls=True,
        interval=_derive_first_interval,
        keeps_scale=True,
    ),
    WindowFunction("count", "COUNT(*)", _infer_count_type, interval=_derive_place_interval),
    WindowFunction("sum", "SUM(x)", _infer_sum_type, keeps_scale=True),
    WindowFunction("avg", "AVG(x)", _infer_average_type, interval=_derive_first_interval),
    WindowFunction("min", "MIN(x)", _infer_argument_type, interval=_derive_first_interval, keeps_scale=True),
    WindowFunction("max", "MAX(x)", _infer_argument_type, interval=_derive_first_interval, keeps_scale=True),
)

OVER = MappingProxyType({entry.name: entry for entry in _ENTRIES})
