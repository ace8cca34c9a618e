"""What emitted SQL says differently on each engine.

Emission (`dpsql.sql.emit`) writes a plan's operators in SQL that all engines share, and asks the engine's dialect for
the rest. No SQL text is translated: each engine's statement is written from the plan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from dpsql.plan.expr import Call, Column, WorkRule
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
    """Whether a number is known, and of 64 bits with either sign.

    >>> fits_int64(-(2**63) + 1), fits_int64(2**63), fits_int64(None)
    (True, False, False)
    """
    return number is not None and abs(number) < 2**63


class Dialect(Protocol):
    """How one engine writes what emission asks for.

    All that a method returns is total: no value of the physical types of its arguments makes it fail, wherever the
    engine evaluates it (PRIVACY.md, rules of soundness). Arguments are SQL texts unless they have another type.
    """

    @property
    def nan(self) -> str:
        """The constant NaN."""
        ...

    @property
    def supports_stages(self) -> bool:
        """Whether a release may be read in stages, over temporary tables."""
        ...

    @property
    def materializes_ctes(self) -> bool:
        """Whether the rows of a query that a statement reads more than once are held in a temporary table."""
        ...

    @property
    def ranks_all_groups(self) -> bool:
        """Whether the groups of all units are put in order, in one pass, rather than those of units beyond a bound in several."""
        ...

    @property
    def unnests_constant_lists(self) -> bool:
        """Whether many rows of constants are written as lists that UNNEST takes apart, one for each column."""
        ...

    @property
    def groups_by_domain_index(self) -> bool:
        """Whether a group key of a declared domain is grouped by its index in the domain."""
        ...

    @property
    def work_rules(self) -> Mapping[str, WorkRule]:
        """The work of functions for one row, by their names in the registry, where it is not that of DuckDB."""
        ...

    @property
    def approximate_functions(self) -> frozenset[str]:
        """The functions, by their names in the registry, whose values may differ from DuckDB's in the last digits."""
        ...

    @property
    def numbered_row_aggregates(self) -> frozenset[str]:
        """The aggregates within a unit, by their names in the registry, that are computed of numbered rows."""
        ...

    @property
    def supports_ignore_nulls(self) -> bool:
        """Whether window functions take IGNORE NULLS; those of others take places that are computed."""
        ...

    @property
    def supports_groups_frames(self) -> bool:
        """Whether windows have frames of GROUPS; those of others are ranges of ranks."""
        ...

    @property
    def short_circuits(self) -> bool:
        """Whether rows that a cheap condition leaves out are not looked at by others, as where each row is filtered by itself."""
        ...

    @property
    def supports_public_groups(self) -> bool:
        """Whether it is asked for groups of public rows; of others they are known before, and are constants."""
        ...

    def require_supported_release(self, release: Release) -> None:
        """Refuses a release that the engine cannot be asked for: QueryRejected with code `engine`, before any charge."""
        ...

    def require_readable_sql(self, sql: str) -> None:
        """Refuses a whole statement that the engine would not read as it is written, as `require_supported_release` does."""
        ...

    def quote_table_name(self, name: str) -> str:
        """The name of a table of the policy."""
        ...

    def emit_constant(self, value: Value | Pairs) -> str:
        """A constant of exactly the engine type that its plan type stands for."""
        ...

    def emit_cast(self, text: str, kind: Type) -> str:
        """A value as one of a type, NULL where it has no counterpart; what is always NULL has no type."""
        ...

    def emit_call_template(self, expr: Call) -> str:
        """The template of a scalar function: {0}, {1}, … are its arguments; see `dpsql.plan.expr.Function`."""
        ...

    def emit_bounded_column(self, column: Column) -> str:
        """A column of a scanned table: clamped to its bounds, NULL outside its domain, never NaN."""
        ...

    def emit_widened_column(self, column: Column) -> str:
        """A column of a scanned table in the engine type of its plan type, whatever its value."""
        ...

    def emit_stored_column(self, column: Column) -> str:
        """A column of a scanned table as it is stored; of a DECIMAL, NaN is NULL."""
        ...

    def emit_unit_id(self, unit: Column) -> str:
        """A unit's id, of a type that two tables' ids can be compared in."""
        ...

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """The query of the rows of a table, once for each of the first elements of a list, which is in a column of its own."""
        ...

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Whether SHA-256 of a secret and a unit's id is below `below`, a whole number of 256 bits."""
        ...

    def emit_binary_collation(self, text: str) -> str:
        """A text that is compared, grouped and put in order by its bytes."""
        ...

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """A unique number of each row of a table whose rows are units; `values` are the columns that are read.

        Above 2^63 it has a hash of the row's own values, which `emit_row_hash` finds. A statement that reads several such tables
        numbers them, with at most 2^7 numbers: no row of another table has the id.
        """
        ...

    def emit_row_hash(self, unit: str) -> str:
        """The hash in the id of a row: the same whatever other rows there are."""
        ...

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """What the groups of a unit are put in order by: a hash of these values, the same in every run."""
        ...

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """A number times a power of two, rounded half to even: a whole number of 64 bits, or NULL."""
        ...

    def emit_exact_sum(self, points: str, most: int) -> str:
        """The sum of whole numbers of 64 bits, of at most `most` in size, which does not overflow for 2^46 of them."""
        ...

    def emit_day_number(self, day: str) -> str:
        """The number of a day of the calendar, the first being 1."""
        ...

    def emit_epoch_microseconds(self, moment: str) -> str:
        """The microseconds of a moment of the calendar since 1970, or of a time of day since midnight, as 64 bits."""
        ...

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> str | None:
        """A DECIMAL clamped to two others, times a power of ten, as a whole number of 64 bits; NULL of NULL.

        All have at most 15 digits, and the product 18. None for engines in which DOUBLE is as fast.
        """
        ...

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> str | None:
        """The items of a SELECT that has a row for each end: its place as `b`, and as `n` how many numbers are in its interval.

        In an interval are numbers up to its end and above the one before, in the first all below too, and in the last all
        above. Ends rise from 0. `n` is NULL if there are no numbers. None for engines that group rows by interval instead.
        """
        ...

    def emit_right_shift(self, number: str, bits: int) -> str:
        """A whole number of 64 bits without its lowest bits, divided by 2^bits."""
        ...

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """A whole number in a type in which sums and products of a statement do not overflow.

        Where `most` is given, the number is of 64 bits if that is, and so are all products that are made of it.
        """
        ...

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """A whole number from `low` to `high`, not NULL, in 64 bits where it fits and the engine is quicker with these."""
        ...

    def to_double(self, number: str) -> str:
        """A whole number of the type of `to_wide_int` as a DOUBLE."""
        ...

    def cast_double_to_int(self, number: str, most: int) -> str:
        """A DOUBLE that is whole and from 0 to `most`, which is at most 2^62, in the type of `to_wide_int` or in 64 bits."""
        ...

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """A DOUBLE times two powers of two, rounded half to even, of at most 2^80 in size, in the type of `to_wide_int`."""
        ...

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """A number times two powers of two, as a DOUBLE."""
        ...

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """An aggregate as one of a type, NULL where it has no counterpart."""
        ...

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """The template of an aggregate within a unit, by its name in the registry, which has `template`.

        `kind` is the type of its argument.
        """
        ...

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """A window function that is no aggregate, by its name in the registry, with its OVER."""
        ...

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """The quotient of whole numbers towards zero; the divisor is above zero.

        Where `most` is given and of 64 bits, so are both numbers.
        """
        ...

    def emit_derived_table(self, query: str, name: str = "", *, once: bool = False) -> str:
        """A query in FROM, under a name where one is needed; with `once`, each of its values is computed once a row."""
        ...

    def emit_coalesced_query(self, query: str) -> str:
        """A query of few groups that are added up further; an engine of several machines does that on one of them."""
        ...

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """FROM with the rows of `left` whose `u` is in `right`; with `anti`, those whose is not."""
        ...

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """A full join on equal pairs, of which NULL equals NULL."""
        ...

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """The aggregate that makes a list of lists of whole numbers, in this order, of the rows where it is not NULL."""
        ...

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """The query of the columns `keys`, and `names`, that has each of the `rows` for every row of `query`."""
        ...

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """The query for a window of a quantile under `name`, over `rows` with total, before, p and n: see `Window.of`."""
        ...

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """The elements of a sorted list as rows: all, or, where it has more than `most`, so many evenly spaced ones."""
        ...

    def emit_value_list_aggregate(self, value: str) -> str:
        """The aggregate that makes a sorted list of the values that are not NULL."""
        ...
