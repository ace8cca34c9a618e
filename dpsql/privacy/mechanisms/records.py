"""Mechanisms as the lists that stored releases hold: a union of records, discriminated by their first word.

Each mechanism states its record in its own file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Union

from pydantic import Discriminator, PlainSerializer, PlainValidator, Tag, TypeAdapter

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms.base import Mechanism, MechanismRecord

RECORDS: dict[str, type[MechanismRecord]] = {}
"""The record of each mechanism that a stored release may name, by its word."""


def register_mechanisms(*mechanisms: type[Mechanism]) -> None:
    """Add the records of mechanisms to `RECORDS`; InternalError where another has the word."""
    for mechanism in mechanisms:
        record = mechanism.record_type
        word = record.model_fields["kind"].default
        if RECORDS.setdefault(word, record) is not record:
            raise InternalError(f"two mechanisms have the same tag {word!r}")


def to_stored_list(mechanism: Mechanism) -> list[Any]:
    """Return the list that a stored release holds for a mechanism; InternalError for one that is not stored.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.mechanisms import Geometric
    >>> to_stored_list(Geometric(Fraction(7, 2)))
    ['geometric', '7/2']
    """
    record = mechanism.to_record()
    listed: Any = record.model_dump()  # a list, by the record's own serializer
    if RECORDS.get(listed[0]) is not type(record):
        raise InternalError(f"{mechanism.name} noise is not registered, so it cannot be stored")
    return list(listed)


def from_stored_list(value: object) -> Mechanism:
    """Return the mechanism that `to_stored_list` wrote; ValueError for anything else.

    >>> from_stored_list(["geometric", "7/2"])
    Geometric(scale=Fraction(7, 2))
    """
    record: MechanismRecord = _make_record_adapter(tuple(RECORDS.items())).validate_python(value)
    return record.to_mechanism()


StoredMechanism = Annotated[Any, PlainValidator(from_stored_list), PlainSerializer(to_stored_list)]
"""A mechanism within the record of another one."""


@lru_cache(maxsize=8)
def _make_record_adapter(records: tuple[tuple[str, type[MechanismRecord]], ...]) -> TypeAdapter[Any]:
    choices = tuple(Annotated[record, Tag(word)] for word, record in records)
    union: Any = Annotated[Union[choices], Discriminator(_find_record_kind)]  # noqa: UP007 - the choices are a value
    return TypeAdapter(union)


def _find_record_kind(value: object) -> object:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else None
