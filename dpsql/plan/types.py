"""The value types that dpsql reasons about, each with the engine type that carries it.

The engine's many integer and float types are widened to one of each when a column is read: no
arithmetic on them can then overflow within its interval, and the type of a result depends on the
plan alone.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

from dpsql.plan.tags import TaggedEnum


class Type(TaggedEnum):
    """A value type; `.value` is the engine's name for it."""

    INTEGER = "BIGINT", "INTEGER"
    DOUBLE = "DOUBLE", "DOUBLE"
    VARCHAR = "VARCHAR", "VARCHAR"
    DATE = "DATE", "DATE"
    TIMESTAMP = "TIMESTAMP", "TIMESTAMP"
    BOOLEAN = "BOOLEAN", "BOOLEAN"
    TIME = "TIME", "TIME"
    UUID = "UUID", "UUID"
    BLOB = "BLOB", "BLOB"
    LIST = "LIST", "LIST"  # or map, of released values, which are shown and not computed with
    NULL = "NULL", "NULL"

    @property
    def numeric(self) -> bool:
        """Whether values can be added."""
        return self in (Type.INTEGER, Type.DOUBLE)

    @property
    def temporal(self) -> bool:
        """Whether values are points in time."""
        return self in (Type.DATE, Type.TIMESTAMP)

    def __str__(self) -> str:
        return str(self.value)


Value = int | float | str | bool | dt.date | dt.datetime | dt.time | uuid.UUID | bytes | None
"""A value of one of the types: what literals, domains and released cells hold."""
AnswerValue = Value | Decimal
"""A value of a result, where a DECIMAL of the engine stays one."""
Pairs = tuple[tuple[Value, Value], ...]
"""A map of released values as a literal of the plan holds it."""


def get_value_type(value: Value) -> Type:
    """Return the type of a Python value.

    >>> get_value_type(True), get_value_type(2), get_value_type(2.0)
    (<Type.BOOLEAN: 'BOOLEAN'>, <Type.INTEGER: 'BIGINT'>, <Type.DOUBLE: 'DOUBLE'>)
    """
    for python, kind in _PYTHON:
        if isinstance(value, python):
            return kind
    raise TypeError(f"no type for {type(value).__name__}")


_PYTHON: tuple[tuple[type, Type], ...] = (
    (bool, Type.BOOLEAN),  # before int, of which it is a subclass
    (int, Type.INTEGER),
    (float, Type.DOUBLE),
    (str, Type.VARCHAR),
    (dt.datetime, Type.TIMESTAMP),  # before date, of which it is a subclass
    (dt.date, Type.DATE),
    (dt.time, Type.TIME),
    (uuid.UUID, Type.UUID),
    (bytes, Type.BLOB),
    (type(None), Type.NULL),
)


def find_common_type(types: tuple[Type, ...]) -> Type | None:
    """Return the one type that values of all `types` can be read as, or None.

    >>> find_common_type((Type.INTEGER, Type.NULL, Type.DOUBLE))
    <Type.DOUBLE: 'DOUBLE'>
    >>> find_common_type((Type.INTEGER, Type.VARCHAR)) is None
    True
    """
    known = set(types) - {Type.NULL}
    if Type.LIST in known:
        return None
    if not known:
        return Type.NULL
    if len(known) == 1:
        return known.pop()
    if known == {Type.INTEGER, Type.DOUBLE}:
        return Type.DOUBLE
    if known == {Type.DATE, Type.TIMESTAMP}:
        return Type.TIMESTAMP
    return None
