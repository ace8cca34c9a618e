"""The dialect of Spark, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dpsql.backends.dialect import fits_int64
from dpsql.backends.function_spellings import APPROXIMATE, require_template
from dpsql.backends.quoting import quote_identifier
from dpsql.backends.spark import columns, values
from dpsql.backends.spark.functions import SPELLINGS, WORK, bind_arguments
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Column, WindowCall, WorkRule
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
from dpsql.policy import split_table_name

WIDE = "DECIMAL(38,0)"
"""The type of wide whole numbers. Of two of them, sums and products are of this type, too."""
PART = 17
"""The bits of numbers of which 2^46 are added up in 64 bits, with a sign."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'[^\']*\'')
_OPERATORS = (
    *(Scan, Filter, Join, SemiJoin, Project, PerUnitGroupBy),
    *(PerUnitWindows, SetOperation, PublicSubquery, Values),
)
_BY_PLACE = frozenset({"quantile_cont", "quantile_disc", "median"})

CANNOT = (
    "frames with EXCLUDE in windows within a unit",
    "interpolated quantiles within a unit, except the median and, of bounded whole numbers, q = k / 2^j such as 0.25",
    "quantiles within a unit of more than 6 digits",
    "joins of private rows to more than 10,000 groups of public rows, or to groups of released values",
    "row ids of tables whose rows are units, which joins and DISTINCT need",
    "times of day and UUIDs, which Spark lacks",
    "structs and arrays with timestamps, whose unit the catalog does not state, and arrays of tables with timestamps of an unknown unit",
    'names that contain " or \\',
    "views, temporary views, and tables of files without types, such as CSV and JSON",
)
"""Features that are refused with code `engine`, or, for tables, when the policy is checked."""


@dataclass(frozen=True, slots=True)
class SparkDialect:
    """Spark's: DECIMAL(38) for wide whole numbers, functions that try for what may fail, arrays; contributions are held.

    `catalog` and `schema` are those of tables that the policy names without a schema.
    """

    catalog: str = "spark_catalog"
    schema: str = "default"
    nan: str = values.NAN
    supports_stages: bool = True
    materializes_ctes: bool = True
    ranks_all_groups: bool = True
    unnests_constant_lists: bool = False
    groups_by_domain_index: bool = False
    supports_public_groups: bool = False
    supports_ignore_nulls: bool = True
    supports_groups_frames: bool = False
    short_circuits: bool = False
    approximate_functions: frozenset[str] = APPROXIMATE
    numbered_row_aggregates: frozenset[str] = _BY_PLACE
    work_rules: Mapping[str, WorkRule] = field(default_factory=lambda: WORK)

    def require_supported_release(self, release: Release) -> None:
        """Refuse the features in `CANNOT`, and every unknown operator."""
        for part in _iterate_relations(release.input):
            if not isinstance(part, _OPERATORS):
                refuse_query("this query is not supported on Spark")
            if isinstance(part, PerUnitWindows) and any(map(_has_frame_exclusion, part.windows)):
                refuse_query(f"not supported on Spark: {CANNOT[0]}")
            if isinstance(part, PerUnitGroupBy) and not is_private(part):
                refuse_query(f"not supported on Spark: {CANNOT[3]}")

    def require_readable_sql(self, sql: str) -> None:
        """Refuse names that Spark's parser would read differently."""
        for found in _NAME.finditer(sql):
            if found[1] is not None and ('""' in found[1] or "\\" in found[1]):
                refuse_query(f"not supported on Spark: {CANNOT[7]}", "use other names for tables and columns")

    def quote_table_name(self, name: str) -> str:
        """A declared table's name in quotes, always with its catalogue and schema: no temporary view stands before it."""
        schema, table = split_table_name(name)
        return ".".join(map(quote_identifier, (self.catalog, schema or self.schema, table)))

    def emit_constant(self, value: Value | Pairs) -> str:
        """As `values.emit_constant`."""
        return values.emit_constant(value)

    def emit_cast(self, text: str, kind: Type) -> str:
        """As `values.emit_cast`."""
        if kind is Type.LIST:
            refuse_query("lists as values are not supported on Spark")
        return values.emit_cast(text, kind)

    def emit_call_template(self, expr: Call) -> str:
        """As `functions.SPELLINGS` say."""
        return require_template(SPELLINGS, expr, "Spark as it is in DuckDB")

    def emit_bounded_column(self, column: Column) -> str:
        """As `columns.emit_bounded_column`."""
        return columns.emit_bounded_column(column)

    def emit_widened_column(self, column: Column) -> str:
        """As `columns.emit_widened_column`."""
        return columns.emit_widened_column(column)

    def emit_stored_column(self, column: Column) -> str:
        """As `columns.emit_stored_column`."""
        return columns.emit_stored_column(column)

    def emit_unit_id(self, unit: Column) -> str:
        """As it is read elsewhere: whole numbers of all sizes are BIGINT."""
        return columns.emit_widened_column(unit)

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """The first elements of an array; EXPLODE_OUTER makes NULL of one without elements."""
        explode = "EXPLODE_OUTER" if listed.outer else "EXPLODE"
        cut = f"SLICE({columns.emit_column_path(listed.stored)}, 1, {listed.max_elements})"
        return f"SELECT *, {explode}({cut}) AS {quote_identifier(listed.column.name)} FROM {table}"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Digests are texts of 64 hexadecimal digits in lower case."""
        digest = f"SHA2(CONCAT({values.emit_constant(secret)}, CAST({unit} AS STRING)), 256)"
        return f"{digest} < {values.emit_constant(f'{below:064x}')}"

    def emit_binary_collation(self, text: str) -> str:
        """Texts are read under the collation that compares bytes."""
        return text

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:  # noqa: ARG002
        """Refused: in a task that is tried again rows may have other numbers."""
        refuse_query(
            f"not supported on Spark: {CANNOT[4]}", "declare the column with the unit's id in the policy"
        )

    def emit_row_hash(self, unit: str) -> str:
        """Never asked for: rows have no ids."""
        raise LookupError(unit)

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """A hash of the values, each of which has one form."""
        return f"XXHASH64({', '.join(values)})"

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """RINT rounds half to even; a product of DOUBLE cannot fail, and TRY_CAST gives NULL beyond 64 bits."""
        product = f"CAST({number} AS DOUBLE) * {values.emit_constant(factor)}"
        return f"TRY_CAST(RINT({product}) AS BIGINT)"

    def emit_exact_sum(self, points: str, most: int) -> str:
        """A sum of DECIMAL has ten digits more, of at most 38: 2^46 numbers of 64 bits have 33.

        BIGINT is added up much faster. Of 2^46 numbers below 2^17 the sum has 63 bits; others below 2^34 are added up in two parts.
        """
        if most >= 2 ** (2 * PART):
            return f"SUM(CAST({points} AS {WIDE}))"
        if most < 2**PART:
            return f"CAST(SUM({points}) AS {WIDE})"
        whole = f"TRY_CAST({points} AS BIGINT)"  # what is of another type is no greater
        high, low = f"SUM(SHIFTRIGHT({whole}, {PART}))", f"SUM({whole} & {2**PART - 1})"
        return f"CAST(CAST({high} AS {WIDE}) * {2**PART} + {low} AS {WIDE})"

    def emit_day_number(self, day: str) -> str:
        """The difference of two days of the calendar is an INT."""
        return f"CAST(DATEDIFF({day}, DATE '0001-01-01') + 1 AS BIGINT)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """In the session's time zone, which is UTC."""
        return f"UNIX_MICROS(CAST({moment} AS TIMESTAMP))"

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> None:  # noqa: ARG002
        """DOUBLE is faster."""
        return

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> None:  # noqa: ARG002
        """Rows are grouped by interval."""
        return

    def emit_right_shift(self, number: str, bits: int) -> str:
        """Not the operator, which the parser reads as the end of two types where ARRAY stands before."""
        return f"SHIFTRIGHT({number}, {bits})"

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """38 digits, which hold all that a statement adds up and multiplies: see `planning.clamping.NORM_BITS`.

        BIGINT, where that suffices, is several times as quick.
        """
        return number if fits_int64(most) else f"CAST({number} AS {WIDE})"

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Within the ends, so that what is computed of it is; of NULL, LEAST and GREATEST would make an end."""
        if not fits_int64(low) or not fits_int64(high):
            return number
        return f"TRY_CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def to_double(self, number: str) -> str:
        """A cast, to the nearest DOUBLE."""
        return f"CAST({number} AS DOUBLE)"

    def cast_double_to_int(self, number: str, most: int) -> str:
        """A cast within the ends."""
        return self.to_narrow_int(number, 0, most)

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """In two parts of 64 bits: a cast of a DOUBLE to DECIMAL takes 17 digits. All of them are whole and exact."""
        first, second, part, times = map(values.emit_constant, (*factors, 2.0**-40, 2.0**40))
        high = f"RINT(a * {part})"
        low = f"TRY_CAST(a - {high} * {times} AS BIGINT)"
        parts = f"CAST(TRY_CAST({high} AS BIGINT) AS {WIDE}) * {2**40} + CAST({low} AS {WIDE})"
        return bind_arguments(f"CAST({parts} AS {WIDE})", f"RINT({number} * {first} * {second})")

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """A product of DOUBLE cannot fail."""
        first, second = map(values.emit_constant, factors)
        return f"CAST({number} AS DOUBLE) * {first} * {second}"

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """TRY_CAST gives NULL beyond 64 bits."""
        return values.emit_cast(number, kind)

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:  # noqa: ARG002
        """Whole numbers are added as wide ones; a mean is the quotient of two DOUBLE, as in DuckDB.

        Of several rows that are best by y, the one that is shown is best by x, too.
        """
        if function in ("arg_min", "arg_max"):
            best = f"{function.removeprefix('arg_').upper()}_BY({{0}}, STRUCT({{1}}, {{0}}))"
            return f"{best} FILTER (WHERE {{0}} IS NOT NULL AND {{1}} IS NOT NULL)"
        each = "DISTINCT " * function.endswith("_distinct")
        added = f"SUM({each}CAST({{0}} AS {WIDE}))"
        if function in ("sum", "sum_distinct"):
            return added
        if function not in ("avg", "avg_distinct"):
            return template
        return f"TRY_DIVIDE(CAST({added} AS DOUBLE), CAST(COUNT({each}{{0}}) AS DOUBLE))"

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """IGNORE NULLS stands after the parentheses."""
        return f"{function}({', '.join(arguments)}){' IGNORE NULLS' * ignore_nulls}{over}"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """What is left of a division is taken away before, so that the quotient is whole; it has at most 32 digits.

        DIV of BIGINT cuts digits off, too; no divisor is 0.
        """
        if fits_int64(most):
            return f"{dividend} DIV {divisor}"
        ours, theirs = (f"CAST({number} AS {WIDE})" for number in (dividend, divisor))
        return f"CAST(TRY_DIVIDE({ours} - TRY_MOD({ours}, {theirs}), {theirs}) AS {WIDE})"

    def emit_derived_table(self, query: str, name: str = '"#rows"', *, once: bool = False) -> str:  # noqa: ARG002
        """A query in FROM has a name; what takes long is held."""
        return f"({query}) AS {name}"

    def emit_coalesced_query(self, query: str) -> str:
        """What is in one partition is added up without another shuffle."""
        return f"SELECT /*+ COALESCE(1) */ * FROM {self.emit_derived_table(query)}"

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Never asked for: no units are looked for before the groups of all are put in order."""
        raise LookupError(left, right, anti)

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """IS NOT DISTINCT FROM is a condition by which rows are shuffled."""
        equal = " AND ".join(f"{ours} IS NOT DISTINCT FROM {theirs}" for ours, theirs in on)
        return f"FULL JOIN ({query}) AS {name} ON {equal}"

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """An array of arrays, which are in the order of their elements."""
        return f"SORT_ARRAY(COLLECT_LIST(ARRAY({', '.join(items)})) FILTER (WHERE {order} IS NOT NULL))"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Never asked for: what would read many histograms at once is read in stages."""
        raise LookupError(query, keys, rows, names)

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """An array that is put together of two."""
        pair = f"ARRAY(CAST(p AS {WIDE}), CAST(n AS {WIDE}))"
        first = f"ARRAY(CAST(MIN(total) AS {WIDE}), CAST(MIN(before) AS {WIDE}))"
        packed = f"CONCAT({first}, FLATTEN(SORT_ARRAY(COLLECT_LIST({pair})))) AS {name}"
        return f"SELECT {', '.join([*keys, packed])} FROM {self.emit_derived_table(rows)}{by} HAVING COUNT(*) > 0"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Elements by their places, which a sequence gives; GET gives NULL where there is none."""
        place = f"CAST((2 * CAST(i AS BIGINT) + 1) * SIZE({values}) DIV (2 * GREATEST({most}, 1)) AS INT)"
        series = f"SEQUENCE(CAST(0 AS BIGINT), GREATEST(CAST({most} AS BIGINT), 1) - 1)"
        some = f"TRANSFORM({series}, i -> GET({values}, {place}))"
        return f"EXPLODE(CASE WHEN SIZE({values}) <= {most} THEN {values} ELSE {some} END)"

    def emit_value_list_aggregate(self, value: str) -> str:
        """An array, without NULL; an empty one is none."""
        return f"NULLIF(SORT_ARRAY(COLLECT_LIST({value})), CAST(ARRAY() AS ARRAY<BIGINT>))"


def refuse_query(rule: str, hint: str | None = None) -> NoReturn:
    """Refuses a query that another engine could be asked."""
    raise QueryRejected(
        rule, code="engine", hint=hint or "the engines reference lists the features of each engine"
    )


def _iterate_relations(relation: Relation) -> Iterator[Relation]:
    yield relation
    for part in list_inputs(relation):
        yield from _iterate_relations(part)


def _has_frame_exclusion(window: WindowCall) -> bool:
    return OVER[window.function].depends_on_frame and window.frame is not None and window.frame.exclude != ""
