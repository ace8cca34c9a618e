"""Aggregates that choose a value of a unit's rows by its place, for engines that are not asked for them: of numbered rows.

Claim: the value is the one of the aggregate. It holds no list of a group's values, however many rows a unit has.
Why: ROW_NUMBER gives the values of a group, which are counted, the places 1, 2, … in their order, NULL being last. A
quantile q is the value at the place n q, rounded up, or at 1; the median is the middle of the values at the places
(n + 1) / 2 and n / 2 + 1, rounded down, which are one where n is odd. Other quantiles between two values are at 1 + (n - 1) q,
of whole numbers and for q = k / 2^j where all products and sums have at most 53 bits: then no order of rounding, and no fused
multiplication, makes another number. What is best by y is at the place 1 where the rows without a
value of either are last. Each place has one row, so that MIN over it is its value.
Source: Hyndman, Fan 1996, "Sample quantiles in statistical packages", definitions 1, 2 and 7; IEEE 754-2019, section 5.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpsql.analysis.decimals import decimal_digits, scale
from dpsql.analysis.floats import is_float
from dpsql.analysis.intervals import conditions, interval
from dpsql.errors import InternalError, QueryRejected
from dpsql.functions import call
from dpsql.plan.expr import Call, Column, Expr, Facts, Literal, Order, Windowed
from dpsql.plan.nodes import PerUnitAggregate, PerUnitGroupBy, PerUnitWindows, Project, private_scans
from dpsql.plan.tables import UnitKind
from dpsql.plan.types import Type

MOST_DIGITS = 6
"""Digits after the point of a quantile's rank: the number of a unit's rows times as many powers of ten is a BIGINT."""
_EXACT = 2**53
"""Up to this size each whole number is a DOUBLE."""
_PLACED, _GROUPS = "#placed", "#groups"
_NONE = Literal(None, Type.NULL)


def by_places(source: PerUnitGroupBy, placed: frozenset[str]) -> Project | None:
    """The groups with their aggregates, where those of `placed` are of numbered rows; None where there are none of these.

    Raises QueryRejected, with code `engine`, for what numbered rows cannot give.
    """
    if not any(item.function in placed for item in source.aggregates):
        return None
    if any(scan.unit.kind is UnitKind.ROW for scan in private_scans(source)):
        raise _refused("quantiles of a unit's rows where each row is a unit")
    known = conditions(source.input)
    read = [*source.keys, *(part for item in source.aggregates for part in item.arguments)]
    items = tuple(dict.fromkeys(read))
    named = {
        item: Column(
            _PLACED,
            f"c{place}",
            Facts(
                item.type,
                "",
                interval(item, known),
                scale=scale(item),
                decimal=decimal_digits(item),
                float32=is_float(item),
            ),
        )
        for place, item in enumerate(items)
    }
    keys = tuple(named[key] for key in source.keys)
    made = _Made(keys, [], [])
    values = [
        made.value(item, tuple(named[part] for part in item.arguments), column, item.function in placed)
        for item, column in zip(source.aggregates, source.columns[len(keys) :], strict=True)
    ]
    windows = PerUnitWindows(
        source.input, _PLACED, items, tuple(made.windows), (*named.values(), *made.numbered())
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
class _Made:
    """The windows that number and count the rows, and the aggregates that are taken of these."""

    keys: tuple[Column, ...]
    windows: list[Windowed]
    aggregates: list[tuple[PerUnitAggregate, Column]]

    def numbered(self) -> Iterator[Column]:
        """The columns of the windows."""
        for place, window in enumerate(self.windows):
            yield Column(_PLACED, f"w{place}", Facts(window.type, "", interval(window)))

    def value(self, item: PerUnitAggregate, given: tuple[Column, ...], column: Column, placed: bool) -> Expr:
        """The value of an aggregate over the columns `given`, of the groups' columns."""
        if not placed:
            first, by = (*given, None, None)[:2]
            return self._aggregate(PerUnitAggregate(item.function, first, by, item.rank), column.facts)
        value = given[0]
        if item.order_by is not None:
            return self._best(value, given[1], column.facts, highest=item.function == "arg_max")
        place = self._window("row_number", order=(Order(value, descending=False, nulls_first=False),))
        count = self._window("count", value)
        rank = Fraction(1, 2) if item.rank is None else item.rank
        if item.function == "quantile_disc":
            at = called("eq", place, place_of(count, rank))
            return self._aggregate(PerUnitAggregate("min", called("case", at, value, _NONE)), column.facts)
        if rank in (0, 1):
            return called("cast_double", self._extreme("max" if rank else "min", value))
        if rank == Fraction(1, 2):
            return self._median(value, place, count)
        return self._between(value, place, count, rank)

    def _median(self, value: Column, place: Column, count: Column) -> Expr:
        ends = called(
            "or",
            called("eq", place, called("quotient_by", called("add", count, whole(1)), whole(2))),
            called("eq", place, called("add", called("quotient_by", count, whole(2)), whole(1))),
        )
        middle = called("case", ends, value, _NONE)
        low, high = (
            called("cast_double", self._extreme(name, middle, value.facts)) for name in ("min", "max")
        )
        half = _real(Fraction(1, 2))
        between = called("add", called("multiply", low, half), called("multiply", high, half))
        # Halves of the least numbers are rounded.
        return called("least", called("greatest", between, low), high)

    def _between(self, value: Column, place: Column, count: Column, rank: Fraction) -> Expr:
        """The two values around 1 + (n - 1) q, weighted by how near they are; with one alone, the other's weight is 0."""
        around, parts = value.facts.interval, rank.denominator
        dyadic = parts & (parts - 1) == 0
        if not (
            value.type is Type.INTEGER and dyadic and around.bounded and around.magnitude * parts <= _EXACT
        ):
            raise _refused("quantiles within a unit that lie between two values, but for those listed")
        before = called("multiply", called("subtract", count, whole(1)), whole(rank.numerator))
        first = called("quotient_by", before, whole(parts))
        last = called("quotient_by", called("add", before, whole(parts - 1)), whole(parts))
        ends = called("or", *(called("eq", place, called("add", end, whole(1))) for end in (first, last)))
        low, high = (
            called("cast_double", self._extreme(name, called("case", ends, value, _NONE), value.facts))
            for name in ("min", "max")
        )
        above = called("remainder_by", before, whole(parts))
        weight = called(
            "multiply",
            called("cast_double", self._extreme("max", above)),
            _real(Fraction(1, parts)),
        )
        rest = called("subtract", _real(Fraction(1)), weight)
        return called("add", called("multiply", low, rest), called("multiply", high, weight))

    def _extreme(self, name: str, value: Expr, facts: Facts | None = None) -> Column:
        """MIN or MAX over the group of values whose facts are those given, or those of whole numbers."""
        known = facts or (
            value.facts if isinstance(value, Column) else Facts(value.type, "", interval(value))
        )
        return self._aggregate(PerUnitAggregate(name, value), known)

    def _best(self, value: Column, by: Column, facts: Facts, *, highest: bool) -> Expr:
        missing = called("or", called("is_null", value), called("is_null", by))
        order = (
            Order(missing, descending=False, nulls_first=False),
            *(Order(part, descending=highest, nulls_first=False) for part in (by, value)),
        )
        first = called("eq", self._window("row_number", order=order), whole(1))
        best = called("and", first, called("not", missing))
        return self._aggregate(PerUnitAggregate("min", called("case", best, value, _NONE)), facts)

    def _window(self, function: str, *arguments: Column, order: tuple[Order, ...] = ()) -> Column:
        window = Windowed(function, arguments, self.keys, order, None, False, Type.INTEGER)
        if window not in self.windows:
            self.windows.append(window)
        return list(self.numbered())[self.windows.index(window)]

    def _aggregate(self, item: PerUnitAggregate, facts: Facts) -> Column:
        column = Column(_GROUPS, f"a{len(self.aggregates)}", facts)
        self.aggregates.append((item, column))
        return column


def place_of(count: Column, rank: Fraction) -> Expr:
    """The place of a quantile among `count` values: `rank` times their number, rounded up, and at least 1."""
    share = Fraction(repr(float(rank)))
    if (share * 10**MOST_DIGITS).denominator != 1:
        raise _refused(f"quantiles within a unit of more than {MOST_DIGITS} digits")
    if not share:
        return whole(1)
    times = called("multiply", count, whole(share.numerator))
    above = called("add", times, whole(share.denominator - 1))
    return above if share.denominator == 1 else called("quotient_by", above, whole(share.denominator))


def whole(value: int) -> Literal:
    """A whole number."""
    return Literal(value, Type.INTEGER)


def _real(value: Fraction) -> Literal:
    return Literal(float(value), Type.DOUBLE)


def called(name: str, *arguments: Expr) -> Call:
    """The call of an entry of the function registry, which takes the arguments."""
    found = call(name, *arguments)
    if found is None:
        raise InternalError(f"{name} is not called with these arguments")
    return found


def _refused(what: str) -> QueryRejected:
    return QueryRejected(
        f"dpsql does not ask this engine for {what}",
        code="engine",
        hint="write QUANTILE_DISC or MEDIAN, or use DuckDB; the reference of engines lists the quantiles",
    )
