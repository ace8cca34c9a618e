"""Images: the values of an expression for all values of its columns, computed by the engine.

Claim: the image of an expression contains its value in every row whose columns are in their domains, and does not depend
on private data.
Why: it is computed for each combination of these values, by the SQL that reads the rows, on an engine of the same kind
without data; the values follow from the policy and the plan.
Source: Dwork, Roth 2014, section 3.3 (histograms over a public universe).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from dpsql.analysis.domains import MAX_DERIVED, Domain, domain, listed, narrowed
from dpsql.analysis.intervals import Known, conditions, interval
from dpsql.analysis.public_tables import group_key
from dpsql.analysis.stability import PublicFacts
from dpsql.plan.expr import Call, Column, Expr, Released, Scalar, columns, substituted, walk
from dpsql.plan.nodes import (
    OuterQuery,
    Output,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    Values,
    optional_sources,
    sources,
)
from dpsql.plan.types import Type, Value

MAX_COMBINATIONS = 10_000
"""Most combinations of values of columns for which an expression is computed."""

_BOX = "#box"
_REMEMBERED = 200
_computed: dict[tuple[Expr, tuple[tuple[Value, ...], ...]], Domain | None] = {}
"""Images of constants, which are the same on every database: computed once, up to `_REMEMBERED` of them."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of expressions over the rows of a relation, whose conditions hold."""

    facts: PublicFacts
    relation: Relation

    def of(self, expr: Expr, known: Known) -> Domain | None:
        """Every value of `expr`, NULL last if it can be NULL; None where its columns have too many values, or others."""
        if isinstance(expr, Column):
            return self._traced(expr)
        stated = listed(self.relation)
        read = tuple(sorted(dict.fromkeys(columns(expr)), key=str))
        if not isinstance(expr, Call) or not read:
            return None
        if not all(map(_alike, walk(expr))) or _elsewhere(expr, known):
            return None
        given = []
        for column in read:
            values = domain(column, known, stated, self)
            if values is None:
                return None
            given.append(narrowed(values, column, known))
        if math.prod(map(len, given)) > MAX_COMBINATIONS:
            return None
        rows = tuple(itertools.product(*given))
        if not rows:
            return ()
        named = tuple(
            Column(_BOX, f"c{place}", replace(column.facts, engine_type="", identity=None))
            for place, column in enumerate(read)
        )
        computed = substituted(expr, dict(zip(read, named, strict=True)))
        asked = (computed, rows)
        if asked not in _computed:
            if len(_computed) >= _REMEMBERED:
                _computed.clear()
            _computed[asked] = self._image(computed, Values(rows, _BOX, named))
        return _computed[asked]

    def _image(self, computed: Expr, box: Values) -> Domain | None:
        """The values of an expression over constant rows; None for too many, and where one is past Python's calendar."""
        query = OuterQuery(box, (Output("k", computed),), limit=MAX_DERIVED + 1, distinct=True)
        found = [value for (value,) in self.facts.rows(query)]
        if len(found) > MAX_DERIVED:
            return None
        # The constants are not narrowed by all that rows are, so they may be further apart than the interval says.
        if computed.type.temporal and any(isinstance(value, str) for value in found):
            return None
        values = {group_key(value) for value in found}
        there = sorted(value for value in values if value is not None)
        return (*there, None) if None in values else tuple(there)

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
        values = domain(item, conditions(inner), listed(inner), Images(self.facts, inner))
        # Where a LEFT JOIN finds no row there is NULL.
        outer = column.source in optional_sources(self.relation)
        return values if values is None or not outer or None in values else (*values, None)


def _alike(part: Expr) -> bool:
    """Whether a part of an expression is computed of constants as it is of rows.

    Texts are not: rows are read without the collation of the database, under which constants are compared.
    """
    return part.type is not Type.VARCHAR and not isinstance(part, (Released, Scalar))


def _elsewhere(expr: Expr, known: Known) -> bool:
    """Whether values may lie outside Python's calendar, where they are shown in other ways."""
    return expr.type.temporal and not interval(expr, known).bounded
