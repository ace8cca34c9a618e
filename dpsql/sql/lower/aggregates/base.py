"""The parts of an entry in the registry of aggregates: syntax, lowerings, refusals, and the SELECT that it is called in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import NoReturn, Protocol

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal, ReleasedColumn
from dpsql.plan.nodes import Relation
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.scope import Scope
from dpsql.sql.parse.rejection import QueryText

# The definition of an aggregate of SQL, and the interface of the SELECT around it.


class GroupedRows(Protocol):
    """A SELECT with groups of rows."""

    scope: Scope
    select: exp.Select | exp.SetOperation
    input: Relation

    @property
    def keys(self) -> Sequence[Expr]:
        """Return the group keys."""
        ...

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""

    def lower_argument(self, node: exp.Expr) -> Expr:
        """Return the argument of an aggregate. Raises QueryRejected for an aggregate in it."""


class ReleasedGroups(GroupedRows, Protocol):
    """A SELECT whose groups are released: they hold rows of all privacy units."""

    def add_statistic(
        self, node: exp.AggFunc, function: str, argument: Expr | None, rank: Fraction | None = None
    ) -> ReleasedColumn:
        """Return a statistic of `dpsql.plan.aggregates.AGGREGATES`, as a column of the released table."""

    def add_count(self, node: exp.AggFunc, function: str, argument: Expr | None) -> Expr:
        """Return COUNT(*) or COUNT(x), which over distinct rows across units counts those."""

    def find_determined_value(self, argument: exp.Expr) -> Expr | None:
        """Return the value of an expression in all rows of a group, if the group keys determine it, also through public tables."""


class ExactGroups(GroupedRows, Protocol):
    """A SELECT whose groups are exact: they hold rows of one privacy unit, released rows, or public rows."""

    def add_exact_aggregate(
        self,
        node: exp.AggFunc,
        function: str,
        argument: Expr | None,
        by: Expr | None = None,
        rank: Fraction | None = None,
    ) -> Expr:
        """Return an aggregate of `dpsql.plan.aggregates.per_unit.WITHIN`, as a column of the groups."""


class AggregateContext(Enum):
    """The contexts in which an aggregate may be called."""

    ACROSS_UNITS = "across units"
    WITHIN_UNIT = "within a unit"
    OVER_RELEASES = "over releases"
    OVER_PUBLIC = "over public rows"
    WINDOW = "over windows of released or public rows"


@dataclass(frozen=True, slots=True)
class CallForm:
    """A syntax of calls: the grammar's terminal, the function names, and arguments for documents.

    `sample` is a template over numbers {x} and {y} and a group key {k}.
    """

    terminal: str
    names: tuple[str, ...]
    sample: str = "({x})"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why an aggregate is not allowed in a context. {name} is the name that the parser gives it."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AggregateCall:
    """An entry of the registry: one aggregate with all its SQL syntax and lowerings.

    `nodes` are the parser's nodes for its calls, `arity` the numbers of arguments of its first form. `across` lowers a call
    over rows of all units to an expression over released columns, `within` one over exact groups: groups of one unit's rows,
    of released rows and of public rows. `filters` says that FILTER may follow it, `distinct` that its argument may have
    DISTINCT, `window` that it may be computed over a window, by the entry of `dpsql.plan.aggregates.windows.OVER` with its
    first name. ORDER BY is not allowed in a call; WITHIN GROUP (ORDER BY x) is a form of its own. `separate` says that it is
    a release of its own, not a column of the SELECT's release.

    `accepted` and `refused` are examples over visits(patient_id, plan, age, cost, note), whose unit is patient_id; each
    refused example has its code.

    The statistics that are measured, and what the engine computes over one unit's rows, are entries of the registries in
    `dpsql.plan.aggregates`, which the planner and the compiler read. An aggregate of SQL names the entries that it is computed
    from. An aggregate that is a formula over existing statistics needs no entry there; an aggregate that needs a new statistic
    needs one.
    """

    forms: tuple[CallForm, ...]
    nodes: tuple[type[exp.Expr], ...]
    signature: str
    says: str
    arity: tuple[int, ...] = (1,)
    across: Callable[[ReleasedGroups, exp.AggFunc], Expr] | Refusal
    within: Callable[[ExactGroups, exp.AggFunc], Expr] | Refusal
    filters: bool = True
    distinct: bool = False
    window: bool = False
    separate: bool = False
    needs_group_keys: bool = False
    accepted: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all spellings, the usual one first."""
        return tuple(name for form in self.forms for name in form.names)

    @property
    def contexts(self) -> frozenset[AggregateContext]:
        """Return where it may stand."""
        found = set()
        if not isinstance(self.across, Refusal):
            found.add(AggregateContext.ACROSS_UNITS)
        if not isinstance(self.within, Refusal):
            found |= {
                AggregateContext.WITHIN_UNIT,
                AggregateContext.OVER_RELEASES,
                AggregateContext.OVER_PUBLIC,
            }
        return frozenset(found | ({AggregateContext.WINDOW} if self.window else set()))


def refuses(code: str, message: str, hint: str) -> Refusal:
    """Return a refusal. Its code is the first argument, where the page of errors and the tests look for codes."""
    return Refusal(code, message, hint)


def lower_single_argument(over: GroupedRows, node: exp.AggFunc, signature: str) -> Expr:
    """Return the argument of an aggregate with one. Raises QueryRejected for DISTINCT, and if it is missing."""
    (argument,) = over.source.take_arguments(node, "this")
    if argument is None:
        over.source.refuse(node, "syntax", f"{signature}: x is missing")
    if type(argument) is exp.Distinct:
        refuse_distinct(over.source, node)
    return over.lower_argument(argument)


def find_distinct_argument(over: GroupedRows, node: exp.AggFunc) -> Expr | None:
    """Return the argument of an aggregate with DISTINCT; None without DISTINCT."""
    (argument,) = over.source.take_arguments(node, "this")
    if type(argument) is not exp.Distinct:
        return None
    values, on = over.source.take_arguments(argument, "expressions", "on")
    if on is not None or len(values) != 1:
        refuse_distinct(over.source, node)
    return over.lower_argument(values[0])


def refuse_distinct(text: QueryText, node: exp.AggFunc) -> NoReturn:
    """Refuse DISTINCT in an aggregate."""
    name = text.get_function_name(node)
    text.refuse(
        node,
        "distinct",
        f"{name}(DISTINCT …) is not supported",
        f"release each value as a group first: SELECT {name}(x) FROM (SELECT x FROM … GROUP BY x)",
    )


def build_conditional_value(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Build a value where a condition is true, NULL elsewhere."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def guard_by_count(over: ReleasedGroups, node: exp.Expr, value: Expr) -> Expr:
    """Return a value that the group keys determine, or NULL if a COUNT(*) of the same SELECT shows an empty group.

    Without such a count the value is returned unchanged: measuring a count would take part of the loss.
    """
    there = has_counted_rows(over, node)
    return (
        value
        if there is None
        else over.scope.scalars.build_call(node, "case", there, value, Literal(None, Type.NULL))
    )


def has_counted_rows(over: ReleasedGroups, node: exp.Expr) -> Expr | None:
    """Return the condition that a COUNT(*) of the same SELECT is above 0, or None."""
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
    counted = over.add_count(count, "count_rows", None)
    return over.scope.scalars.build_call(node, "gt", counted, Literal(0, Type.INTEGER))


_ELSEWHERE = (exp.Filter, exp.Window)
"""Inside these nodes, a COUNT(*) is over other rows."""


# Aggregates that are not supported, and what to write instead.


_LISTED = "count each value: SELECT x, COUNT(*) … GROUP BY x"
_IN_PLACE: Mapping[str, str] = {
    "regr_count": "write COUNT(*) FILTER (WHERE y IS NOT NULL AND x IS NOT NULL)",
    **dict.fromkeys(("grouping_id", "groupingid"), "write GROUPING(x, y)"),
    "entropy": (
        "compute it from counts: SELECT -SUM(n / t * LOG2(n / t)) FROM (SELECT x, COUNT(*) AS n, "
        "SUM(COUNT(*)) OVER () AS t … GROUP BY x HAVING COUNT(*) > 0)"
    ),
}
"""Aggregates with an equivalent, and that equivalent."""
_INSTEAD: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("string_agg", "stringagg", "listagg", "group_concat", "array_agg", "list", "json_group_array"),
        ("is not supported: it would release the value of each row", _LISTED),
    ),
    "product": (
        "is not supported: one row decides how large a product is",
        "write GEOMEAN(x) for the mean of factors above zero, or SUM(x) for a total",
    ),
    **dict.fromkeys(
        ("bit_and", "bit_or", "bit_xor"),
        ("is not supported: one row decides a bit", "count the rows with a bit: COUNT_IF((x & 4) = 4)"),
    ),
    **dict.fromkeys(
        ("arg_max_null", "arg_min_null", "arg_max_nulls_last", "arg_min_nulls_last"),
        ("would release one row's value", "write SELECT x, SUM(y) … GROUP BY x ORDER BY SUM(y) DESC LIMIT 1"),
    ),
}
"""Aggregates that one row decides, by name, each with the reason and the replacement."""


def refuse_unsupported(
    source: QueryText, node: exp.Expr, signatures: Iterable[str], *, across: bool
) -> NoReturn:
    """Refuse an unknown aggregate, with a hint to its replacement or to the known signatures.

    `across` says whether rows of several units are aggregated.
    """
    name = source.get_function_name(node)
    names = dict.fromkeys(signature.partition("(")[0] for signature in signatures)
    known = _IN_PLACE.get(normalize_name(name)) or f"there are: {', '.join(names)}"
    why, instead = _INSTEAD.get(normalize_name(name), ("", known))
    if why and across:
        source.refuse(node, "aggregate", f"{name} {why}", instead)
    source.refuse(node, "aggregate", f"{name} is not supported", _LISTED if instead == _LISTED else known)
