"""The names of the fields of each class of plan, looked up once for each class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


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
