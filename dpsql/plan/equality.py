"""Plan equality up to renaming of sources and the order of commutative operators, as a canonical text.

Claim: plans with one text have, on every database, the same exact answer.
Why: the text is `fingerprint.compute_canonical_text`, which determines the plan, with two changes. Sources are numbered in the order
in which the plan names them, an injective renaming. The arguments of AND, OR, = and <> are sorted: these functions are
commutative, and total, so that none fails in another order.
Source: Chandra, Merlin 1977, "Optimal implementation of conjunctive queries" (queries up to renaming).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from enum import Enum

from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Function
from dpsql.plan.nodes import (
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    SetOperation,
    Values,
)
from dpsql.plan.tables import Scan
from dpsql.plan.tags import COMPARED_FIELDS, FORMS, Form, TaggedEnum

# Plans as text: a canonical form for digests, and SQL-like words for people.


_VALUES: set[type] = set()


def compute_canonical_text(part: object) -> str:
    """Compute a text that is the same for equal plans, in this process and every other, and in every version of dpsql.

    Raises TypeError for an object without a tag.
    """
    kind = type(part)
    if kind in _VALUES:
        return f"{kind.__name__}:{part!r}"
    if isinstance(part, Function):
        return part.name
    form = FORMS[kind]
    if form is not None:
        texts = (compute_canonical_text(getattr(part, name)) for name in form.names)
        return f"({form.tag} {' '.join(texts)})"
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(compute_canonical_text, part))})"
    if isinstance(part, TaggedEnum):
        return part.tag
    if isinstance(part, frozenset):
        return compute_canonical_text(sorted(part))
    if isinstance(part, Enum) or kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        raise TypeError(f"{kind.__name__} has no tag, so it cannot be in a fingerprint")
    _VALUES.add(kind)  # a value of Python's own, as all of its class are
    return f"{kind.__name__}:{part!r}"


def compute_digest(outer: OuterQuery) -> str:
    """Compute the SHA-256 of a plan, in hexadecimal."""
    return hashlib.sha256(compute_canonical_text(outer).encode()).hexdigest()


_NAMED = (Scan, Project, PerUnitGroupBy, PerUnitWindows, SetOperation, PublicSubquery, Values)
_SPREAD = frozenset({"and", "or"})
_SYMMETRIC = frozenset({"eq", "ne"})


def compute_equality_text(part: object) -> str:
    """Compute a text that equal plans share, in every process. Plans with different texts may still be equivalent."""
    names: dict[str, str] = {}
    _number_sources(part, names, set())
    return _EqualityEncoder(names).encode_part(part)


def compute_equality_texts(common: tuple[object, ...], *rests: tuple[object, ...]) -> tuple[str, ...]:
    """Compute the texts of several tuples that begin alike. What these have in common is named once, and written once."""
    names: dict[str, str] = {}
    seen = set[int]()
    _number_sources(common, names, seen)
    found: list[str] = []
    text = _EqualityEncoder(names)
    for rest in rests:
        own = dict(names)
        _number_sources(rest, own, set(seen))
        text = text if own == text.names else _EqualityEncoder(own)
        found.append(text.encode_part((*common, *rest)))
    return tuple(found)


def _number_sources(part: object, names: dict[str, str], seen: set[int]) -> None:
    """Number the sources in an order that does not depend on the order of conditions."""
    seen.add(id(part))
    if isinstance(part, _NAMED):
        names.setdefault(part.alias, f"#{len(names)}")
    for child in part if isinstance(part, tuple) else _list_fields(part):
        # Expressions name no source that is not made elsewhere.
        if (isinstance(child, tuple) or COMPARED_FIELDS[type(child)]) and not (
            isinstance(child, Expr) or id(child) in seen
        ):
            _number_sources(child, names, seen)


def _list_fields(part: object) -> list[object]:
    return [getattr(part, name) for name in COMPARED_FIELDS[type(part)]]


@dataclasses.dataclass(frozen=True, slots=True)
class _EqualityEncoder:
    names: dict[str, str]
    facts: dict[int, str] = dataclasses.field(default_factory=dict)
    """The text of a column's facts, by identity: many mentions share one object, which the plan keeps alive."""
    done: dict[int, str] = dataclasses.field(default_factory=dict)
    """The text of each tagged part, by identity, likewise."""

    def encode_part(self, part: object) -> str:
        form = FORMS[type(part)]
        if form is None:
            return (
                f"({' '.join(map(self.encode_part, part))})"
                if isinstance(part, tuple)
                else compute_canonical_text(part)
            )
        if isinstance(part, Column):
            return f"({Column.tag} {self._encode_source(part.source)} {compute_canonical_text(part.name)} {self._encode_column_info(part.facts)})"
        if isinstance(part, Call):
            return self._encode_call(part)
        if id(part) not in self.done:
            self.done[id(part)] = self._encode_tagged(part, form)
        return self.done[id(part)]

    def _encode_tagged(self, part: object, form: Form) -> str:
        alias = self._encode_source(part.alias) if isinstance(part, _NAMED) else None
        fields = (
            alias if alias and name == "alias" else self.encode_part(getattr(part, name))
            for name in form.names
        )
        return f"({form.tag} {' '.join(fields)})"

    def _encode_column_info(self, facts: ColumnInfo) -> str:
        if id(facts) not in self.facts:
            self.facts[id(facts)] = compute_canonical_text(facts)
        return self.facts[id(facts)]

    def _encode_source(self, source: str) -> str:
        # A source that nothing in the plan makes keeps its name.
        return self.names.get(source) or compute_canonical_text(source)

    def _encode_call(self, call: Call) -> str:
        name = call.function.name
        parts = _iterate_operands(call, name) if name in _SPREAD else call.arguments
        texts = [self.encode_part(part) for part in parts]
        if name in _SPREAD | _SYMMETRIC:
            texts.sort()
        return f"({Call.tag} {name} ({' '.join(texts)}))"


def _iterate_operands(call: Call, name: str) -> Iterator[Expr]:
    """Yield the operands of a chain of ANDs, or of ORs."""
    for argument in call.arguments:
        if isinstance(argument, Call) and argument.function.name == name:
            yield from _iterate_operands(argument, name)
        else:
            yield argument
