"""What a part of a plan is made of: the names of its fields, looked up once for each kind of part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


class _Names(dict[type, tuple[str, ...]]):
    """The names of some fields of each kind; none where it is no dataclass."""

    def __init__(self, wanted: Callable[[dataclasses.Field[object]], bool]) -> None:
        self._wanted = wanted

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        self[kind] = tuple(item.name for item in fields if self._wanted(item))
        return self[kind]


INIT_FIELDS = _Names(lambda item: item.init)
"""The fields that a part of a kind is made with."""
COMPARED_FIELDS = _Names(lambda item: item.compare)
"""The fields that equal parts of a kind share."""
