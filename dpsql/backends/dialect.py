"""The protocol of SQL dialects for emission.

Emission (`dpsql.sql.compile`) writes a plan's operators in SQL that all engines share, and asks the engine's dialect for
the rest. No SQL text is translated: each engine's statement is written from the plan.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpsql.plan.expressions import Call, Column, ColumnInfo, WorkRule
from dpsql.plan.interval import get_date_at, get_timestamp_at
from dpsql.plan.types import Pairs, Type, Value

if TYPE_CHECKING:
    from dpsql.plan.nodes import Release
    from dpsql.plan.tables import UnnestedList


CALENDAR: dict[Type, tuple[dt.date | dt.time, dt.date | dt.time]] = {
    Type.DATE: (dt.date.min, dt.date.max),
    Type.TIMESTAMP: (dt.datetime.min, dt.datetime.max),  # noqa: DTZ901  (SQL timestamps have no zone)
    Type.TIME: (dt.time.min, dt.time.max),
}
"""The first and last day, moment and time of day that Python can hold; infinities and 24:00:00 lie outside."""
TABLES = 2**55
"""More rows than a table has: what the ids of rows of one of several tables are apart from those of the next."""


def fits_int64(number: int | None) -> bool:
    """Return whether a number is known and fits into 64 bits with either sign.

    >>> fits_int64(-(2**63) + 1), fits_int64(2**63), fits_int64(None)
    (True, False, False)
    """
    return number is not None and abs(number) < 2**63


class Dialect(Protocol):
    """The SQL dialect of one engine.

    All that a method returns is total: no value of the physical types of its arguments makes it fail, wherever the
    engine evaluates it (PRIVACY.md, rules of soundness). Arguments are SQL texts unless they have another type.
    """

    @property
    def nan(self) -> str:
        """Return the constant NaN."""
        ...

    @property
    def supports_stages(self) -> bool:
        """Return whether a release may be read in stages, over temporary tables."""
        ...

    @property
    def materializes_ctes(self) -> bool:
        """Return whether queries that a statement reads more than once are materialized in a temporary table."""
        ...

    @property
    def ranks_all_groups(self) -> bool:
        """Return whether the groups of all units are ranked in one pass, instead of only those of units beyond a bound."""
        ...

    @property
    def unnests_constant_lists(self) -> bool:
        """Return whether many rows of constants are written as lists for UNNEST, one per column."""
        ...

    @property
    def groups_by_domain_index(self) -> bool:
        """Return whether a group key with a declared domain is grouped by its index in the domain."""
        ...

    @property
    def work_rules(self) -> Mapping[str, WorkRule]:
        """Return the per-row work of functions, by registry name, where it differs from DuckDB's."""
        ...

    @property
    def approximate_functions(self) -> frozenset[str]:
        """Return the registry names of functions whose values may differ from DuckDB's in the last digits."""
        ...

    @property
    def numbered_row_aggregates(self) -> frozenset[str]:
        """Return the registry names of per-unit aggregates that are computed from numbered rows."""
        ...

    @property
    def supports_ignore_nulls(self) -> bool:
        """Return whether window functions support IGNORE NULLS; otherwise positions are computed."""
        ...

    @property
    def supports_groups_frames(self) -> bool:
        """Return whether windows support GROUPS frames; otherwise ranges of ranks are used."""
        ...

    @property
    def short_circuits(self) -> bool:
        """Return whether rows excluded by a cheap condition skip the other conditions, as in row-wise filtering."""
        ...

    @property
    def supports_public_groups(self) -> bool:
        """Return whether the engine computes groups of public rows; otherwise they are constants, computed before."""
        ...

    def require_supported_release(self, release: Release) -> None:
        """Refuse a release that the engine does not support: QueryRejected with code `engine`, before any charge."""
        ...

    def require_readable_sql(self, sql: str) -> None:
        """Refuse a statement that the engine would read differently, as `require_supported_release` does."""
        ...

    def quote_table_name(self, name: str) -> str:
        """Quote the name of a table of the policy."""
        ...

    def emit_constant(self, value: Value | Pairs) -> str:
        """Emit a constant with exactly the engine type of its plan type."""
        ...

    def emit_cast(self, text: str, kind: Type) -> str:
        """Emit a cast to a type, NULL for a value without a counterpart; an always-NULL value has no type."""
        ...

    def emit_call_template(self, expr: Call) -> str:
        """Return the template of a scalar function, with arguments {0}, {1}, …; see `dpsql.plan.expressions.Function`."""
        ...

    def emit_bounded_column(self, column: Column) -> str:
        """Emit a column of a scanned table: clamped to its bounds, NULL outside its domain, never NaN."""
        ...

    def emit_widened_column(self, column: Column) -> str:
        """Emit a column of a scanned table in the engine type of its plan type, for any value."""
        ...

    def emit_stored_column(self, column: Column) -> str:
        """Emit a column of a scanned table as it is stored; NaN of a DECIMAL becomes NULL."""
        ...

    def emit_unit_id(self, unit: Column) -> str:
        """Emit a unit's id in a type in which ids of two tables can be compared."""
        ...

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Emit the rows of a table, repeated for each of the first elements of a list, which get a column of their own."""
        ...

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Emit the condition that SHA-256 of a secret and a unit's id is below `below`, a whole number of 256 bits."""
        ...

    def emit_binary_collation(self, text: str) -> str:
        """Emit a text that is compared, grouped and ordered by its bytes."""
        ...

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Emit a unique number for each row of a table whose rows are units; `values` are the columns that are read.

        Above 2^63 it has a hash of the row's own values, which `emit_row_hash` finds. A statement that reads several such tables
        numbers them, with at most 2^7 numbers: no row of another table has the id.
        """
        ...

    def emit_row_hash(self, unit: str) -> str:
        """Emit the hash in the id of a row, which does not depend on other rows."""
        ...

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Emit the key that orders the groups of a unit: a hash of these values, the same in every run."""
        ...

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Emit a number times a power of two, rounded half to even: a whole number of 64 bits, or NULL."""
        ...

    def emit_exact_sum(self, points: str, most: int) -> str:
        """Emit the sum of 64-bit whole numbers of magnitude at most `most`, which does not overflow for 2^46 of them."""
        ...

    def emit_day_number(self, day: str) -> str:
        """Emit the number of a day of the calendar, beginning with 1."""
        ...

    def emit_epoch_microseconds(self, moment: str) -> str:
        """Emit the microseconds of a timestamp since 1970, or of a time of day since midnight, in 64 bits."""
        ...

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> str | None:
        """Emit a clamped DECIMAL times a power of ten, as a 64-bit whole number; NULL for NULL.

        All have at most 15 digits, and the product 18. None for engines in which DOUBLE is as fast.
        """
        ...

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> str | None:
        """Emit the SELECT items of a histogram: for each end its position `b`, and the count `n` of numbers in its interval.

        In an interval are numbers up to its end and above the one before, in the first all below too, and in the last all
        above. Ends rise from 0. `n` is NULL if there are no numbers. None for engines that group rows by interval instead.
        """
        ...

    def emit_right_shift(self, number: str, bits: int) -> str:
        """Emit a 64-bit whole number shifted right by `bits`."""
        ...

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """Emit a whole number in a type in which sums and products of a statement do not overflow.

        Where `most` is given, the number is of 64 bits if that is, and so are all products that are made of it.
        """
        ...

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Emit a whole number from `low` to `high`, not NULL, in 64 bits if it fits and the engine is faster with them."""
        ...

    def to_double(self, number: str) -> str:
        """Emit a whole number of the type of `to_wide_int` as a DOUBLE."""
        ...

    def cast_double_to_int(self, number: str, most: int) -> str:
        """Emit a whole DOUBLE from 0 to `most`, at most 2^62, in the type of `to_wide_int` or in 64 bits."""
        ...

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Emit a DOUBLE times two powers of two, rounded half to even, of magnitude at most 2^80, in the type of `to_wide_int`."""
        ...

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Emit a number times two powers of two, as a DOUBLE."""
        ...

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """Emit an aggregate cast to a type, NULL for a value without a counterpart."""
        ...

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """Return the template of a per-unit aggregate, by its registry name; the registry has `template`.

        `kind` is the type of its argument.
        """
        ...

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """Emit a window function that is not an aggregate, by its registry name, with its OVER."""
        ...

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Emit the quotient of whole numbers rounded toward zero; the divisor is positive.

        Where `most` is given and of 64 bits, so are both numbers.
        """
        ...

    def emit_derived_table(self, query: str, name: str = "", *, once: bool = False) -> str:
        """Emit a derived table, with a name if required; with `once`, each value is computed once per row."""
        ...

    def emit_coalesced_query(self, query: str) -> str:
        """Emit a query with few groups for further aggregation, which a distributed engine runs on one machine."""
        ...

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Emit FROM with the rows of `left` whose `u` is in `right`, or is not with `anti`."""
        ...

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """Emit a full join on equal pairs, in which NULL equals NULL."""
        ...

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Emit the aggregate that collects ordered lists of whole numbers from the rows where they are not NULL."""
        ...

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Emit a query with the columns `keys` and `names` that has each of the `rows` for every row of `query`."""
        ...

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Emit the query for a quantile window under `name`, over `rows` with total, before, p and n: see `Window.of`."""
        ...

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Emit the elements of a sorted list as rows: all, or at most `most` evenly spaced ones."""
        ...

    def emit_value_list_aggregate(self, value: str) -> str:
        """Emit the aggregate that collects a sorted list of the values that are not NULL."""
        ...


# Clamp stored values to the column's interval or domain, or NULL, in the same way on every engine.
#
# Claim: what is written is in the interval or domain of the column, or NULL, and never NaN, for every value of the types.
# Why: a CASE without ELSE keeps what a comparison holds of, and the comparisons hold of no NaN, which is greater than infinity on
# each of the engines here.
# Source: DuckDB's documentation, "Numeric types"; PostgreSQL 15 manual, section 8.1.3; Spark 4.0 documentation, "NaN semantics".


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Clamps in the SQL of an engine, which writes constants so, and these two of DOUBLE."""

    emit_constant: Callable[[Value], str]
    nan: str
    infinity: str

    def emit_bounded_column(self, raw: str, read: str, facts: ColumnInfo) -> str:
        """A column, from the SQL of what is stored, and of that in the engine type of the plan type."""
        if facts.domain is not None:
            return f"CASE WHEN {read} IN ({', '.join(map(self.emit_constant, facts.domain or ()))}) THEN {read} END"
        match facts.type:
            case Type.INTEGER:
                return self._emit_bounded_integer(raw, read, facts)
            case Type.DOUBLE:
                return self._emit_bounded_double(read, facts)
            case Type.DATE | Type.TIMESTAMP | Type.TIME:
                return self._emit_bounded_temporal(read, facts)
            case _:
                return read

    def _emit_bounded_integer(self, raw: str, read: str, facts: ColumnInfo) -> str:
        if not facts.interval.is_bounded:
            return read
        low, high = (self.emit_constant(math.floor(end)) for end in facts.interval.ends)
        # Compared before it is read as 64 bits: a value too large for them is clamped, not lost.
        return f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {read} WHEN {raw} < {low} THEN {low} WHEN {raw} > {high} THEN {high} END"

    def _emit_bounded_double(self, read: str, facts: ColumnInfo) -> str:
        if not facts.interval.is_bounded:
            return f"NULLIF({read}, {self.nan})"
        low, high = (self.emit_constant(float(end)) for end in facts.interval.ends)
        return (
            f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
            f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.infinity} THEN {high} END"
        )

    def _emit_bounded_temporal(self, read: str, facts: ColumnInfo) -> str:
        ends: tuple[dt.date | dt.time, ...] = CALENDAR[facts.type]
        if facts.interval.is_bounded:
            at = get_timestamp_at if facts.type is Type.TIMESTAMP else get_date_at
            ends = tuple(map(at, facts.interval.ends))
        low, high = map(self.emit_constant, ends)
        within = f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read}"
        if not facts.interval.is_bounded:
            return f"{within} END"
        return f"{within} WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"
