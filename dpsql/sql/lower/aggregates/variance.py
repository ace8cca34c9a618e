"""Variances, covariances, correlations and regressions, as arithmetic over released means.

Claim: they are as private as the means and counts that they are computed of.
Why: of x and y, taken from the middles of their intervals, the means of x, y, x², y² and xy are released,
and the number of rows; what is computed of these is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.

A variance does not change where its argument is shifted, and the square of what lies about zero has the
smallest interval, hence the least noise. A noisy variance below zero is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from dpsql.analysis.intervals import Known, conditions, interval
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import AcrossUnits, AggregateCall, Form, refuse_distinct, refuses
from dpsql.sql.lower.scalars import Scalars

_ZERO, _ONE = Literal(0.0, Type.DOUBLE), Literal(1, Type.INTEGER)
_NULL = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class VarianceFormula:
    """What is computed of the rows in which all of `of` have a value; `released` adds an aggregate."""

    node: exp.Expr
    scalars: Scalars
    released: Callable[[str, Expr], Expr]
    known: Known
    of: tuple[Expr, ...]

    def variance(self, place: int = 0) -> Expr:
        """The mean square less the square of the mean."""
        found = self.covariance(place, place)
        return self._call("case", self._call("lt", found, _ZERO), _ZERO, found)

    def covariance(self, first: int = 0, second: int = 1) -> Expr:
        """The mean product less the product of the means."""
        product = self._call("multiply", self._about(first), self._about(second))
        if first == second:
            product = self._beside(product, first)
        means = (self._mean(self._beside(self._about(place), place)) for place in (first, second))
        return self._call("subtract", self._mean(product), self._call("multiply", *means))

    def of_sample(self, found: Expr) -> Expr:
        """A variance or covariance as that of all from which the rows are a sample; NULL of a single one."""
        rows = self.released("count", self._beside(self.of[0], 0))
        fewer = self._call("subtract", rows, _ONE)
        scaled = self._call("divide", self._call("multiply", found, rows), fewer)
        return self._call("case", self._call("gt", rows, _ONE), scaled, _NULL)

    def root(self, found: Expr) -> Expr:
        """The square root of what is not below zero."""
        return self._call("sqrt", found)

    def correlation(self) -> Expr:
        """Between -1 and 1, NULL where one of the two does not vary."""
        both = self._call("multiply", self.variance(0), self.variance(1))
        found = self._call("divide", self.covariance(), self.root(both))
        low, high = Literal(-1.0, Type.DOUBLE), Literal(1.0, Type.DOUBLE)
        above = self._call("case", self._call("gt", found, high), high, found)
        return self._call("case", self._call("lt", found, low), low, above)

    def slope(self) -> Expr:
        """How much y changes with x, y being the first of the two."""
        return self._call("divide", self.covariance(), self.variance(1))

    def intercept(self) -> Expr:
        """What the line through the means says of y where x is 0."""
        means = (self._mean(self._beside(self._about(place), place)) for place in (0, 1))
        y, x = (self._call("add", mean, self._middle(place)) for place, mean in enumerate(means))
        return self._call("subtract", y, self._call("multiply", self.slope(), x))

    def determination(self) -> Expr:
        """The square of the correlation."""
        found = self.correlation()
        return self._call("multiply", found, found)

    def _about(self, place: int) -> Expr:
        """An argument less the middle of its interval."""
        middle = self._middle(place)
        return self.of[place] if middle == _ZERO else self._call("subtract", self.of[place], middle)

    def _beside(self, expr: Expr, place: int) -> Expr:
        """What is computed of one argument, NULL where the other one is."""
        for other in (*self.of[:place], *self.of[place + 1 :]):
            expr = self._call("case", self._call("is_null", other), _NULL, expr)
        return expr

    def _middle(self, place: int) -> Expr:
        around = interval(self.of[place], self.known)
        if not around.bounded:
            return _ZERO
        middle = sum(around.ends) / 2
        whole = self.of[place].type is Type.INTEGER
        return Literal(math.floor(middle), Type.INTEGER) if whole else Literal(float(middle), Type.DOUBLE)

    def _mean(self, expr: Expr) -> Expr:
        return self.released("avg", expr)

    def _call(self, name: str, *arguments: Expr) -> Expr:
        return self.scalars.call(self.node, name, *arguments)


def _computed(
    width: int, build: Callable[[VarianceFormula], Expr]
) -> Callable[[AcrossUnits, exp.AggFunc], Expr]:
    """What is computed of the numbers that are a call's arguments."""

    def across(over: AcrossUnits, node: exp.AggFunc) -> Expr:
        nodes = [part for part in over.source.take(node, "this", "expression") if part is not None]
        if any(type(part) is exp.Distinct for part in nodes):
            refuse_distinct(over.source, node)
        of = tuple(map(over.argument, nodes))
        if len(of) != width or not all(expr.type.numeric for expr in of):
            given = ", ".join(str(expr.type) for expr in of)
            name, _, _ = node.sql(dialect="duckdb").partition("(")
            over.source.refuse(
                node, "type", f"{name} takes {'x' if width == 1 else 'y, x'}: numbers, not ({given})"
            )
        known = conditions(over.input)
        return build(VarianceFormula(node, over.scope.scalars, partial(over.released, node), known, of))

    return across


_ACROSS_ALONE = refuses(
    "released_only",
    "{name} is computed across units alone for now",
    "a variance can be written out: AVG(x * x) - AVG(x) * AVG(x)",
)


def _of_one(
    names: tuple[str, ...],
    nodes: tuple[type[exp.Expr], ...],
    says: str,
    build: Callable[[VarianceFormula], Expr],
) -> AggregateCall:
    return AggregateCall(
        forms=(Form("OF_ONE", names),),
        nodes=nodes,
        signature=f"{names[0]}(x)",
        says=says,
        across=_computed(1, build),
        within=_ACROSS_ALONE,
        accepted=(
            *(f"SELECT plan, {name}(cost) FROM visits GROUP BY plan" for name in names),
            f"SELECT {names[0]}(age) FILTER (WHERE cost > 10) FROM visits",
        ),
        refused={
            f"SELECT {names[0]}(DISTINCT age) FROM visits": "distinct",
            f"SELECT {names[0]}(note) FROM visits": "type",
            f"SELECT COUNT(v) FROM (SELECT {names[0]}(age) AS v FROM visits GROUP BY patient_id)": "released_only",
        },
    )


def _of_two(
    name: str, node: type[exp.Expr], says: str, build: Callable[[VarianceFormula], Expr]
) -> AggregateCall:
    return AggregateCall(
        forms=(Form("OF_TWO", (name,), "({x}, {y})"),),
        nodes=(node,),
        signature=f"{name}(y, x)",
        says=says,
        arity=(2,),
        across=_computed(2, build),
        within=_ACROSS_ALONE,
        accepted=(
            f"SELECT plan, {name}(cost, age) FROM visits GROUP BY plan",
            f"SELECT {name}(age, cost) FILTER (WHERE cost > 10) FROM visits",
        ),
        refused={
            f"SELECT {name}(note, age) FROM visits": "type",
            f"SELECT COUNT(v) FROM (SELECT {name}(age, cost) AS v FROM visits GROUP BY patient_id)": "released_only",
        },
    )


VARIANCES = (
    _of_one(
        ("VAR_POP",),
        (exp.VariancePop,),
        "The mean square of distances from the mean.",
        VarianceFormula.variance,
    ),
    _of_one(
        ("VAR_SAMP", "VARIANCE"),
        (exp.Variance,),
        "The variance of all from which the rows are a sample.",
        lambda of: of.of_sample(of.variance()),
    ),
    _of_one(
        ("STDDEV_POP",), (exp.StddevPop,), "The square root of VAR_POP.", lambda of: of.root(of.variance())
    ),
    _of_one(
        ("STDDEV_SAMP", "STDDEV"),
        (exp.StddevSamp, exp.Stddev),
        "The square root of VAR_SAMP.",
        lambda of: of.root(of.of_sample(of.variance())),
    ),
    _of_two(
        "COVAR_POP",
        exp.CovarPop,
        "The mean product of distances from the two means.",
        VarianceFormula.covariance,
    ),
    _of_two(
        "COVAR_SAMP",
        exp.CovarSamp,
        "The covariance of all from which the rows are a sample.",
        lambda of: of.of_sample(of.covariance()),
    ),
    _of_two("CORR", exp.Corr, "The correlation, from -1 to 1.", VarianceFormula.correlation),
    _of_two("REGR_SLOPE", exp.RegrSlope, "How much y changes with x.", VarianceFormula.slope),
    _of_two(
        "REGR_INTERCEPT",
        exp.RegrIntercept,
        "What the line says of y where x is 0.",
        VarianceFormula.intercept,
    ),
    _of_two("REGR_R2", exp.RegrR2, "The square of the correlation.", VarianceFormula.determination),
)
