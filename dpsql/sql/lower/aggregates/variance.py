"""Variances, covariances, correlations and regressions, as arithmetic over released means.

Claim: they are as private as the means and counts that they are computed from.
Why: x and y are shifted by the middles of their intervals; then the means of x, y, x², y² and xy are released, and the number
of rows. The rest is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.

Over the rows of one unit, and over released and public rows, they are computed from exact means, to some 15 digits of the
square of the bounds' width, or of the greatest value where there are no bounds. Bounds of the argument give bounds of the
variance.

For DISTINCT values, the sum of squares is added up separately above and below the middle: on each side the squares of
different values differ, so that each value counts once.

A variance does not change where its argument is shifted, and the square of a value from an interval around zero has the
smallest interval, hence the least noise. A noisy variance below zero is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.analysis.intervals import MAX_MAGNITUDE, KnownIntervals, derive_interval, derive_known_intervals
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.nodes import is_private
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    GroupedRows,
    ReleasedGroups,
    find_distinct_argument,
    refuse_distinct,
)
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.dialect import ADDED_NODES

_ZERO, _ONE = Literal(0.0, Type.DOUBLE), Literal(1, Type.INTEGER)
_NULL = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class VarianceFormula:
    """A formula over the rows in which all of `arguments` have a value; `add_statistic` adds an aggregate."""

    node: exp.Expr
    scalars: Scalars
    add_statistic: Callable[[str, Expr], Expr]
    known: KnownIntervals
    arguments: tuple[Expr, ...]
    exact: bool = False
    distinct: bool = False

    def limit_to_interval(self, found: Expr, low: Fraction | None, high: Fraction) -> Expr:
        """Clamp an exact value to its interval, which only rounding leaves; `low` is None for -`high`."""
        if not self.exact:
            return found
        ends = (Literal(float(end), Type.DOUBLE) for end in (-high if low is None else low, high))
        least, greatest = ends
        held = self._build_call("least", self._build_call("greatest", found, least), greatest)
        return self._build_call("case", self._build_call("is_null", found), _NULL, held)

    def compute_width_product(self, *places: int) -> Fraction | None:
        """Compute the product of the widths of some arguments' intervals; None where one has no bounds."""
        product = Fraction(1)
        for place in places:
            around = derive_interval(self.arguments[place], self.known)
            if not around.is_within(MAX_MAGNITUDE):
                return None
            low, high = around.ends
            product *= high - low
        return product

    def build_variance(self, place: int = 0) -> Expr:
        """Build the mean square less the square of the mean."""
        found = self._build_distinct_variance() if self.distinct else self.build_covariance(place, place)
        return self._build_call("case", self._build_call("lt", found, _ZERO), _ZERO, found)

    def _build_distinct_variance(self) -> Expr:
        """Build the mean square of distinct values less the square of their mean."""
        about, number = self._build_centered_argument(0), self._build_count()
        halves = (
            self._build_call(
                "case",
                self._build_call(name, about, Literal(0, Type.INTEGER)),
                self._build_call("multiply", about, about),
                _NULL,
            )
            for name in ("ge", "lt")
        )
        squares = (
            self._build_call("coalesce", self.add_statistic("sum_distinct", half), Literal(0, half.type))
            for half in halves
        )
        mean = self._build_call("divide", self.add_statistic("sum_distinct", about), number)
        square = self._build_call("divide", self._build_call("add", *squares), number)
        return self._build_call("subtract", square, self._build_call("multiply", mean, mean))

    def _build_count(self) -> Expr:
        """Return the number of rows, or of distinct values."""
        return self.add_statistic(
            "count_distinct" if self.distinct else "count",
            self._restrict_to_complete_rows(self.arguments[0], 0),
        )

    def build_covariance(self, first: int = 0, second: int = 1) -> Expr:
        """Build the mean product less the product of the means."""
        product = self._build_call(
            "multiply", self._build_centered_argument(first), self._build_centered_argument(second)
        )
        if first == second:
            product = self._restrict_to_complete_rows(product, first)
        means = (
            self._build_mean(self._restrict_to_complete_rows(self._build_centered_argument(place), place))
            for place in (first, second)
        )
        return self._build_call("subtract", self._build_mean(product), self._build_call("multiply", *means))

    def scale_to_sample(self, found: Expr) -> Expr:
        """Return a variance or covariance as that of all from which the rows are a sample; NULL of a single one."""
        rows = self._build_count()
        fewer = self._build_call("subtract", rows, _ONE)
        scaled = self._build_call("divide", self._build_call("multiply", found, rows), fewer)
        return self._build_call("case", self._build_call("gt", rows, _ONE), scaled, _NULL)

    def build_root(self, found: Expr) -> Expr:
        """Build the square root of a value that is not negative."""
        return self._build_call("sqrt", found)

    def build_correlation(self) -> Expr:
        """Build the correlation, between -1 and 1, or NULL if one of the two does not vary."""
        both = self._build_call("multiply", self.build_variance(0), self.build_variance(1))
        found = self._build_call("divide", self.build_covariance(), self.build_root(both))
        low, high = Literal(-1.0, Type.DOUBLE), Literal(1.0, Type.DOUBLE)
        above = self._build_call("case", self._build_call("gt", found, high), high, found)
        return self._build_call("case", self._build_call("lt", found, low), low, above)

    def build_slope(self) -> Expr:
        """Return how much y changes with x, y being the first of the two."""
        return self._build_call("divide", self.build_covariance(), self.build_variance(1))

    def build_intercept(self) -> Expr:
        """Build the value of the regression line at x = 0."""
        means = (
            self._build_mean(self._restrict_to_complete_rows(self._build_centered_argument(place), place))
            for place in (0, 1)
        )
        y, x = (
            self._build_call("add", mean, self._compute_midpoint(place)) for place, mean in enumerate(means)
        )
        return self._build_call("subtract", y, self._build_call("multiply", self.build_slope(), x))

    def build_determination(self) -> Expr:
        """Build the square of the correlation."""
        found = self.build_correlation()
        return self._build_call("multiply", found, found)

    def build_mean_of(self, place: int) -> Expr:
        """Build the mean of one of two arguments."""
        mean = self._build_mean(self._restrict_to_complete_rows(self._build_centered_argument(place), place))
        return self._build_call("add", mean, self._compute_midpoint(place))

    def build_total(self, found: Expr) -> Expr:
        """Build the number of rows times a variance or covariance, NULL without rows."""
        rows = self._build_count()
        there = self._build_call("gt", rows, Literal(0, Type.INTEGER))
        return self._build_call("case", there, self._build_call("multiply", rows, found), _NULL)

    def build_standard_error(self) -> Expr:
        """Build the standard deviation over the square root of the number of rows."""
        rows = self._build_count()
        share = self._build_call("divide", self.build_variance(), rows)
        there = self._build_call("gt", rows, Literal(0, Type.INTEGER))
        return self._build_call("case", there, self.build_root(share), _NULL)

    def build_skewness(self) -> Expr:
        """Build the third standardized moment that is estimated for all from a sample; NULL of fewer than three rows."""
        one, two, three = self._build_raw_moments(3)
        cube = self._build_product(one, one, one)
        third = self._add_up((1, three), (-3, self._build_product(one, two)), (2, cube))
        found = self._standardize(
            third, lambda variance: self._build_product(variance, self.build_root(variance))
        )
        rows = self._build_count()
        before, second = (self._build_call("subtract", rows, Literal(n, Type.INTEGER)) for n in (1, 2))
        factor = self._build_call("divide", self.build_root(self._build_product(rows, before)), second)
        return self._require_rows(rows, 2, self._build_product(factor, found))

    def build_kurtosis(self, *, sample: bool) -> Expr:
        """Build the fourth standardized moment less 3; for a sample, the one estimated for all, NULL of fewer than four rows."""
        one, two, three, four = self._build_raw_moments(4)
        square = self._build_product(one, one)
        fourth = self._add_up(
            (1, four),
            (-4, self._build_product(one, three)),
            (6, self._build_product(square, two)),
            (-3, self._build_product(square, square)),
        )
        found = self._standardize(fourth, lambda variance: self._build_product(variance, variance))
        if not sample:
            return self._build_call("subtract", found, Literal(3, Type.INTEGER))
        rows = self._build_count()
        after = self._build_call("add", rows, _ONE)
        before, second, third = (
            self._build_call("subtract", rows, Literal(n, Type.INTEGER)) for n in (1, 2, 3)
        )
        factor = self._build_call("divide", before, self._build_product(second, third))
        excess = self._build_call(
            "subtract",
            self._build_product(after, found),
            self._build_product(Literal(3, Type.INTEGER), before),
        )
        return self._require_rows(rows, 3, self._build_product(factor, excess))

    def _build_raw_moments(self, number: int) -> list[Expr]:
        """Build the means of the powers of the argument less the middle of its interval."""
        about = self._build_centered_argument(0)
        square = self._build_product(about, about)
        powers = (about, square, self._build_product(square, about), self._build_product(square, square))
        return [self._build_mean(power) for power in powers[:number]]

    def _standardize(self, moment: Expr, scale: Callable[[Expr], Expr]) -> Expr:
        """Build a moment over a power of the variance; NULL where the values do not vary."""
        variance = self.build_variance()
        there = self._build_call("gt", variance, _ZERO)
        return self._build_call("case", there, self._build_call("divide", moment, scale(variance)), _NULL)

    def _require_rows(self, rows: Expr, fewer: int, found: Expr) -> Expr:
        """Return a value, NULL of so few rows."""
        there = self._build_call("gt", rows, Literal(fewer, Type.INTEGER))
        return self._build_call("case", there, found, _NULL)

    def _build_product(self, *factors: Expr) -> Expr:
        first, *others = factors
        for factor in others:
            first = self._build_call("multiply", first, factor)
        return first

    def _add_up(self, *terms: tuple[int, Expr]) -> Expr:
        """Build the sum of products of numbers and values."""
        found: Expr | None = None
        for number, value in terms:
            term = value if number == 1 else self._build_product(Literal(number, Type.INTEGER), value)
            found = term if found is None else self._build_call("add", found, term)
        return _ZERO if found is None else found

    def _build_centered_argument(self, place: int) -> Expr:
        """Build an argument less the middle of its interval."""
        middle = self._compute_midpoint(place)
        return (
            self.arguments[place]
            if middle == _ZERO
            else self._build_call("subtract", self.arguments[place], middle)
        )

    def _restrict_to_complete_rows(self, expr: Expr, place: int) -> Expr:
        """Return an expression of one argument that is NULL if the other argument is."""
        for other in (*self.arguments[:place], *self.arguments[place + 1 :]):
            expr = self._build_call("case", self._build_call("is_null", other), _NULL, expr)
        return expr

    def _compute_midpoint(self, place: int) -> Expr:
        around = derive_interval(self.arguments[place], self.known)
        if not around.is_bounded:
            return _ZERO
        middle = sum(around.ends) / 2
        whole = self.arguments[place].type is Type.INTEGER
        return Literal(math.floor(middle), Type.INTEGER) if whole else Literal(float(middle), Type.DOUBLE)

    def _build_mean(self, expr: Expr) -> Expr:
        return self.add_statistic("avg", expr)

    def _build_call(self, name: str, *arguments: Expr) -> Expr:
        return self.scalars.build_call(self.node, name, *arguments)


_OF_ALL_ROWS = (exp.Skewness, exp.Kurtosis, ADDED_NODES["KURTOSIS_POP"], ADDED_NODES["SEM"])
"""Aggregates of one argument that do not take DISTINCT."""


def _lower_arguments(over: GroupedRows, node: exp.AggFunc, width: int) -> tuple[tuple[Expr, ...], bool]:
    """Lower the numeric arguments of a call, and return whether it has DISTINCT."""
    values = find_distinct_argument(over, node) if width == 1 and type(node) not in _OF_ALL_ROWS else None
    if values is not None:
        _check_numbers(over, node, (values,), width)
        return (values,), True
    nodes = [part for part in over.source.take_arguments(node, "this", "expression") if part is not None]
    if any(type(part) is exp.Distinct for part in nodes):
        refuse_distinct(over.source, node)
    of = tuple(map(over.lower_argument, nodes))
    _check_numbers(over, node, of, width)
    return of, False


def _check_numbers(over: GroupedRows, node: exp.AggFunc, of: tuple[Expr, ...], width: int) -> None:
    if len(of) != width or not all(expr.type.numeric for expr in of):
        given = ", ".join(str(expr.type) for expr in of)
        name, _, _ = node.sql(dialect="duckdb").partition("(")
        over.source.refuse(
            node, "type", f"{name} takes {'x' if width == 1 else 'y, x'}: numbers, not ({given})"
        )


def _make_across_lowering(
    width: int, build: Callable[[VarianceFormula], Expr]
) -> Callable[[ReleasedGroups, exp.AggFunc], Expr]:
    """Return the lowering of a formula over released means."""

    def lower_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
        (of, distinct), known = _lower_arguments(over, node, width), derive_known_intervals(over.input)
        released = partial(over.add_statistic, node)
        return build(VarianceFormula(node, over.scope.scalars, released, known, of, distinct=distinct))

    return lower_across


def _make_within_lowering(
    width: int, build: Callable[[VarianceFormula], Expr], bound_result: _ResultBound
) -> Callable[[ExactGroups, exp.AggFunc], Expr]:
    """Return the lowering of a formula over exact means, within the bounds that follow from those of the arguments."""

    def lower_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
        (of, distinct), known = _lower_arguments(over, node, width), derive_known_intervals(over.input)
        formula = VarianceFormula(
            node,
            over.scope.scalars,
            partial(over.add_exact_aggregate, node),
            known,
            of,
            is_private(over.input),
            distinct,
        )
        found, bounds = build(formula), bound_result(formula)
        return found if bounds is None else formula.limit_to_interval(found, *bounds)

    return lower_within


_ResultBound = Callable[[VarianceFormula], "tuple[Fraction | None, Fraction] | None"]
"""The interval of the result, as `VarianceFormula.limit_to_interval` takes it; None if there is none."""


def _make_share_bound(share: Fraction, *, root: bool = False, signed: bool = False) -> _ResultBound:
    """Build the rule that bounds a result by a share of the squared width, or of the product of two widths; with `root`, of the width."""

    def bound_result(of: VarianceFormula) -> tuple[Fraction | None, Fraction] | None:
        width = of.compute_width_product(*((0,) if root else (0, len(of.arguments) - 1)))
        return None if width is None else (None if signed else Fraction(0), width * share)

    return bound_result


def _bound_by_nothing(_: VarianceFormula) -> None:
    return None


def _bound_by_signed_one(_: VarianceFormula) -> tuple[None, Fraction]:
    return None, Fraction(1)


def _bound_by_one(_: VarianceFormula) -> tuple[Fraction, Fraction]:
    return Fraction(0), Fraction(1)


def _define_univariate(
    names: tuple[str, ...],
    nodes: tuple[type[exp.Expr], ...],
    says: str,
    build: Callable[[VarianceFormula], Expr],
    bound_result: _ResultBound,
    *,
    distinct: bool = True,
) -> AggregateCall:
    examples = (
        f"SELECT plan, {names[0]}(DISTINCT age) FROM visits GROUP BY plan",
        f"SELECT AVG(v) FROM (SELECT {names[0]}(DISTINCT cost) AS v FROM visits GROUP BY patient_id)",
    )
    return AggregateCall(
        forms=(CallForm("SPREAD", names),),
        nodes=nodes,
        signature=f"{names[0]}(x)",
        says=says,
        distinct=distinct,
        across=_make_across_lowering(1, build),
        within=_make_within_lowering(1, build, bound_result),
        accepted=(
            *(f"SELECT plan, {name}(cost) FROM visits GROUP BY plan" for name in names),
            f"SELECT {names[0]}(age) FILTER (WHERE cost > 10) FROM visits",
            f"SELECT COUNT(v) FROM (SELECT {names[0]}(age) AS v FROM visits GROUP BY patient_id)",
            *(examples if distinct else ()),
        ),
        refused={
            f"SELECT {names[0]}(DISTINCT weight) FROM visits": "unbounded" if distinct else "distinct",
            f"SELECT {names[0]}(note) FROM visits": "type",
        },
    )


def _define_bivariate(
    name: str,
    node: type[exp.Expr],
    says: str,
    build: Callable[[VarianceFormula], Expr],
    bound_result: _ResultBound,
) -> AggregateCall:
    return AggregateCall(
        forms=(CallForm("OF_TWO", (name,), "({x}, {y})"),),
        nodes=(node,),
        signature=f"{name}(y, x)",
        says=says,
        arity=(2,),
        across=_make_across_lowering(2, build),
        within=_make_within_lowering(2, build, bound_result),
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
    _define_univariate(
        ("VAR_POP",),
        (exp.VariancePop,),
        "The mean squared distance from the mean.",
        VarianceFormula.build_variance,
        _make_share_bound(Fraction(1, 4)),
    ),
    _define_univariate(
        ("VAR_SAMP", "VARIANCE"),
        (exp.Variance,),
        "The variance of the population, estimated from a sample.",
        lambda of: of.scale_to_sample(of.build_variance()),
        _make_share_bound(Fraction(1, 2)),
    ),
    _define_univariate(
        ("STDDEV_POP",),
        (exp.StddevPop,),
        "The square root of VAR_POP.",
        lambda of: of.build_root(of.build_variance()),
        _make_share_bound(Fraction(1, 2), root=True),
    ),
    _define_univariate(
        ("STDDEV_SAMP", "STDDEV"),
        (exp.StddevSamp, exp.Stddev),
        "The square root of VAR_SAMP.",
        lambda of: of.build_root(of.scale_to_sample(of.build_variance())),
        _make_share_bound(Fraction(3, 4), root=True),
    ),
    _define_bivariate(
        "COVAR_POP",
        exp.CovarPop,
        "The mean product of the distances from the two means.",
        VarianceFormula.build_covariance,
        _make_share_bound(Fraction(1, 4), signed=True),
    ),
    _define_bivariate(
        "COVAR_SAMP",
        exp.CovarSamp,
        "The covariance of the population, estimated from a sample.",
        lambda of: of.scale_to_sample(of.build_covariance()),
        _make_share_bound(Fraction(1, 2), signed=True),
    ),
    _define_bivariate(
        "CORR",
        exp.Corr,
        "The correlation, from -1 to 1.",
        VarianceFormula.build_correlation,
        _bound_by_signed_one,
    ),
    _define_bivariate(
        "REGR_SLOPE",
        exp.RegrSlope,
        "The slope of the regression line of y on x.",
        VarianceFormula.build_slope,
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_INTERCEPT",
        exp.RegrIntercept,
        "The intercept of the regression line of y on x.",
        VarianceFormula.build_intercept,
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_R2",
        exp.RegrR2,
        "The squared correlation.",
        VarianceFormula.build_determination,
        _bound_by_one,
    ),
    _define_bivariate(
        "REGR_AVGX",
        exp.RegrAvgx,
        "The mean of x where y and x have values.",
        lambda of: of.build_mean_of(1),
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_AVGY",
        exp.RegrAvgy,
        "The mean of y where y and x have values.",
        lambda of: of.build_mean_of(0),
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_SXX",
        exp.RegrSxx,
        "The number of pairs times the variance of x.",
        lambda of: of.build_total(of.build_variance(1)),
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_SYY",
        exp.RegrSyy,
        "The number of pairs times the variance of y.",
        lambda of: of.build_total(of.build_variance(0)),
        _bound_by_nothing,
    ),
    _define_bivariate(
        "REGR_SXY",
        exp.RegrSxy,
        "The number of pairs times the covariance.",
        lambda of: of.build_total(of.build_covariance()),
        _bound_by_nothing,
    ),
    _define_univariate(
        ("SEM",),
        (ADDED_NODES["SEM"],),
        "The standard error of the mean: STDDEV_POP over the square root of the number of values.",
        VarianceFormula.build_standard_error,
        _bound_by_nothing,
        distinct=False,
    ),
    _define_univariate(
        ("SKEWNESS",),
        (exp.Skewness,),
        "The skewness of the population, estimated from a sample; NULL of fewer than three values.",
        VarianceFormula.build_skewness,
        _bound_by_nothing,
        distinct=False,
    ),
    _define_univariate(
        ("KURTOSIS",),
        (exp.Kurtosis,),
        "The excess kurtosis of the population, estimated from a sample; NULL of fewer than four values.",
        partial(VarianceFormula.build_kurtosis, sample=True),
        _bound_by_nothing,
        distinct=False,
    ),
    _define_univariate(
        ("KURTOSIS_POP",),
        (ADDED_NODES["KURTOSIS_POP"],),
        "The fourth standardized moment less 3.",
        partial(VarianceFormula.build_kurtosis, sample=False),
        _bound_by_nothing,
        distinct=False,
    ),
)
