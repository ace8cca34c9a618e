"""Tags: the names of plans and measurements in fingerprints, which do not depend on the names of classes.

A fingerprint is the digest of a text. Ledgers keep fingerprints for ever, and stored releases are found by them, so the
text of a plan never changes. A class says its tag, `tag: ClassVar[str] = "Scan"`, and a member of an enumeration says
its own: names of classes, modules, members and fields do not enter, and may change.

What enters beside tags: the values of compared fields, in the order of the fields; the names of functions, aggregates
and window functions in their registries; and texts that plans hold, as generated names of columns and the names of
blocks and cells. All of these stay as they are. A field that is new is declared by `later_field`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Self

_LATER = "tag"


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


def later_field(default: Any, tag: str) -> Any:
    """Return a field that enters fingerprints only where it is not its default, since it was added to the class later.

    >>> from dpsql.plan.equality import compute_canonical_text
    >>> @dataclasses.dataclass(frozen=True)
    ... class Row:
    ...     tag = "Line"
    ...     number: int
    ...     color: str = later_field("black", "color")
    >>> compute_canonical_text(Row(1)), compute_canonical_text(Row(1, "red"))
    ('(Line int:1)', "(Line int:1 (=color str:'red'))")
    """
    return dataclasses.field(default=default, metadata={_LATER: tag})


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The written form of a class: its tag, the fields that always enter, in order, and later ones.

    Claim: parts of tagged classes whose texts are equal are equal.
    Why: no two classes have one tag, and no two members of an enumeration; a tag says how many fields follow in
    their order; what follows these names its field by a tag.
    """

    tag: str
    names: tuple[str, ...]
    later: tuple[tuple[str, str, object], ...]

    def encode_later_fields(self, part: object, text: Callable[[object], str]) -> Iterator[str]:
        """Yield the texts of a part's later fields."""
        for name, tag, default in self.later:
            value = getattr(part, name)
            if value != default:
                yield f"(={tag} {text(value)})"


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
    compared = [item for item in dataclasses.fields(kind) if item.compare]
    return Form(
        tag,
        tuple(item.name for item in compared if _LATER not in item.metadata),
        tuple(
            (item.name, item.metadata[_LATER], item.default) for item in compared if _LATER in item.metadata
        ),
    )


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
