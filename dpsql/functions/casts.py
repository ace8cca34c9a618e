"""CAST, which gives NULL where a value has no counterpart: an error would tell of the value."""

from __future__ import annotations

from dpsql.functions.signatures import ANY, fixed
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_TOTAL = "TRY_CAST gives NULL instead of an error"


def _rounded(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if arguments[0].type in (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN):
        return of[0].outward()
    return Interval()


def _same(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] if arguments[0].type in (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN) else Interval()


def _integer(name: str) -> Function:
    return Function(
        f"cast_{name.lower()}",
        f"CAST(x AS {name})",
        fixed(Type.INTEGER, (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.BOOLEAN)),
        f"CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)",
        _TOTAL,
        interval=_rounded,
    )


ENTRIES = (
    _integer("TINYINT"),
    _integer("SMALLINT"),
    _integer("INTEGER"),
    _integer("BIGINT"),
    Function(
        "cast_double",
        "CAST(x AS DOUBLE)",
        fixed(Type.DOUBLE, (Type.INTEGER, Type.DOUBLE, Type.VARCHAR, Type.BOOLEAN)),
        "TRY_CAST({0} AS DOUBLE)",
        _TOTAL,
        interval=_same,
    ),
    Function(
        "cast_varchar", "CAST(x AS VARCHAR)", fixed(Type.VARCHAR, ANY), "TRY_CAST({0} AS VARCHAR)", _TOTAL
    ),
    Function(
        "cast_boolean",
        "CAST(x AS BOOLEAN)",
        fixed(Type.BOOLEAN, (Type.INTEGER, Type.VARCHAR, Type.BOOLEAN)),
        "TRY_CAST({0} AS BOOLEAN)",
        _TOTAL,
        interval=lambda _, __: Interval(0, 1),
    ),
    Function(
        "cast_date",
        "CAST(x AS DATE)",
        fixed(Type.DATE, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY(CAST(CAST(TRY_CAST({0} AS DATE) AS TIMESTAMP) AS DATE))",
        "dates beyond the range of TIMESTAMP become NULL, so the two always compare",
    ),
    Function(
        "cast_timestamp",
        "CAST(x AS TIMESTAMP)",
        fixed(Type.TIMESTAMP, (Type.VARCHAR, Type.DATE, Type.TIMESTAMP)),
        "TRY_CAST({0} AS TIMESTAMP)",
        _TOTAL,
    ),
)
