"""The SQL of an engine: what emission writes for private rows, in parts with defaults that an engine overrides where it differs.

Emission (`dpsql.sql.compile`) writes a plan's operators in SQL that all engines share, and asks the engine's `Dialect` for
the rest. No SQL text is translated: each engine's statement is written from the plan.

All that a method returns is total: no value of the physical types of its arguments makes it fail, wherever the engine
evaluates it (PRIVACY.md, rules of soundness). Arguments are SQL texts unless they have another type. What a base class
writes is standard SQL, or what most engines share; an engine says what differs, and why that is total.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dpsql.backends.function_spellings import Spellings, require_template
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Column, ColumnInfo, WorkRule
from dpsql.plan.interval import get_date_at, get_timestamp_at
from dpsql.plan.nodes import (
    Filter,
    Join,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetOperation,
    Values,
    is_private,
    list_inputs,
)
from dpsql.plan.tables import Scan, UnnestedList
from dpsql.plan.types import Pairs, Type, Value
from dpsql.policy.names import quote_identifier, quote_literal, quote_table_name

CALENDAR: dict[Type, tuple[dt.date | dt.time, dt.date | dt.time]] = {
    Type.DATE: (dt.date.min, dt.date.max),
    Type.TIMESTAMP: (dt.datetime.min, dt.datetime.max),  # noqa: DTZ901  (SQL timestamps have no zone)
    Type.TIME: (dt.time.min, dt.time.max),
}
"""The first and last day, moment and time of day that Python can hold; infinities and 24:00:00 lie outside."""
TABLES = 2**55
"""More rows than a table has: the ids of rows of one of several tables differ by more from those of the next."""


def fits_int64(number: int | None) -> bool:
    """Return whether a number is known and fits into 64 bits with either sign.

    >>> fits_int64(-(2**63) + 1), fits_int64(2**63), fits_int64(None)
    (True, False, False)
    """
    return number is not None and abs(number) < 2**63


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL dialect of one engine: what it can do, and how it writes each subject."""

    capabilities: Capabilities
    support: QuerySupport
    values: ValueSyntax
    columns: ColumnSyntax
    functions: FunctionSyntax
    integers: IntegerSyntax
    points: PointSyntax
    hashes: HashSyntax
    queries: QuerySyntax
    lists: ListSyntax


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, by which emission chooses between statements of the same meaning."""

    supports_stages: bool = True
    """A release may be read in stages, over temporary tables."""
    materializes_ctes: bool = False
    """Queries that a statement reads more than once are materialized in a temporary table."""
    ranks_all_groups: bool = False
    """The groups of all units are ranked in one pass, instead of only those of units beyond a bound."""
    unnests_constant_lists: bool = False
    """Many rows of constants are written as lists for UNNEST, one per column."""
    groups_by_domain_index: bool = False
    """A group key with a declared domain is grouped by its index in the domain."""
    supports_public_groups: bool = False
    """The engine computes groups of public rows; otherwise they are constants, computed before."""
    supports_ignore_nulls: bool = True
    """Window functions support IGNORE NULLS; otherwise positions are computed."""
    supports_groups_frames: bool = True
    """Windows support GROUPS frames; otherwise ranges of ranks are used."""
    short_circuits: bool = False
    """Rows excluded by a cheap condition skip the other conditions, as in row-wise filtering."""


INTERPOLATED_QUANTILES = "interpolated quantiles within a unit, except the median and, of bounded whole numbers, q = k / 2^j such as 0.25"
QUANTILES_OF_MANY_DIGITS = "quantiles within a unit of more than 6 digits"
JOINS_TO_PUBLIC_GROUPS = (
    "joins of private rows to more than 10,000 groups of public rows, or to groups of released values"
)
_OPERATORS = (
    *(Scan, Filter, Join, SemiJoin, Project, PerUnitGroupBy),
    *(PerUnitWindows, SetOperation, PublicSubquery, Values),
)
"""The operators that every engine has."""


@dataclass(frozen=True)
class QuerySupport:
    """The queries that an engine answers: those of known operators, without the features that it lacks.

    `engine` is its name in messages. `unsupported` lists the features that are refused with code `engine`, or, for tables,
    when the policy is checked; the engines reference shows it.
    """

    engine: str
    unsupported: tuple[str, ...] = ()

    def require_supported_release(self, release: Release) -> None:
        """Refuse a release that the engine does not support: QueryRejected with code `engine`, before any charge."""
        for part in iterate_relations(release.input):
            if not isinstance(part, _OPERATORS):
                self.refuse("this query")
            if isinstance(part, PerUnitGroupBy) and not is_private(part):
                self.refuse_feature(JOINS_TO_PUBLIC_GROUPS)

    def require_readable_sql(self, sql: str) -> None:
        """Refuse a statement that the engine would read differently, as `require_supported_release` does."""

    def refuse(self, what: str) -> NoReturn:
        """Refuse a query that another engine supports."""
        refuse_query(f"{what} is not supported on {self.engine}")

    def refuse_feature(self, feature: str, hint: str | None = None) -> NoReturn:
        """Refuse a query for one of the features that are `unsupported`."""
        refuse_query(f"not supported on {self.engine}: {feature}", hint)


def refuse_query(rule: str, hint: str | None = None) -> NoReturn:
    """Refuse a query that another engine supports: QueryRejected with code `engine`."""
    raise QueryRejected(
        rule, code="engine", hint=hint or "the engines reference lists the features of each engine"
    )


def iterate_relations(relation: Relation) -> Iterator[Relation]:
    """Yield a relation and all below it."""
    yield relation
    for part in list_inputs(relation):
        yield from iterate_relations(part)


@dataclass(frozen=True)
class ValueSyntax:
    """Constants, casts and the order of texts.

    `types` are the engine's names of the value types; those that it lacks are refused. `cast` is the cast that fails for
    no value of an expression, and `collation` the one that compares bytes, empty where texts are read under it.
    """

    engine: str
    types: Mapping[Type, str]
    cast: str = "TRY_CAST"
    collation: str = ""
    has_typed_literals: bool = True

    @property
    def nan(self) -> str:
        """Return the constant NaN."""
        return f"CAST('NaN' AS {self.types[Type.DOUBLE]})"

    @property
    def infinity(self) -> str:
        """Return the constant infinity."""
        return f"CAST('Infinity' AS {self.types[Type.DOUBLE]})"

    def get_type_name(self, kind: Type) -> str:
        """Return the engine's name of a value type. Raises QueryRejected, with code `engine`, if it has none."""
        if kind not in self.types:
            refuse_query(f"values of type {kind.name} are not supported on {self.engine}")
        return self.types[kind]

    def emit_constant(self, value: Value | Pairs) -> str:
        """Emit a constant with exactly the engine type of its plan type."""
        match value:
            case None:
                return "NULL"
            case bool():
                return "TRUE" if value else "FALSE"
            case int():
                return f"CAST({value} AS {self.types[Type.INTEGER]})"
            case float():
                return self._emit_double(value)
            case str():
                return self._emit_text(value)
            case bytes():
                return self._emit_blob(value)
            case tuple():
                return self._emit_map(value)
            case _:
                return self._emit_typed_literal(value)

    def _emit_double(self, value: float) -> str:
        """Emit a DOUBLE as a text that is cast: `repr` gives the digits that no other DOUBLE has."""
        text = f"{'-' * (value < 0)}Infinity" if math.isinf(value) else repr(value)
        return f"CAST('{text}' AS {self.types[Type.DOUBLE]})"

    def _emit_text(self, value: str) -> str:
        return quote_literal(value)

    def _emit_blob(self, value: bytes) -> str:
        return f"X'{value.hex()}'"

    def _emit_map(self, pairs: Pairs) -> str:
        refuse_query(f"map constants are not supported on {self.engine}")

    def _emit_typed_literal(self, value: dt.date | dt.time | uuid.UUID) -> str:
        """Emit a constant that the engine writes as a text of its type."""
        match value:
            case dt.datetime():
                kind, text = Type.TIMESTAMP, value.isoformat(sep=" ")
            case dt.date():
                kind, text = Type.DATE, value.isoformat()
            case dt.time():
                kind, text = Type.TIME, value.isoformat()
            case uuid.UUID():
                kind, text = Type.UUID, str(value)
        name = self.get_type_name(kind)
        has_literal = self.has_typed_literals and kind is not Type.UUID
        return f"{name} '{text}'" if has_literal else f"CAST('{text}' AS {name})"

    def emit_cast(self, text: str, kind: Type) -> str:
        """Emit a cast to a type, NULL for a value without a counterpart; an always-NULL value has no type."""
        return text if kind is Type.NULL else f"{self.cast}({text} AS {self.get_type_name(kind)})"

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """Emit an aggregate cast to a type, NULL for a value without a counterpart."""
        return self.emit_cast(number, kind)

    def emit_nan_as_null(self, number: str) -> str:
        """Emit a DOUBLE with NULL in place of NaN, which equals itself on engines with a total order of numbers."""
        return f"NULLIF({number}, {self.nan})"

    def emit_binary_collation(self, text: str) -> str:
        """Emit a text that is compared, grouped and ordered by its bytes."""
        return f"({text} COLLATE {self.collation})" if self.collation else text


@dataclass(frozen=True)
class ColumnSyntax(ABC):
    """Columns of scanned tables: as they are stored, widened to the engine type of their plan type, and clamped.

    Claim: a bounded column is in the interval or domain of the column, or NULL, and never NaN, for every stored value.
    Why: a CASE without ELSE keeps the values for which a comparison holds, and the comparisons hold for no NaN, which is
    greater than infinity on each of the engines here.
    Source: DuckDB's documentation, "Numeric types"; PostgreSQL 15 manual, section 8.1.3; Spark 4.0 documentation, "NaN semantics".
    """

    values: ValueSyntax

    def emit_bounded_column(self, column: Column) -> str:
        """Emit a column of a scanned table: clamped to its bounds, NULL outside its domain, never NaN."""
        return self.emit_clamped_value(
            self.emit_stored_column(column), self.emit_widened_column(column), column.facts
        )

    @abstractmethod
    def emit_widened_column(self, column: Column) -> str:
        """Emit a column of a scanned table in the engine type of its plan type, for any value."""

    def emit_stored_column(self, column: Column) -> str:
        """Emit a column of a scanned table as it is stored, or a field of a STRUCT; NaN of a DECIMAL becomes NULL."""
        return self.emit_column_path(column.facts.path or (column.name,))

    def emit_column_path(self, names: Sequence[str]) -> str:
        """Emit a column of a table, or a field of one that is a STRUCT, which is NULL where the STRUCT is."""
        return quote_identifier(names[0]) + "".join(
            f"[{self.values.emit_constant(name)}]" for name in names[1:]
        )

    def emit_unit_id(self, unit: Column) -> str:
        """Emit a unit's id in a type in which ids of two tables can be compared: whole numbers of all sizes are BIGINT."""
        return self.emit_widened_column(unit)

    def emit_membership(self, read: str, constants: Sequence[str], kind: Type) -> str:
        """Emit the condition that a value of a type is one of these constants, by which 0.0 is -0.0."""
        return f"{read} IN ({', '.join(constants)})"

    def emit_clamped_value(self, raw: str, read: str, facts: ColumnInfo) -> str:
        """Emit a clamped column, from the SQL of its stored value, and of the widened one."""
        if facts.domain is not None:
            listed = list(map(self.values.emit_constant, facts.domain))
            return f"CASE WHEN {self.emit_membership(read, listed, facts.type)} THEN {read} END"
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
        low, high = (self.values.emit_constant(math.floor(end)) for end in facts.interval.ends)
        # Compared before it is read as 64 bits: a value too large for them is clamped, not lost.
        return f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {read} WHEN {raw} < {low} THEN {low} WHEN {raw} > {high} THEN {high} END"

    def _emit_bounded_double(self, read: str, facts: ColumnInfo) -> str:
        if not facts.interval.is_bounded:
            return self.values.emit_nan_as_null(read)
        low, high = (self.values.emit_constant(float(end)) for end in facts.interval.ends)
        return (
            f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
            f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.values.infinity} THEN {high} END"
        )

    def _emit_bounded_temporal(self, read: str, facts: ColumnInfo) -> str:
        ends: tuple[dt.date | dt.time, ...] = CALENDAR[facts.type]
        if facts.interval.is_bounded:
            at = get_timestamp_at if facts.type is Type.TIMESTAMP else get_date_at
            ends = tuple(map(at, facts.interval.ends))
        low, high = map(self.values.emit_constant, ends)
        within = f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read}"
        if not facts.interval.is_bounded:
            return f"{within} END"
        return f"{within} WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"


@dataclass(frozen=True)
class FunctionSyntax:
    """Scalar functions, aggregates within a unit and window functions, by their names in the registries.

    `spellings` are templates of scalar functions, each with the reason why it is total; a function without one is refused, and
    `where` says where. `work_rules` is the per-row work of functions where it differs from DuckDB's. The values of `approximate_functions`
    may differ from DuckDB's in the last digits. `numbered_row_aggregates` are per-unit aggregates that are computed from numbered rows.
    """

    where: str
    spellings: Spellings
    work_rules: Mapping[str, WorkRule] = field(default_factory=dict)
    approximate_functions: frozenset[str] = frozenset()
    numbered_row_aggregates: frozenset[str] = frozenset()

    def emit_call_template(self, expr: Call) -> str:
        """Return the template of a scalar function, with arguments {0}, {1}, …; see `dpsql.plan.expressions.Function`."""
        return require_template(self.spellings, expr, self.where)

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """Return the template of a per-unit aggregate, by its registry name; the registry has `template`.

        `kind` is the type of its argument.
        """
        return template

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """Emit a window function that is not an aggregate, by its registry name, with its OVER."""
        return f"{function}({', '.join(arguments)}){' IGNORE NULLS' * ignore_nulls}{over}"


@dataclass(frozen=True)
class IntegerSyntax(ABC):
    """Whole numbers: sums, quotients and shifts, in `wide`, a type in which those of a statement do not overflow.

    Numbers of 64 bits are added and multiplied as they are where that suffices, which is several times as fast.
    """

    values: ValueSyntax
    wide: str

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """Emit a whole number in a type in which sums and products of a statement do not overflow.

        Where `most` is given, the number is of 64 bits if that is, and so are all products that are made of it.
        """
        return number if fits_int64(most) else f"CAST({number} AS {self.wide})"

    def emit_threshold(self, number: int) -> str:
        """Emit a constant of any size, with which a whole number is compared."""
        return str(number)

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Emit a whole number from `low` to `high`, not NULL, in 64 bits if it fits and the engine is faster with them.

        It is clamped to the ends before it is cast, so that no number fails; LEAST and GREATEST would make NULL an end.
        """
        if not fits_int64(low) or not fits_int64(high):
            return number
        return f"{self.values.cast}(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def to_double(self, number: str) -> str:
        """Emit a whole number of the type of `to_wide_int`, at most 2^190, as the nearest DOUBLE."""
        return f"CAST({number} AS {self.values.types[Type.DOUBLE]})"

    def cast_double_to_int(self, number: str, most: int) -> str:
        """Emit a whole DOUBLE from 0 to `most`, at most 2^62, in the type of `to_wide_int` or in 64 bits."""
        return self.to_narrow_int(number, 0, most)

    def emit_count(self, argument: str = "*") -> str:
        """Emit the number of rows (`*`) or of values that are not NULL, in a signed type, as it is subtracted from."""
        return f"COUNT({argument})"

    def emit_exact_sum(self, points: str, most: int) -> str:
        """Emit the sum of 64-bit whole numbers of magnitude at most `most`, which does not overflow for 2^46 of them."""
        return f"SUM({points})"

    @abstractmethod
    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Emit the quotient of whole numbers rounded toward zero; the divisor is positive.

        Where `most` is given and of 64 bits, so are both numbers.
        """

    def emit_right_shift(self, number: str, bits: int) -> str:
        """Emit a 64-bit whole number shifted right by `bits`."""
        return f"({number} >> {bits})"


@dataclass(frozen=True)
class PointSyntax(ABC):
    """Lattice points: values as whole numbers of steps, and counts of them by interval."""

    values: ValueSyntax

    @abstractmethod
    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Emit a number times a power of two, rounded half to even: a whole number of 64 bits, or NULL."""

    @abstractmethod
    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Emit a DOUBLE times two powers of two, rounded half to even, of magnitude at most 2^80, in the type of `to_wide_int`."""

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Emit a number times two powers of two, as a DOUBLE."""
        first, second = map(self.values.emit_constant, factors)
        return f"CAST({number} AS {self.values.types[Type.DOUBLE]}) * {first} * {second}"

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> str | None:
        """Emit a clamped DECIMAL times a power of ten, as a 64-bit whole number; NULL for NULL.

        All have at most 15 digits, and the product 18. None for engines in which DOUBLE is as fast.
        """
        return None

    def emit_day_number(self, day: str) -> str:
        """Emit the number of a day of the calendar, beginning with 1."""
        return f"({day} - DATE '0001-01-01' + 1)"

    @abstractmethod
    def emit_epoch_microseconds(self, moment: str) -> str:
        """Emit the microseconds of a timestamp since 1970, or of a time of day since midnight, in 64 bits."""

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> str | None:
        """Emit the SELECT items of a histogram: for each end its position `interval_index`, and the count `pair_count` of numbers in its interval.

        In an interval are numbers up to its end and above the one before, in the first all below too, and in the last all
        above. Ends rise from 0. `pair_count` is NULL if there are no numbers. None for engines that group rows by interval instead.
        """
        return None


@dataclass(frozen=True)
class HashSyntax(ABC):
    """Hashes: ids of rows, the order of a unit's groups, and samples of units."""

    values: ValueSyntax

    @abstractmethod
    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Emit a unique number for each row of a table whose rows are units; `values` are the columns that are read.

        Above 2^63 it has a hash of the row's own values, which `emit_row_hash` finds. A statement that reads several such tables
        numbers them, with at most 2^7 numbers: no row of another table has the id.
        """

    @abstractmethod
    def emit_row_hash(self, unit: str) -> str:
        """Emit the hash in the id of a row, which does not depend on other rows."""

    @abstractmethod
    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Emit the key that orders the groups of a unit: a hash of these values, the same in every run."""

    @abstractmethod
    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Emit the condition that SHA-256 of a secret and a unit's id is below `below`, a whole number of 256 bits."""


@dataclass(frozen=True)
class QuerySyntax:
    """Tables and subqueries in FROM, and joins."""

    def quote_table_name(self, name: str) -> str:
        """Quote the name of a table of the policy."""
        return quote_table_name(name)

    def emit_derived_table(self, query: str, name: str = '"#rows"', *, once: bool = False) -> str:
        """Emit a derived table, with a name if required; with `once`, each value is computed once per row."""
        return f"({query}) AS {name}"

    def emit_coalesced_query(self, query: str) -> str:
        """Emit a query with few groups for further aggregation, which a distributed engine runs on one machine."""
        return query

    def emit_all_true(self, condition: str) -> str:
        """Emit the aggregate that says whether a condition, which is never NULL, is true of all rows."""
        return f"BOOL_AND({condition})"

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Emit FROM with the rows of `left` whose `unit_id` is in `right`, or is not with `anti`."""
        chosen = "NOT EXISTS" if anti else "EXISTS"
        return f'{left} WHERE {chosen} (SELECT 1 FROM {right} AS "#of" WHERE "#of".unit_id = {left}.unit_id)'

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """Emit a full join on equal pairs, in which NULL equals NULL: engines hash IS NOT DISTINCT FROM."""
        equal = " AND ".join(f"{ours} IS NOT DISTINCT FROM {theirs}" for ours, theirs in on)
        return f"FULL JOIN ({query}) AS {name} ON {equal}"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Emit a query with the columns `keys` and `names` that has each of the `rows` for every row of `query`."""
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        lateral = f'LATERAL (VALUES {values}) AS "#each" ({", ".join(names)})'
        return f"SELECT {', '.join([*keys, *names])} FROM {self.emit_derived_table(query, once=True)} CROSS JOIN {lateral}"


@dataclass(frozen=True)
class ListSyntax(ABC):
    """Lists: those of values that an aggregate collects, and those that a column stores."""

    columns: ColumnSyntax
    queries: QuerySyntax

    @abstractmethod
    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Emit the aggregate that collects ordered lists of whole numbers from the rows where they are not NULL."""

    @abstractmethod
    def emit_value_list_aggregate(self, value: str) -> str:
        """Emit the aggregate that collects a sorted list of the values that are not NULL."""

    @abstractmethod
    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Emit the query for a quantile window under `name`, over `rows` with total_values, values_before, point and point_values: see `planning.quantiles.RankWindow`."""

    @abstractmethod
    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Emit the elements of a sorted list as rows: all, or at most `most` evenly spaced ones."""

    @abstractmethod
    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Emit the rows of a table, repeated for each of the first elements of a list, which get a column of their own."""
