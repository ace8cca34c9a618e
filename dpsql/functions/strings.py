"""Functions of text."""

from __future__ import annotations

from dpsql.functions.signatures import fixed
from dpsql.plan.expr import Function
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_TEXT = (Type.VARCHAR,)
_INTEGER = (Type.INTEGER,)
_DEFINED = "defined for every text"

ENTRIES = (
    Function("lower", "LOWER(s)", fixed(Type.VARCHAR, _TEXT), "LOWER({0})", _DEFINED, strict=True),
    Function("upper", "UPPER(s)", fixed(Type.VARCHAR, _TEXT), "UPPER({0})", _DEFINED, strict=True),
    Function(
        "length",
        "LENGTH(s)",
        fixed(Type.INTEGER, _TEXT),
        "LENGTH({0})",
        _DEFINED,
        interval=lambda _, __: Interval(0, 2**32),
        strict=True,
    ),
    Function(
        "substring_from",
        "SUBSTRING(s, start)",
        fixed(Type.VARCHAR, _TEXT, _INTEGER),
        "SUBSTRING({0}, {1})",
        "the start is a constant within 32 bits",
        strict=True,
        literals=frozenset({1}),
    ),
    Function(
        "substring",
        "SUBSTRING(s, start, length)",
        fixed(Type.VARCHAR, _TEXT, _INTEGER, _INTEGER),
        "SUBSTRING({0}, {1}, {2})",
        "start and length are constants within 32 bits",
        strict=True,
        literals=frozenset({1, 2}),
    ),
)
