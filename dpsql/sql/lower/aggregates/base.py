"""What an aggregate of SQL is, and what it may ask of the SELECT that it stands in.

The statistics that are measured, and what the engine computes of one unit's rows, are entries of the registries in
`dpsql.aggregates`, which the planner and the emitter read. An aggregate of SQL names those that it is computed of. One
that is a formula over statistics that there are needs no entry there; one that needs a new statistic needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import NoReturn, Protocol

from sqlglot import exp

from dpsql.plan.expr import Expr, Literal, Released
from dpsql.plan.nodes import Relation
from dpsql.plan.types import Type
from dpsql.sql.lower.scope import Scope
from dpsql.sql.read.rejection import Source


class Rows(Protocol):
    """A SELECT with groups of rows."""

    scope: Scope
    select: exp.Select | exp.SetOperation
    input: Relation
    keys: list[Expr]

    @property
    def source(self) -> Source:
        """The text of the query."""

    def argument(self, node: exp.Expr) -> Expr:
        """The argument of an aggregate. Raises QueryRejected for an aggregate in it."""


class AcrossUnits(Rows, Protocol):
    """A SELECT whose groups are released: they are of rows of all privacy units."""

    def released(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> Released:
        """A statistic of `dpsql.aggregates.AGGREGATES`, as a column of the released table."""

    def counted(self, node: exp.AggFunc, function: str, argument: Expr | None) -> Expr:
        """COUNT(*) or COUNT(x), of distinct rows across units where the rows are those."""

    def determined(self, argument: exp.Expr) -> Expr | None:
        """What an expression is in all rows of a group, if the group keys determine it, through public tables too."""


class ExactGroups(Rows, Protocol):
    """A SELECT whose groups are exact: of rows of one privacy unit, of released rows, or of public rows."""

    def exact(
        self,
        node: exp.AggFunc,
        function: str,
        argument: Expr | None,
        by: Expr | None = None,
        rank: Fraction | None = None,
    ) -> Expr:
        """An aggregate of `dpsql.aggregates.per_unit.WITHIN`, as a column of the groups."""


class Place(Enum):
    """Where an aggregate may stand."""

    ACROSS_UNITS = "across units"
    WITHIN_UNIT = "within a unit"
    OVER_RELEASES = "over releases"
    OVER_PUBLIC = "over public rows"
    WINDOW = "over windows of released or public rows"


@dataclass(frozen=True, slots=True)
class Form:
    """A syntax of calls: the grammar's terminal for it, the names that are called so, and arguments for documents.

    `sample` is a template over numbers {x} and {y} and a group key {k}.
    """

    terminal: str
    names: tuple[str, ...]
    sample: str = "({x})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an aggregate does not stand in a place. {name} is the name that the parser gives it."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AggregateCall:
    """An entry of the registry: one aggregate with all that SQL says of it.

    `nodes` are the parser's for its calls, `arity` the numbers of arguments of its first form. `across` lowers a call
    over rows of all units to an expression over released columns, `within` one over exact groups: those of one unit's
    rows, of released rows and of public rows. `filters` says that FILTER may stand behind it, `distinct` that DISTINCT
    may stand in it, `window` that it may stand over a window, where it is the entry of `dpsql.aggregates.windows.OVER`
    of its first name. ORDER BY stands in no call; WITHIN GROUP (ORDER BY x) is a form of its own. `separate` says that it
    is a release of its own, not a column of the SELECT's.

    `accepted` and `refused` are examples over visits(patient_id, plan, age, cost, note), whose unit is patient_id;
    those that are refused have their code.
    """

    forms: tuple[Form, ...]
    nodes: tuple[type[exp.Expr], ...]
    signature: str
    says: str
    arity: tuple[int, ...] = (1,)
    across: Callable[[AcrossUnits, exp.AggFunc], Expr] | Refusal
    within: Callable[[ExactGroups, exp.AggFunc], Expr] | Refusal
    filters: bool = True
    distinct: bool = False
    window: bool = False
    separate: bool = False
    of_keys: bool = False
    accepted: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All spellings, the usual one first."""
        return tuple(name for form in self.forms for name in form.names)

    @property
    def places(self) -> frozenset[Place]:
        """Where it may stand."""
        found = set()
        if not isinstance(self.across, Refusal):
            found.add(Place.ACROSS_UNITS)
        if not isinstance(self.within, Refusal):
            found |= {Place.WITHIN_UNIT, Place.OVER_RELEASES, Place.OVER_PUBLIC}
        return frozenset(found | ({Place.WINDOW} if self.window else set()))


def refuses(code: str, message: str, hint: str) -> Refusal:
    """A refusal. Its code is the first argument, where the page of errors and the tests look for codes."""
    return Refusal(code, message, hint)


def one_argument(over: Rows, node: exp.AggFunc, signature: str) -> Expr:
    """The argument of an aggregate of one. Raises QueryRejected for DISTINCT, and where it is missing."""
    (argument,) = over.source.take(node, "this")
    if argument is None:
        over.source.refuse(node, "syntax", f"{signature}: x is missing")
    if type(argument) is exp.Distinct:
        refuse_distinct(over.source, node)
    return over.argument(argument)


def of_distinct(over: Rows, node: exp.AggFunc) -> Expr | None:
    """The argument of an aggregate of one that is taken of distinct values; None where it is of all."""
    (argument,) = over.source.take(node, "this")
    if type(argument) is not exp.Distinct:
        return None
    values, on = over.source.take(argument, "expressions", "on")
    if on is not None or len(values) != 1:
        refuse_distinct(over.source, node)
    return over.argument(values[0])


def refuse_distinct(text: Source, node: exp.AggFunc) -> NoReturn:
    """Refuses DISTINCT in an aggregate."""
    name = text.called(node)
    text.refuse(
        node,
        "distinct",
        f"{name}(DISTINCT …) is not supported",
        f"release the values first, as groups: SELECT {name}(x) FROM (SELECT x FROM … GROUP BY x)",
    )


def where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """A value where a condition is true, NULL elsewhere."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def where_counted(over: AcrossUnits, node: exp.Expr, value: Expr) -> Expr:
    """Return a value that the group keys determine, NULL where a COUNT(*) of the same SELECT says that no row is in the group.

    Without such a count it is the value: measuring one would take part of the loss.
    """
    there = has_counted_rows(over, node)
    return (
        value
        if there is None
        else over.scope.scalars.call(node, "case", there, value, Literal(None, Type.NULL))
    )


def has_counted_rows(over: AcrossUnits, node: exp.Expr) -> Expr | None:
    """Return the condition that a COUNT(*) of the same SELECT is above 0; None if there is none."""
    items = over.select.expressions if isinstance(over.select, exp.Select) else ()
    parts = (part for item in items for part in item.walk(prune=lambda part: isinstance(part, exp.Query)))
    counts = (
        part
        for part in parts
        if type(part) is exp.Count and type(part.this) is exp.Star and type(part.parent) not in _ELSEWHERE
    )
    count = next(counts, None)
    if count is None:
        return None
    counted = over.counted(count, "count_rows", None)
    return over.scope.scalars.call(node, "gt", counted, Literal(0, Type.INTEGER))


_ELSEWHERE = (exp.Filter, exp.Window)
"""Around a COUNT(*) it is of other rows."""
