"""Emit exact per-unit aggregates, clamped to their intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpsql.analysis.intervals import KnownIntervals, derive_interval, derive_known_intervals
from dpsql.analysis.number_types import find_decimal_digits, find_scale, is_float
from dpsql.analysis.release_analysis import Lattice
from dpsql.errors import InternalError, QueryRejected
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Literal, Order, WindowCall
from dpsql.plan.functions import build_function_call
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitAggregate, PerUnitGroupBy, PerUnitWindows, Project, list_private_scans
from dpsql.plan.tables import UnitKind
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import MAX_INTEGER, Compiler
from dpsql.sql.compile.lattice import emit_lattice_point

_CALLED = re.compile(r"\b(COUNT|SUM|MIN|MAX|BOOL_AND|BOOL_OR)\(")
_BITS = 80
"""A real value at the far bound is at most 2^80 steps from zero."""


def emit_per_unit_aggregate(
    compiler: Compiler, item: PerUnitAggregate, named: Column, known: KnownIntervals, over: str = ""
) -> str:
    """Return the aggregate, in the type and interval of its column.

    `known` is what conditions say of the rows. With `over`, the rows of that window are aggregated, not those of a group.
    """
    entry, around = WITHIN[item.function], Interval()
    kind = None if item.argument is None else item.argument.type
    if entry.is_sum and item.argument is not None:
        found = derive_interval(item.argument, known)
        # A released NULL has no bounds; a value lies within those of its sum.
        around = found if found.is_bounded else named.facts.interval
        # A sum of scaled whole numbers is multiplied as a DOUBLE.
        kind = Type.DOUBLE if _find_step(item.argument, around) != 1 else kind
    template = _add_window(
        compiler.dialect.functions.emit_per_unit_aggregate(item.function, entry.sql, kind), over
    )
    if item.argument is None:
        text = template.format()
    elif entry.takes_rank:
        text = entry.emit_sql(compiler.emit_with_unsigned_zero(item.argument), rank=item.rank)
    elif entry.is_sum:
        text = _emit_point_sum(compiler, template, item.argument, around)
    else:
        text = template.format(*map(compiler.emit_with_unsigned_zero, item.arguments))
    return _emit_clamped_number(compiler, text, named) if named.type.numeric else text


def _add_window(template: str, over: str) -> str:
    """Return a template with the window after each aggregate that it calls.

    >>> _add_window("SUM(CAST({0} AS INT)) / COUNT({0})", " OVER w")
    'SUM(CAST({0} AS INT)) OVER w / COUNT({0}) OVER w'
    """
    window, parts, at = over.replace("{", "{{").replace("}", "}}"), list[str](), 0
    for found in _CALLED.finditer(template):
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(template[end], 0)
            end += 1
        parts += [template[at:end], window]
        at = end
    return "".join([*parts, template[at:]])


def emit_within_interval(compiler: Compiler, text: str, named: Column) -> str:
    """Return a value in the type of its column and, for numbers, clamped to its interval."""
    return (
        _emit_clamped_number(compiler, text, named)
        if named.type.numeric
        else compiler.emit_cast(text, named.type)
    )


def emit_public_aggregate(compiler: Compiler, item: PerUnitAggregate, named: Column) -> str:
    """Return the aggregate of public rows in the type of its column."""
    text = WITHIN[item.function].emit_sql(*map(compiler.emit_expression, item.arguments), rank=item.rank)
    return f"TRY_CAST({text} AS {named.type.value})"


def emit_with_unsigned_zero(compiler: Compiler, argument: Expr) -> str:
    """Return a value in which negative zero becomes zero."""
    text = compiler.emit_number_or_null(argument)
    return f"({text} + 0)" if argument.type is Type.DOUBLE else text


def _find_step(argument: Expr, around: Interval) -> Fraction:
    """Return the step of the points that whole numbers are rounded to; 1 for those that are added up as they are."""
    if argument.type is not Type.INTEGER or not around.is_bounded:
        return Fraction(1)
    return Lattice.from_interval(around, integral=True).step


def _emit_point_sum(compiler: Compiler, template: str, argument: Expr, around: Interval) -> str:
    """Return a sum of lattice points, or a function of one, as a DOUBLE; whole numbers unchanged.

    The points of decimals are whole numbers of their last digit, so that the sum is the DOUBLE nearest to the DECIMAL that the
    engine has, where both are below 2^50 of these.

    Claim: it is the same in whatever order the rows come, cannot fail, and of one value x it is x where |x| is no less
    than 2^-27 of the larger bound M, and within M 2^-80 (or 2^-1000) of it elsewhere.
    Why: points are whole numbers, at most 2^80 each, so the sum of 2^46 of them is a HUGEINT. A DOUBLE has 53 bits: where x is at
    least M 2^-27, the last of them is a step or more, so that x is a point.
    """
    if argument.type is Type.INTEGER:
        if not around.is_bounded:
            return template.format(compiler.emit_number_or_null(argument))
        lattice = Lattice.from_interval(around, integral=True)
        added = template.format(
            f"({emit_lattice_point(compiler, argument, lattice, compiler.emit_number_or_null(argument))})"
        )
        return added if lattice.step == 1 else f"({added}) * {compiler.emit_constant(float(lattice.step))}"
    decimal = find_decimal_digits(argument)
    lattice = Lattice.from_interval(
        around, integral=False, bits=_BITS, digits=None if decimal is None else decimal[1]
    )
    name, (low, high) = (
        compiler.emit_number_or_null(argument),
        (compiler.emit_constant(float(end)) for end in lattice.interval.ends),
    )
    held = f"CASE WHEN {name} < {low} THEN {low} WHEN {name} > {high} THEN {high} ELSE {name} END"
    # In two steps: a factor beyond the range of DOUBLE would be an infinity, and its inverse no power of two.
    up, down = split_power_of_two(-lattice.exponent)
    times = float(10**lattice.digits)
    added = template.format(compiler.dialect.points.emit_wide_lattice_point(held, (up * times, down)))
    scaled = compiler.dialect.points.emit_scaled_double(added, split_power_of_two(lattice.exponent))
    return f"({scaled}) / {compiler.emit_constant(times)}" if lattice.digits else scaled


def split_power_of_two(exponent: int) -> tuple[float, float]:
    """Return two numbers whose product is that power of two, each within the range of DOUBLE."""
    half = exponent // 2
    return math.ldexp(1.0, half), math.ldexp(1.0, exponent - half)


def _emit_clamped_number(compiler: Compiler, text: str, named: Column) -> str:
    clamped = cast = compiler.dialect.values.emit_aggregate_cast(text, named.type)
    low, high = named.facts.interval.low, named.facts.interval.high
    if low is not None:
        clamped = f"GREATEST({clamped}, {_emit_interval_end(compiler, named.type, low, math.floor)})"
    if high is not None:
        clamped = f"LEAST({clamped}, {_emit_interval_end(compiler, named.type, high, math.ceil)})"
    # The engine's LEAST and GREATEST skip NULL, so NULL must be kept explicitly.
    return cast if clamped == cast else f"CASE WHEN {text} IS NOT NULL THEN {clamped} END"


def _emit_interval_end(
    compiler: Compiler, kind: Type, end: Fraction, rounded: Callable[[Fraction], int]
) -> str:
    if kind is Type.INTEGER:
        return compiler.emit_constant(max(-MAX_INTEGER, min(MAX_INTEGER, rounded(end))))
    return compiler.emit_constant(float(end))


# Rewrite aggregates that select a unit's value by its rank over numbered rows, for engines that do not support them.


MOST_DIGITS = 6
"""Digits after the point of a quantile's rank: the number of a unit's rows times as many powers of ten is a BIGINT."""
_EXACT = 2**53
"""Up to this size each whole number is a DOUBLE."""
_PLACED, _GROUPS = "#placed", "#groups"
_NONE = Literal(None, Type.NULL)


def rewrite_placed_aggregates(source: PerUnitGroupBy, placed: frozenset[str]) -> Project | None:
    """Return the groups with the aggregates in `placed` computed from numbered rows; None if there are none.

    Claim: the value is the one of the aggregate. It holds no list of a group's values, however many rows a unit has.
    Why: ROW_NUMBER gives the values of a group, which are counted, the places 1, 2, … in their order, NULL being last. A quantile q
    is the value at the place n q, rounded up, or at 1; the median is the middle of the values at the places (n + 1) / 2 and n / 2 +
    1, rounded down, which are one where n is odd. Other quantiles between two values are at 1 + (n - 1) q, of whole numbers and for
    q = k / 2^j where all products and sums have at most 53 bits: then no order of rounding, and no fused multiplication, makes
    another number. What is best by y is at the place 1 where the rows without a value of either are last. Each place has one row,
    so that MIN over it is its value.
    Source: Hyndman, Fan 1996, "Sample quantiles in statistical packages", definitions 1, 2 and 7; IEEE 754-2019, section 5.4.1.

    Raises QueryRejected, with code `engine`, for what numbered rows cannot give.
    """
    if not any(item.function in placed for item in source.aggregates):
        return None
    if any(scan.unit.kind is UnitKind.ROW for scan in list_private_scans(source)):
        raise _make_refusal_error("quantiles of a unit's rows where each row is a unit")
    known = derive_known_intervals(source.input)
    read = [*source.keys, *(part for item in source.aggregates for part in item.arguments)]
    items = tuple(dict.fromkeys(read))
    named = {
        item: Column(
            _PLACED,
            f"c{place}",
            ColumnInfo(
                item.type,
                "",
                derive_interval(item, known),
                scale=find_scale(item),
                decimal=find_decimal_digits(item),
                float32=is_float(item),
            ),
        )
        for place, item in enumerate(items)
    }
    keys = tuple(named[key] for key in source.keys)
    made = _PlacedAggregates(keys, [], [])
    values = [
        made.build_value(item, tuple(named[part] for part in item.arguments), column, item.function in placed)
        for item, column in zip(source.aggregates, source.columns[len(keys) :], strict=True)
    ]
    windows = PerUnitWindows(
        source.input, _PLACED, items, tuple(made.windows), (*named.values(), *made.iterate_window_columns())
    )
    listed = tuple(
        Column(_GROUPS, f"k{place}", column.facts) for place, column in enumerate(source.columns[: len(keys)])
    )
    groups = PerUnitGroupBy(
        windows,
        _GROUPS,
        keys,
        tuple(item for item, _ in made.aggregates),
        (*listed, *(column for _, column in made.aggregates)),
    )
    return Project(groups, source.alias, (*listed, *values), source.columns)


@dataclass(frozen=True)
class _PlacedAggregates:
    """The windows that number and count the rows, and the aggregates computed from these."""

    keys: tuple[Column, ...]
    windows: list[WindowCall]
    aggregates: list[tuple[PerUnitAggregate, Column]]

    def iterate_window_columns(self) -> Iterator[Column]:
        """Yield the columns of the windows."""
        for place, window in enumerate(self.windows):
            yield Column(_PLACED, f"w{place}", ColumnInfo(window.type, "", derive_interval(window)))

    def build_value(
        self, item: PerUnitAggregate, given: tuple[Column, ...], column: Column, placed: bool
    ) -> Expr:
        """Build the value of an aggregate over the columns `given`, from the columns of its groups."""
        if not placed:
            first, by = (*given, None, None)[:2]
            return self._add_aggregate(PerUnitAggregate(item.function, first, by, item.rank), column.facts)
        value = given[0]
        if item.order_by is not None:
            return self._add_best_value(value, given[1], column.facts, highest=item.function == "arg_max")
        place = self._add_window("row_number", order=(Order(value, descending=False, nulls_first=False),))
        count = self._add_window("count", value)
        rank = Fraction(1, 2) if item.rank is None else item.rank
        if item.function == "quantile_disc":
            at = build_call("eq", place, build_quantile_place(count, rank))
            return self._add_aggregate(
                PerUnitAggregate("min", build_call("case", at, value, _NONE)), column.facts
            )
        if rank in (0, 1):
            return build_call("cast_double", self._add_extreme("max" if rank else "min", value))
        if rank == Fraction(1, 2):
            return self._build_median(value, place, count)
        return self._build_interpolation(value, place, count, rank)

    def _build_median(self, value: Column, place: Column, count: Column) -> Expr:
        ends = build_call(
            "or",
            build_call(
                "eq",
                place,
                build_call("quotient_by", build_call("add", count, build_integer(1)), build_integer(2)),
            ),
            build_call(
                "eq",
                place,
                build_call("add", build_call("quotient_by", count, build_integer(2)), build_integer(1)),
            ),
        )
        middle = build_call("case", ends, value, _NONE)
        low, high = (
            build_call("cast_double", self._add_extreme(name, middle, value.facts)) for name in ("min", "max")
        )
        half = _build_double(Fraction(1, 2))
        between = build_call("add", build_call("multiply", low, half), build_call("multiply", high, half))
        # Halves of the least numbers are rounded.
        return build_call("least", build_call("greatest", between, low), high)

    def _build_interpolation(self, value: Column, place: Column, count: Column, rank: Fraction) -> Expr:
        """Build the two values around 1 + (n - 1) q, weighted by how near they are; with one alone, the other's weight is 0."""
        around, parts = value.facts.interval, rank.denominator
        dyadic = parts & (parts - 1) == 0
        if not (
            value.type is Type.INTEGER and dyadic and around.is_bounded and around.magnitude * parts <= _EXACT
        ):
            raise _make_refusal_error(
                "quantiles within a unit that interpolate between two values, except for listed shares"
            )
        before = build_call(
            "multiply", build_call("subtract", count, build_integer(1)), build_integer(rank.numerator)
        )
        first = build_call("quotient_by", before, build_integer(parts))
        last = build_call(
            "quotient_by", build_call("add", before, build_integer(parts - 1)), build_integer(parts)
        )
        ends = build_call(
            "or",
            *(build_call("eq", place, build_call("add", end, build_integer(1))) for end in (first, last)),
        )
        low, high = (
            build_call(
                "cast_double", self._add_extreme(name, build_call("case", ends, value, _NONE), value.facts)
            )
            for name in ("min", "max")
        )
        above = build_call("remainder_by", before, build_integer(parts))
        weight = build_call(
            "multiply",
            build_call("cast_double", self._add_extreme("max", above)),
            _build_double(Fraction(1, parts)),
        )
        rest = build_call("subtract", _build_double(Fraction(1)), weight)
        return build_call("add", build_call("multiply", low, rest), build_call("multiply", high, weight))

    def _add_extreme(self, name: str, value: Expr, facts: ColumnInfo | None = None) -> Column:
        """Add MIN or MAX over the group, with these facts or those of whole numbers."""
        known = facts or (
            value.facts if isinstance(value, Column) else ColumnInfo(value.type, "", derive_interval(value))
        )
        return self._add_aggregate(PerUnitAggregate(name, value), known)

    def _add_best_value(self, value: Column, by: Column, facts: ColumnInfo, *, highest: bool) -> Expr:
        missing = build_call("or", build_call("is_null", value), build_call("is_null", by))
        order = (
            Order(missing, descending=False, nulls_first=False),
            *(Order(part, descending=highest, nulls_first=False) for part in (by, value)),
        )
        first = build_call("eq", self._add_window("row_number", order=order), build_integer(1))
        best = build_call("and", first, build_call("not", missing))
        return self._add_aggregate(PerUnitAggregate("min", build_call("case", best, value, _NONE)), facts)

    def _add_window(self, function: str, *arguments: Column, order: tuple[Order, ...] = ()) -> Column:
        window = WindowCall(function, arguments, self.keys, order, None, False, Type.INTEGER)
        if window not in self.windows:
            self.windows.append(window)
        return list(self.iterate_window_columns())[self.windows.index(window)]

    def _add_aggregate(self, item: PerUnitAggregate, facts: ColumnInfo) -> Column:
        column = Column(_GROUPS, f"a{len(self.aggregates)}", facts)
        self.aggregates.append((item, column))
        return column


def build_quantile_place(count: Column, rank: Fraction) -> Expr:
    """Build the place of a quantile among `count` values: `rank` times their number, rounded up, and at least 1."""
    share = Fraction(repr(float(rank)))
    if (share * 10**MOST_DIGITS).denominator != 1:
        raise _make_refusal_error(f"quantiles within a unit of more than {MOST_DIGITS} digits")
    if not share:
        return build_integer(1)
    times = build_call("multiply", count, build_integer(share.numerator))
    above = build_call("add", times, build_integer(share.denominator - 1))
    return (
        above
        if share.denominator == 1
        else build_call("quotient_by", above, build_integer(share.denominator))
    )


def build_integer(value: int) -> Literal:
    """Build a whole number."""
    return Literal(value, Type.INTEGER)


def _build_double(value: Fraction) -> Literal:
    return Literal(float(value), Type.DOUBLE)


def build_call(name: str, *arguments: Expr) -> Call:
    """Build the call of an entry of the function registry, which takes the arguments."""
    found = build_function_call(name, *arguments)
    if found is None:
        raise InternalError(f"{name} is not called with these arguments")
    return found


def _make_refusal_error(what: str) -> QueryRejected:
    return QueryRejected(
        f"this engine does not support {what}",
        code="engine",
        hint=(
            "write QUANTILE_DISC or MEDIAN, or use DuckDB; the reference of engines lists the "
            "supported quantiles"
        ),
    )
