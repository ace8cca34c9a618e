"""The work of public rows: how many rows the joins of public tables, constants and released values can make.

A statement evaluates its public parts before the charge, or after it over released values. They read no private row, but a
product of three `range(10000)` has 10^12 rows, and keeps others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.analysis.stability import PublicFacts
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Scalar, iterate_columns, walk
from dpsql.plan.nodes import (
    Join,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetKind,
    SetOperation,
    Values,
    is_private,
)
from dpsql.plan.steps import is_single_row, is_unique, list_children, list_steps
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type

MOST_PUBLIC_ROWS = 2**24
"""The most rows that the joins of public rows of a statement make together: about a second of an engine."""
RELEASED_GROUPS = 100
"""The groups that a release with keys is taken to have."""
_FAR_TOO_MANY = 10**18
"""No more rows are counted, so that the numbers of a long chain stay small."""
_COUNTED = "#counted"


def require_bounded_products(part: object, facts: PublicFacts) -> None:
    """Raise QueryRejected if the joins of public rows in a part of a plan could make too many rows.

    Claim: the public joins of a statement that make more rows than either of their sides make at most `MOST_PUBLIC_ROWS` rows, each
    join counted as often as it is written, if no release has more than `RELEASED_GROUPS` groups. No more rows than that are made
    to find out.
    Why: a join has at most as many rows as its left side, times the matches of one row on the right, which are all rows without a
    key, and are looked up for a key. What is looked up is a part of the statement, and passes this check before. A condition, DISTINCT
    or GROUP BY does not lower the work of what it reads; a union has the rows of both sides.
    Source: none but the definitions.
    """
    total = _PublicWork(facts).count_work(part)
    if total > MOST_PUBLIC_ROWS:
        raise QueryRejected(
            f"the joins of public rows could make {total:,} rows; at most {MOST_PUBLIC_ROWS:,} are allowed",
            code="fanout",
            hint="join on equal keys, which few rows share, or store the joined rows as a public table",
        )


@dataclass(frozen=True, slots=True)
class _PublicWork:
    """The work and the rows of the parts of a plan, by identity, since plans share many; the plan outlives it."""

    facts: PublicFacts
    _work: dict[int, int] = field(default_factory=dict)
    _rows: dict[int, int] = field(default_factory=dict)

    def count_work(self, part: object) -> int:
        """Count the rows that the public joins in a part make."""
        if id(part) not in self._work:
            total = sum(map(self.count_work, _list_parts(part)))
            if isinstance(part, (Join, SemiJoin)) and not is_private(part) and total <= MOST_PUBLIC_ROWS:
                total += self._count_product(part)
            self._work[id(part)] = total
        return self._work[id(part)]

    def _count_product(self, join: Join | SemiJoin) -> int:
        """Count the rows that a join makes, or the pairs that EXISTS compares; 0 for no more than it reads."""
        if isinstance(join, SemiJoin):
            matched = any(_is_equality(part, join) for part in iterate_conjuncts(join.on))
            return 0 if matched else self.bound_rows(join.input) * self.bound_rows(join.right)
        made = self.bound_rows(join)
        return made if made > max(self.bound_rows(join.left), self.bound_rows(join.right)) else 0

    def bound_rows(self, relation: Relation | Release) -> int:
        """Return the most rows of a public relation, or the groups that a release is taken to have."""
        if id(relation) not in self._rows:
            self._rows[id(relation)] = min(_FAR_TOO_MANY, self._bound_relation_rows(relation))
        return self._rows[id(relation)]

    def _bound_relation_rows(self, relation: Relation | Release) -> int:
        match relation:
            case Release():
                return RELEASED_GROUPS if relation.keys else 1
            case Scan():
                return _count_table_rows(relation, self.facts)
            case Values():
                return len(relation.rows)
            case PublicSubquery(outer=outer):
                rows = self.bound_rows(outer.source)
                return rows if outer.limit is None else min(rows, outer.limit)
            case Join():
                return self.bound_rows(relation.left) * self._bound_matches(relation)
            case SetOperation(kind=SetKind.UNION_ALL | SetKind.UNION):
                return self.bound_rows(relation.left) + self.bound_rows(relation.right)
            case SetOperation():
                return self.bound_rows(relation.left)
            case PerUnitGroupBy() if not relation.keys:
                return 1
            case _:
                return self.bound_rows(relation.input)

    def _bound_matches(self, join: Join) -> int:
        """Return the most rows of the right side that one row of the left matches; at least the one that a LEFT JOIN adds."""
        rows = self.bound_rows(join.right)
        if not join.on or rows <= 1:
            return max(1, rows)
        if is_single_row(join.right) or is_unique(join.right, [theirs for _, theirs in join.on]):
            return 1
        if _reads_release(join.right):
            return rows
        return max(1, self.facts.look_up_multiplicity(join))


def _list_parts(part: object) -> Sequence[object]:
    """List the parts of a plan in a part, the subqueries of an expression among them."""
    if isinstance(part, Call):
        return [each for each in dict.fromkeys(walk(part)) if isinstance(each, Scalar)]
    return list_children(part)


def _is_equality(condition: Expr, join: SemiJoin) -> bool:
    """Return whether a condition is that values of both sides are equal, by which an engine finds the rows."""
    if not isinstance(condition, Call) or condition.function.name not in ("eq", "is_not_distinct"):
        return False
    right = [
        {column.source == join.right.alias for column in iterate_columns(side)}
        for side in condition.arguments
    ]
    return sorted(right, key=sorted) == [{False}, {True}]


def _count_table_rows(scan: Scan, facts: PublicFacts) -> int:
    """Return the number of rows of a public table."""
    column = Column(_COUNTED, "rows", ColumnInfo(Type.INTEGER, "BIGINT"))
    counted = PerUnitGroupBy(scan, _COUNTED, (), (PerUnitAggregate("count_rows", None),), (column,))
    ((number,),) = facts.read_rows(OuterQuery(counted, (Output("rows", column),)))
    return int(number) if isinstance(number, int) else 0


def _reads_release(relation: Relation) -> bool:
    """Return whether some rows of a public relation are computed from released values."""
    query = OuterQuery(relation, ())
    return any(isinstance(step, Release) for step in list_steps(query))
