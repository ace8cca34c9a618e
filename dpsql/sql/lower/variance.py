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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dpsql.analysis.intervals import Known, interval
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars

_ZERO, _ONE = Literal(0.0, Type.DOUBLE), Literal(1, Type.INTEGER)
_NULL = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class Spread:
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


SPREADS: Mapping[type[exp.Expr], tuple[int, Callable[[Spread], Expr]]] = {
    exp.VariancePop: (1, Spread.variance),
    exp.Variance: (1, lambda of: of.of_sample(of.variance())),
    exp.StddevPop: (1, lambda of: of.root(of.variance())),
    exp.Stddev: (1, lambda of: of.root(of.of_sample(of.variance()))),
    exp.StddevSamp: (1, lambda of: of.root(of.of_sample(of.variance()))),
    exp.CovarPop: (2, Spread.covariance),
    exp.CovarSamp: (2, lambda of: of.of_sample(of.covariance())),
    exp.Corr: (2, Spread.correlation),
    exp.RegrSlope: (2, Spread.slope),
    exp.RegrIntercept: (2, Spread.intercept),
    exp.RegrR2: (2, Spread.determination),
}
"""What each aggregate is, and of how many arguments."""

NAMES = (
    "VAR_POP",
    "VAR_SAMP",
    "VARIANCE",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "STDDEV",
    "COVAR_POP",
    "COVAR_SAMP",
    "CORR",
    "REGR_SLOPE",
    "REGR_INTERCEPT",
    "REGR_R2",
)
"""What they are called in SQL."""
