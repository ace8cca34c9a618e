"""Which plans ask for the same: a text that equal ones share, whatever their sources are called.

Claim: plans with one text have, on every database, the same exact answer.
Why: the text is `show.canonical`, from which the plan can be read back, but for two things. Sources are numbered
in the order in which the plan names them, which is a renaming of all of them at once that maps no two to one. And
the sides of AND, OR, = and <> stand in an order of their own: each of these functions gives the same for its
arguments in any order and, as all expressions are total, fails on none.
Source: Chandra, Merlin 1977, "Optimal implementation of conjunctive queries" (queries up to renaming).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dpsql.plan.expr import Call, Column, Expr, Facts
from dpsql.plan.fields import COMPARED_FIELDS
from dpsql.plan.fingerprint import canonical
from dpsql.plan.nodes import PerUnitGroupBy, Project, PublicSubquery, SetOperation, Values
from dpsql.plan.tables import Scan
from dpsql.plan.tags import FORMS

_NAMED = (Scan, Project, PerUnitGroupBy, SetOperation, PublicSubquery, Values)
_SPREAD = frozenset({"and", "or"})
_SYMMETRIC = frozenset({"eq", "ne"})


def equal_text(part: object) -> str:
    """A text that is the same for plans that ask for the same, in this process and every other.

    That it differs says nothing: other words may ask for the same in another way.
    """
    names: dict[str, str] = {}
    _name(part, names, set())
    return _Text(names).of(part)


def _name(part: object, names: dict[str, str], seen: set[int]) -> None:
    """Numbers the sources, in an order that does not depend on that of conditions."""
    if id(part) in seen or not (isinstance(part, tuple) or COMPARED_FIELDS[type(part)]):
        return
    seen.add(id(part))
    if isinstance(part, _NAMED):
        names.setdefault(part.alias, f"#{len(names)}")
    if not isinstance(part, Expr):
        for child in part if isinstance(part, tuple) else _fields(part):
            _name(child, names, seen)


def _fields(part: object) -> Iterator[object]:
    return (getattr(part, name) for name in COMPARED_FIELDS[type(part)])


@dataclasses.dataclass(frozen=True, slots=True)
class _Text:
    names: dict[str, str]
    facts: dict[int, str] = dataclasses.field(default_factory=dict)
    """What is said of a column, by its identity: many mentions share it, and the plan keeps it."""

    def of(self, part: object) -> str:
        if isinstance(part, Column):
            return (
                f"({Column.tag} {self._named(part.source)} {canonical(part.name)} {self._facts(part.facts)})"
            )
        if isinstance(part, Call):
            return self._call(part)
        if isinstance(part, tuple):
            return f"({' '.join(map(self.of, part))})"
        form = FORMS[type(part)]
        if form is None:
            return canonical(part)
        alias = self._named(part.alias) if isinstance(part, _NAMED) else None
        fields = [alias if alias and name == "alias" else self.of(getattr(part, name)) for name in form.names]
        return f"({form.tag} {' '.join([*fields, *form.rest(part, self.of)])})"

    def _facts(self, facts: Facts) -> str:
        if id(facts) not in self.facts:
            self.facts[id(facts)] = canonical(facts)
        return self.facts[id(facts)]

    def _named(self, source: str) -> str:
        # A source that nothing in the plan makes keeps its name.
        return self.names.get(source) or canonical(source)

    def _call(self, call: Call) -> str:
        name = call.function.name
        parts = _spread(call, name) if name in _SPREAD else call.arguments
        texts = [self.of(part) for part in parts]
        if name in _SPREAD | _SYMMETRIC:
            texts.sort()
        return f"({Call.tag} {name} ({' '.join(texts)}))"


def _spread(call: Call, name: str) -> Iterator[Expr]:
    """What a chain of ANDs, or of ORs, puts together."""
    for argument in call.arguments:
        if isinstance(argument, Call) and argument.function.name == name:
            yield from _spread(argument, name)
        else:
            yield argument
