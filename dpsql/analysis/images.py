"""Images: the values that an expression has in the rows that conditions leave, computed by the engine.

Claim: the image of an expression contains its value in every row whose columns are in their domains and for which the
conditions of the relation are true, and does not depend on private data. It has no value that no such row has, as far as
the conditions read columns of few values.
Why: it is computed for each combination of these values, by the SQL that reads the rows, on an engine without data; the
values follow from the policy and the plan. A condition that reads other columns too leaves all.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.analysis.domains import MAX_DERIVED, Domain, domain, group_key, listed, narrowed, whole_values
from dpsql.analysis.intervals import Known, conditions, interval, narrow
from dpsql.analysis.stability import PublicFacts
from dpsql.functions import call
from dpsql.plan.dependencies import needs, steps
from dpsql.plan.expr import (
    Call,
    Column,
    Expr,
    Facts,
    Literal,
    Released,
    Scalar,
    Windowed,
    columns,
    substituted,
    walk,
)
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Release,
    SemiJoin,
    Source,
    Values,
    is_private,
    optional_sources,
    sources,
)
from dpsql.plan.types import Type, Value

MAX_COMBINATIONS = 10_000
"""Most combinations of values of columns for which an expression is computed."""

_BOX = "#box"
_REMEMBERED = 200
_ALIKE = frozenset(
    ("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "in", "like", "is_null", "is_distinct", "is_not_distinct",
     "case", "coalesce", "nullif", "concatenate")
)  # fmt: skip
"""Functions of texts that are the same on each engine: they compare bytes, or choose."""
_COMPARES = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "in", "like"))
"""Conditions of columns and constants that are not true of NULL."""
_computed: dict[tuple[tuple[Expr, ...], tuple[tuple[Value, ...], ...]], Domain | None] = {}
"""Images of constants, which are the same on every database: computed once, up to `_REMEMBERED` of them."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of expressions over the rows of a relation, whose conditions hold."""

    facts: PublicFacts
    relation: Relation
    found: dict[tuple[int, str, str], Domain | None] = field(default_factory=dict, compare=False, repr=False)
    """The values of columns, by the identity of the relation: derived tables within each other share columns."""

    def of(self, expr: Expr, known: Known) -> Domain | None:
        """Every value of `expr`, NULL last if it can be NULL; None where its columns have too many values, or others."""
        read = tuple(sorted(dict.fromkeys(columns(expr)), key=str))
        if not read or not all(map(_is_alike, walk(expr))) or _elsewhere(expr, known):
            return None
        if not self._are_possible:
            return ()
        given = {column: self._values(column, known) for column in read}
        if any(values is None for values in given.values()):
            return self._left(expr, known)
        return self._computed(expr, {column: values or () for column, values in given.items()}, known)

    def _narrowed(self, known: Known) -> Known:
        """What conditions say of expressions that they compare with constants, where these are computed first."""
        for condition in _conditions(self.relation):
            if isinstance(condition, Call) and condition.function.name in _COMPARES:
                settled = (self._settled(part) for part in condition.arguments)
                known = narrow(replace(condition, arguments=tuple(settled)), known)
        return known

    def _settled(self, expr: Expr) -> Expr:
        """A constant that is computed of others as its value; another expression as it is."""
        if not isinstance(expr, Call) or any(columns(expr)) or not all(map(_is_alike, walk(expr))):
            return expr
        one = Column(_BOX, "one", Facts(Type.BOOLEAN, ""))
        found = _image(self.facts, expr, [], {one: (True,)})
        return expr if not found or found[0] is None else Literal(found[0], expr.type)

    @property
    def _are_possible(self) -> bool:
        """Whether conditions on nothing but constants and public values are true."""
        settled = [part for part in _conditions(self.relation) if not any(columns(part))]
        asked = [part for part in settled if all(map(_is_alike, walk(part)))]
        whole = Column(_BOX, "whole", Facts(Type.BOOLEAN, ""))
        return _image(self.facts, whole, asked, {whole: (True,)}) != () if asked else True

    def _computed(self, expr: Expr, given: dict[Column, Domain], known: Known) -> Domain | None:
        """The values of an expression for combinations of values of the columns that it reads."""
        if _size(given) > MAX_COMBINATIONS:
            return None
        asked, given = self._asked(given, known)
        if isinstance(expr, Column) and not asked:
            values = given[expr]
            return values if len(values) <= MAX_DERIVED or expr.facts.domain is not None else None
        return _image(self.facts, expr, asked, given)

    def _asked(self, given: dict[Column, Domain], known: Known) -> tuple[list[Expr], dict[Column, Domain]]:
        """The conditions on several columns that are computed, and the values of all columns that they read.

        A condition that reads further columns is computed as well where these have few values.
        """
        asked, found = list[Expr](), given
        for condition in _conditions(self.relation):
            read = set(columns(condition))
            if len(read) < 2 or not read & given.keys() or not all(map(_is_alike, walk(condition))):
                continue
            more = {column: self._values(column, known) for column in read - found.keys()}
            if any(values is None for values in more.values()):
                continue
            together = found | {column: values or () for column, values in more.items()}
            if _size(together) <= MAX_COMBINATIONS:
                asked, found = [*asked, condition], together
        return asked, found

    def _values(self, column: Column, known: Known) -> Domain | None:
        """The values of a column in the rows that conditions on it alone leave."""
        place = id(self.relation), column.source, column.name
        if place not in self.found:
            self.found[place] = self._computed_values(column, known)
        return self.found[place]

    def _computed_values(self, column: Column, known: Known) -> Domain | None:
        known = self._narrowed(known)
        stated = domain(column, known, listed(self.relation)) or whole_values(column, known, MAX_COMBINATIONS)
        traced = self._traced(column)
        if traced is not None:
            stated = traced if stated is None else _among(stated, traced)
        if stated is None:
            return None
        values = narrowed(stated, column, known)
        alone = [part for part in _conditions(self.relation) if set(columns(part)) == {column}]
        asked = [part for part in alone if all(map(_is_alike, walk(part)))]
        if len(values) > MAX_COMBINATIONS:
            return values
        if asked:
            values = _among(values, _image(self.facts, column, asked, {column: values}, len(values)))
        for match in self._matches(column):
            values = _among(values, _matched(self.facts, column, match, values))
        return values

    def _matches(self, column: Column) -> Iterator[SemiJoin]:
        """The conditions that some row of a public source, or none, matches a column, on a source that is known by now."""
        relation, conditions = self.relation, [*_conditions(self.relation)]
        while not isinstance(relation, Source):
            match relation:
                case SemiJoin(right=right, on=on):
                    outside = {read for read in columns(on) if read.source != right.alias}
                    if outside == {column} and _is_known(right) and all(map(_is_alike, walk(on))):
                        yield relation
                case Join(right=right) if _is_known(right):
                    both: Expr | None
                    pairs = [(ours, theirs) for ours, theirs in relation.on if set(columns(ours)) == {column}]
                    equal = [call("eq", ours, theirs) for ours, theirs in pairs]
                    there = [
                        part
                        for part in conditions
                        if {read.source for read in columns(part)} == {right.alias}
                    ]
                    both = _all([part for part in (*equal, *there) if part is not None])
                    found = relation.kind is JoinKind.INNER or any(map(_rejects_null, there))
                    if found and pairs and both is not None and all(map(_is_alike, walk(both))):
                        yield SemiJoin(right, right, both)
            relation = relation.left if isinstance(relation, Join) else relation.input

    def _left(self, expr: Expr, known: Known) -> Domain | None:
        """Those values of an expression that conditions on it leave, where its columns have too many values."""
        values = domain(expr, self._narrowed(known), listed(self.relation))
        if values is None:
            return None
        whole = Column(_BOX, "whole", Facts(expr.type, ""))
        parts = (_with(part, {expr: whole}) for part in _conditions(self.relation))
        asked = [part for part in parts if set(columns(part)) == {whole} and all(map(_is_alike, walk(part)))]
        return _image(self.facts, whole, asked, {whole: values}) if asked else values

    def _traced(self, column: Column) -> Domain | None:
        """The values of a column of a derived table, from the rows that this is made of."""
        source = next((found for found in sources(self.relation) if found.alias == column.source), None)
        if not isinstance(source, (Project, PerUnitGroupBy, PerUnitWindows)):
            return None
        exprs = source.keys if isinstance(source, PerUnitGroupBy) else source.items
        # By name: what a LEFT JOIN may not find is known as nullable outside.
        named = (known.name for known in source.columns)
        item = dict(zip(named, exprs, strict=False)).get(column.name)
        if item is None:
            return None
        inner = source.input
        values = domain(item, conditions(inner), listed(inner), Images(self.facts, inner, self.found))
        # Where a LEFT JOIN finds no row there is NULL.
        outer = column.source in optional_sources(self.relation)
        return values if values is None or not outer or None in values else (*values, None)


def _conditions(relation: Relation) -> Iterator[Expr]:
    """The conditions that are true of the rows of a relation: of WHERE, and of ON of inner joins."""
    match relation:
        case Filter():
            yield from _conjuncts(relation.predicate)
            yield from _conditions(relation.input)
        case SemiJoin():
            yield from _conditions(relation.input)
        case Join():
            if relation.kind is JoinKind.INNER:
                equal = (call("eq", *pair) for pair in relation.on)
                yield from (part for part in equal if part is not None)
                yield from () if relation.also is None else _conjuncts(relation.also)
            yield from _conditions(relation.left)


def _rejects_null(condition: Expr) -> bool:
    """Whether a condition is true of no row whose columns are NULL, as those are that a LEFT JOIN does not find."""
    return isinstance(condition, Call) and condition.function.name in _COMPARES


def _is_known(source: Source) -> bool:
    """Whether the rows of a source are public, and are not computed of releases or other steps."""
    return not is_private(source) and not needs(source)


def _all(parts: Sequence[Expr]) -> Expr | None:
    """The condition that all of some conditions are true."""
    found: Expr | None = parts[0] if parts else None
    for part in parts[1:]:
        found = None if found is None else call("and", found, part)
    return found


def _among(values: Domain, others: Domain | None) -> Domain:
    """Those of some values that are among others, if these are known."""
    found = values if others is None else frozenset(others)
    return tuple(value for value in values if value in found)


def _matched(facts: PublicFacts, column: Column, match: SemiJoin, values: Domain) -> Domain | None:
    """Those of some values of a column that a row of a public source matches, or that none does."""
    if not values:
        return ()
    named = Column(_BOX, "c0", replace(column.facts, engine_type="", identity=None))
    box = Values(tuple((value,) for value in values), _BOX, (named,))
    rows = facts.rows(
        OuterQuery(replace(match, input=box, on=_with(match.on, {column: named})), (Output("k0", named),))
    )
    return tuple(group_key(value) for (value,) in rows)


def _conjuncts(predicate: Expr) -> Iterator[Expr]:
    """The conditions that are true where a predicate is, truth values of columns and constants among them."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for part in predicate.arguments:
            yield from _conjuncts(part)
    else:
        yield predicate


def conditions_on_keys(release: Release) -> Iterator[Expr]:
    """The conditions on several keys of a release, and on nothing else, over its released keys.

    Claim: they are true of each group that has rows.
    Why: they are true of all rows of the relation, and rows of a group have its keys.
    """
    known: dict[Expr, Expr] = {
        key.expr: Released(key.name, key.expr.type)
        for key in release.keys
        if key.expr.type is not Type.DOUBLE
    }
    for condition in _conditions(release.input):
        found = _with(condition, known)
        keys = {part for part in walk(found) if isinstance(part, Released)}
        if len(keys) > 1 and not any(columns(found)) and all(map(_is_alike, walk(condition))):
            yield found


def _size(given: Mapping[Column, Domain]) -> int:
    return math.prod(map(len, given.values()))


def _image(
    facts: PublicFacts,
    expr: Expr,
    asked: Sequence[Expr],
    given: Mapping[Column, Domain],
    most: int = MAX_DERIVED,
) -> Domain | None:
    """The values of an expression where conditions are true, for all combinations of values of columns.

    None for more than `most`, and where one is past Python's calendar.
    """
    read = tuple(given)
    rows = tuple(itertools.product(*given.values()))
    if not rows:
        return ()
    named = tuple(
        Column(_BOX, f"c{place}", replace(column.facts, engine_type="", identity=None))
        for place, column in enumerate(read)
    )
    items = dict(zip(read, named, strict=True))
    outputs = tuple(substituted(part, items) for part in (expr, *asked))
    box = Values(rows, _BOX, named)
    if any(isinstance(part, Scalar) for output in outputs for part in walk(output)):
        found = _values_of(
            facts, outputs, box
        )  # a subquery has the value that it has in this database, today
    else:
        if (outputs, rows) not in _computed:
            if len(_computed) >= _REMEMBERED:
                _computed.clear()
            _computed[outputs, rows] = _values_of(facts, outputs, box)
        found = _computed[outputs, rows]
    return None if found is None or len(found) > most else found


def _values_of(facts: PublicFacts, outputs: tuple[Expr, ...], box: Values) -> Domain | None:
    """The values of the first of some expressions over constant rows for which the others are true."""
    named = tuple(Output(f"k{place}", part) for place, part in enumerate(outputs))
    rows = facts.rows(OuterQuery(box, named, distinct=True))
    found = [value for value, *true in rows if all(true)]
    # The constants are not narrowed by all that rows are, so they may be further apart than the interval says.
    if outputs[0].type.temporal and any(isinstance(value, str) for value in found):
        return None
    values = {group_key(value) for value in found}
    there = sorted(value for value in values if value is not None)
    return (*there, None) if None in values else tuple(there)


def _with(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """An expression with some of its parts replaced."""
    if expr in known:
        return known[expr]
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_with(part, known) for part in expr.arguments))
    return expr


def _is_alike(part: Expr) -> bool:
    """Whether a part of an expression is computed of constants as it is of rows, on whichever engine.

    Functions of texts are not, but for a few.
    """
    if isinstance(part, Scalar):
        return not any(isinstance(step, Release) for step in steps(part.outer))
    if isinstance(part, (Released, Windowed)):
        return False
    if not isinstance(part, Call) or part.function.name in _ALIKE:
        return True
    return all(each.type is not Type.VARCHAR for each in (part, *part.arguments))


def _elsewhere(expr: Expr, known: Known) -> bool:
    """Whether values may lie outside Python's calendar, where they are shown in other ways."""
    return expr.type.temporal and not interval(expr, known).bounded
