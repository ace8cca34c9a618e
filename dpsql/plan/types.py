"""The types of values, and the tags by which plans enter fingerprints."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, Self

# Tags: the names of plans and measurements in fingerprints, which do not depend on the names of classes.
#
# A fingerprint is the digest of a text. Ledgers keep fingerprints for ever, and stored releases are found by them, so the
# text of a plan never changes. A class states its tag, `tag: ClassVar[str] = "Scan"`, and a member of an enumeration states
# its own. Names of classes, modules, members and fields are not part of the text, and may change.
#
# Besides tags, a text holds the values of compared fields, in the order of the fields; the names of functions, aggregates
# and window functions in their registries; and texts that plans hold, such as generated names of columns. All of these stay as
# they are once a version is released: a class that gets a field then needs another tag.


class TaggedEnum(Enum):
    """An enumeration whose members are written as their values and tags.

    >>> class Side(TaggedEnum):
    ...     BOTTOM = "low", "LOW"
    >>> Side.BOTTOM.value, Side.BOTTOM.tag, Side("low")
    ('low', 'LOW', <Side.BOTTOM: 'low'>)
    """

    _value_: str
    tag: str

    # A member is one object. The hash of an enumeration is computed in Python, and there are many to a plan.
    __hash__ = object.__hash__

    def __new__(cls, value: str, tag: str) -> Self:
        """Return a member."""
        member = object.__new__(cls)
        member._value_, member.tag = value, tag
        return member


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The written form of a class: its tag, and the names of its compared fields, in order.

    Claim: parts of tagged classes whose texts are equal are equal.
    Why: no two classes have the same tag, nor have two members of an enumeration; a tag determines how many fields follow,
    and in which order.
    """

    tag: str
    names: tuple[str, ...]


class _Forms(dict[type, Form | None]):
    """The form of each class, looked up once; None for a class that is no dataclass."""

    def __missing__(self, kind: type) -> Form | None:
        self[kind] = form = _make_form(kind) if dataclasses.is_dataclass(kind) else None
        return form


def _make_form(kind: type) -> Form:
    # A class that inherited the tag of another would be taken for it.
    tag = vars(kind).get("tag")
    if not isinstance(tag, str):
        raise TypeError(f"{kind.__name__} has no tag of its own, so it cannot be in a fingerprint")
    return Form(tag, COMPARED_FIELDS[kind])


FORMS = _Forms()
"""How the parts of each class are written."""


# The names of the fields of each class of plan, looked up once for each class.


class _FieldNames(dict[type, tuple[str, ...]]):
    """The names of the wanted fields of each class; none if it is not a dataclass."""

    def __init__(self, wanted: Callable[[dataclasses.Field[object]], bool]) -> None:
        self._wanted = wanted

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        self[kind] = tuple(item.name for item in fields if self._wanted(item))
        return self[kind]


INIT_FIELDS = _FieldNames(lambda item: item.init)
"""The fields that the constructor of a class takes."""
COMPARED_FIELDS = _FieldNames(lambda item: item.compare)
"""The fields that equality of a class compares."""


# The value types that dpsql reasons about, each with the engine type that carries it.


class Type(TaggedEnum):
    """A value type; `.value` is the engine's name for it.

    The engine's many integer and float types are widened to one of each when a column is read: no arithmetic on them can then
    overflow within its interval, and the type of a result depends on the plan alone.
    """

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
        """Return whether values can be added."""
        return self in (Type.INTEGER, Type.DOUBLE)

    @property
    def temporal(self) -> bool:
        """Return whether values are points in time."""
        return self in (Type.DATE, Type.TIMESTAMP)

    def __str__(self) -> str:
        return str(self.value)


Value = int | float | str | bool | dt.date | dt.datetime | dt.time | uuid.UUID | bytes | None
"""A value of one of the types: what literals, domains and released cells hold."""
AnswerValue = Value | Decimal
"""A value of a result, where a DECIMAL of the engine stays one."""
Row = tuple[Any, ...]
"""A row of a result, whose cells are `AnswerValue`s: their types depend on the query, which a type checker does not read."""
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


_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)", re.ASCII)


def parse_decimal_type(engine_type: str) -> tuple[int, int] | None:
    """Return the digits of a DECIMAL of the engine's, all of them and those after the point; None of other types.

    >>> parse_decimal_type("DECIMAL(7,2)"), parse_decimal_type("DOUBLE")
    ((7, 2), None)
    """
    found = _DECIMAL.fullmatch(engine_type)
    return None if found is None else (int(found[1]), int(found[2]))
