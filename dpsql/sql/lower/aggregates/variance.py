"""Variances, covariances, correlations and regressions, as arithmetic over released means.

Claim: they are as private as the means and counts that they are computed of.
Why: of x and y, taken from the middles of their intervals, the means of x, y, x², y² and xy are released,
and the number of rows; what is computed of these is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.

Over the rows of one unit, and over released and public rows, they are computed of exact means: to some 15 digits of the
square of the bounds' width, or of the greatest value where there are no bounds. Within bounds, a variance is within its own.

Of DISTINCT values, the total of the squares is that of the values above the middle and that of those below: on either side
the squares of different values differ, so that each counts once.

A variance does not change where its argument is shifted, and the square of what lies about zero has the
smallest interval, hence the least noise. A noisy variance below zero is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.analysis.intervals import MAX_MAGNITUDE, Known, conditions, interval
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.nodes import is_private
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AcrossUnits,
    AggregateCall,
    ExactGroups,
    Form,
    Rows,
    of_distinct,
    refuse_distinct,
)
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
    exact: bool = False
    distinct: bool = False

    def between(self, found: Expr, low: Fraction | None, high: Fraction) -> Expr:
        """What is exact, in the interval that it is in but for rounding; `low` is None for -`high`."""
        if not self.exact:
            return found
        ends = (Literal(float(end), Type.DOUBLE) for end in (-high if low is None else low, high))
        least, greatest = ends
        held = self._call("least", self._call("greatest", found, least), greatest)
        return self._call("case", self._call("is_null", found), _NULL, held)

    def widths(self, *places: int) -> Fraction | None:
        """The product of the widths of some arguments' intervals; None where one has no bounds."""
        product = Fraction(1)
        for place in places:
            around = interval(self.of[place], self.known)
            if not around.within(MAX_MAGNITUDE):
                return None
            low, high = around.ends
            product *= high - low
        return product

    def variance(self, place: int = 0) -> Expr:
        """The mean square less the square of the mean."""
        found = self._of_distinct() if self.distinct else self.covariance(place, place)
        return self._call("case", self._call("lt", found, _ZERO), _ZERO, found)

    def _of_distinct(self) -> Expr:
        """The mean square of distinct values less the square of their mean."""
        about, number = self._about(0), self._number()
        halves = (
            self._call(
                "case",
                self._call(name, about, Literal(0, Type.INTEGER)),
                self._call("multiply", about, about),
                _NULL,
            )
            for name in ("ge", "lt")
        )
        squares = (
            self._call("coalesce", self.released("sum_distinct", half), Literal(0, half.type))
            for half in halves
        )
        mean = self._call("divide", self.released("sum_distinct", about), number)
        square = self._call("divide", self._call("add", *squares), number)
        return self._call("subtract", square, self._call("multiply", mean, mean))

    def _number(self) -> Expr:
        """How many rows, or distinct values, there are."""
        return self.released("count_distinct" if self.distinct else "count", self._beside(self.of[0], 0))

    def covariance(self, first: int = 0, second: int = 1) -> Expr:
        """The mean product less the product of the means."""
        product = self._call("multiply", self._about(first), self._about(second))
        if first == second:
            product = self._beside(product, first)
        means = (self._mean(self._beside(self._about(place), place)) for place in (first, second))
        return self._call("subtract", self._mean(product), self._call("multiply", *means))

    def of_sample(self, found: Expr) -> Expr:
        """A variance or covariance as that of all from which the rows are a sample; NULL of a single one."""
        rows = self._number()
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


def _arguments(over: Rows, node: exp.AggFunc, width: int) -> tuple[tuple[Expr, ...], bool]:
    """The numbers that are a call's arguments, and whether it is of DISTINCT ones."""
    values = of_distinct(over, node) if width == 1 else None
    if values is not None:
        _check_numbers(over, node, (values,), width)
        return (values,), True
    nodes = [part for part in over.source.take(node, "this", "expression") if part is not None]
    if any(type(part) is exp.Distinct for part in nodes):
        refuse_distinct(over.source, node)
    of = tuple(map(over.argument, nodes))
    _check_numbers(over, node, of, width)
    return of, False


def _check_numbers(over: Rows, node: exp.AggFunc, of: tuple[Expr, ...], width: int) -> None:
    if len(of) != width or not all(expr.type.numeric for expr in of):
        given = ", ".join(str(expr.type) for expr in of)
        name, _, _ = node.sql(dialect="duckdb").partition("(")
        over.source.refuse(
            node, "type", f"{name} takes {'x' if width == 1 else 'y, x'}: numbers, not ({given})"
        )


def _computed(
    width: int, build: Callable[[VarianceFormula], Expr]
) -> Callable[[AcrossUnits, exp.AggFunc], Expr]:
    """What is computed of released means."""

    def across(over: AcrossUnits, node: exp.AggFunc) -> Expr:
        (of, distinct), known = _arguments(over, node, width), conditions(over.input)
        released = partial(over.released, node)
        return build(VarianceFormula(node, over.scope.scalars, released, known, of, distinct=distinct))

    return across


def _exact(
    width: int, build: Callable[[VarianceFormula], Expr], most: _Most
) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    """What is computed of exact means, within the bounds that follow from the arguments'."""

    def within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        (of, distinct), known = _arguments(over, node, width), conditions(over.input)
        formula = VarianceFormula(
            node, over.scope.scalars, partial(over.exact, node), known, of, is_private(over.input), distinct
        )
        found, bounds = build(formula), most(formula)
        return found if bounds is None else formula.between(found, *bounds)

    return within


_Most = Callable[[VarianceFormula], "tuple[Fraction | None, Fraction] | None"]
"""The interval of what is computed, as `VarianceFormula.between` takes it; None for any."""


def _share(share: Fraction, *, root: bool = False, signed: bool = False) -> _Most:
    """A share of the square of the width, or of the product of two; of a `root`, of the width itself."""

    def most(of: VarianceFormula) -> tuple[Fraction | None, Fraction] | None:
        width = of.widths(*((0,) if root else (0, len(of.of) - 1)))
        return None if width is None else (None if signed else Fraction(0), width * share)

    return most


def _any(_: VarianceFormula) -> None:
    return None


def _signed_one(_: VarianceFormula) -> tuple[None, Fraction]:
    return None, Fraction(1)


def _one(_: VarianceFormula) -> tuple[Fraction, Fraction]:
    return Fraction(0), Fraction(1)


def _of_one(
    names: tuple[str, ...],
    nodes: tuple[type[exp.Expr], ...],
    says: str,
    build: Callable[[VarianceFormula], Expr],
    most: _Most,
) -> AggregateCall:
    return AggregateCall(
        forms=(Form("SPREAD", names),),
        nodes=nodes,
        signature=f"{names[0]}(x)",
        says=says,
        distinct=True,
        across=_computed(1, build),
        within=_exact(1, build, most),
        accepted=(
            *(f"SELECT plan, {name}(cost) FROM visits GROUP BY plan" for name in names),
            f"SELECT {names[0]}(age) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT plan, {names[0]}(DISTINCT age) FROM visits GROUP BY plan",
            f"SELECT AVG(v) FROM (SELECT {names[0]}(age) AS v FROM visits GROUP BY patient_id)",
            f"SELECT AVG(v) FROM (SELECT {names[0]}(DISTINCT cost) AS v FROM visits GROUP BY patient_id)",
        ),
        refused={
            f"SELECT {names[0]}(DISTINCT weight) FROM visits": "unbounded",
            f"SELECT {names[0]}(note) FROM visits": "type",
        },
    )


def _of_two(
    name: str, node: type[exp.Expr], says: str, build: Callable[[VarianceFormula], Expr], most: _Most
) -> AggregateCall:
    return AggregateCall(
        forms=(Form("OF_TWO", (name,), "({x}, {y})"),),
        nodes=(node,),
        signature=f"{name}(y, x)",
        says=says,
        arity=(2,),
        across=_computed(2, build),
        within=_exact(2, build, most),
        accepted=(
            f"SELECT plan, {name}(cost, age) FROM visits GROUP BY plan",
            f"SELECT {name}(age, cost) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT COUNT(v) FROM (SELECT {name}(age, cost) AS v FROM visits GROUP BY patient_id)",
        ),
        refused={
            f"SELECT {name}(note, age) FROM visits": "type",
        },
    )


VARIANCES = (
    _of_one(
        ("VAR_POP",),
        (exp.VariancePop,),
        "The mean square of distances from the mean.",
        VarianceFormula.variance,
        _share(Fraction(1, 4)),
    ),
    _of_one(
        ("VAR_SAMP", "VARIANCE"),
        (exp.Variance,),
        "The variance of all from which the rows are a sample.",
        lambda of: of.of_sample(of.variance()),
        _share(Fraction(1, 2)),
    ),
    _of_one(
        ("STDDEV_POP",),
        (exp.StddevPop,),
        "The square root of VAR_POP.",
        lambda of: of.root(of.variance()),
        _share(Fraction(1, 2), root=True),
    ),
    _of_one(
        ("STDDEV_SAMP", "STDDEV"),
        (exp.StddevSamp, exp.Stddev),
        "The square root of VAR_SAMP.",
        lambda of: of.root(of.of_sample(of.variance())),
        _share(Fraction(3, 4), root=True),
    ),
    _of_two(
        "COVAR_POP",
        exp.CovarPop,
        "The mean product of distances from the two means.",
        VarianceFormula.covariance,
        _share(Fraction(1, 4), signed=True),
    ),
    _of_two(
        "COVAR_SAMP",
        exp.CovarSamp,
        "The covariance of all from which the rows are a sample.",
        lambda of: of.of_sample(of.covariance()),
        _share(Fraction(1, 2), signed=True),
    ),
    _of_two("CORR", exp.Corr, "The correlation, from -1 to 1.", VarianceFormula.correlation, _signed_one),
    _of_two("REGR_SLOPE", exp.RegrSlope, "How much y changes with x.", VarianceFormula.slope, _any),
    _of_two(
        "REGR_INTERCEPT",
        exp.RegrIntercept,
        "What the line says of y where x is 0.",
        VarianceFormula.intercept,
        _any,
    ),
    _of_two("REGR_R2", exp.RegrR2, "The square of the correlation.", VarianceFormula.determination, _one),
)
