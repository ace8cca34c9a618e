"""The dialect of Spark: DECIMAL(38) for wide whole numbers, functions that try for operations that may fail, arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.backends.dialect import (
    CALENDAR,
    INTERPOLATED_QUANTILES,
    JOINS_TO_PUBLIC_GROUPS,
    QUANTILES_OF_MANY_DIGITS,
    Capabilities,
    ColumnSyntax,
    Dialect,
    FunctionSyntax,
    HashSyntax,
    IntegerSyntax,
    ListSyntax,
    PointSyntax,
    QuerySupport,
    QuerySyntax,
    fits_int64,
    iterate_relations,
    refuse_query,
)
from dpsql.backends.function_spellings import APPROXIMATE
from dpsql.backends.spark.functions import SPELLINGS, WORK, bind_arguments
from dpsql.backends.spark.values import VALUES, emit_constant
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Column, WindowCall
from dpsql.plan.interval import MOST_STORED
from dpsql.plan.nodes import PerUnitWindows, Release
from dpsql.plan.tables import UnnestedList
from dpsql.plan.types import Type
from dpsql.policy import split_table_name
from dpsql.policy.engine_types import parse_element_type, parse_struct_fields
from dpsql.policy.names import quote_identifier

# Sanitized columns of Spark's tables: widened, clamped to declared bounds, NULL outside a declared domain.


@dataclass(frozen=True)
class SparkColumns(ColumnSyntax):
    """Columns of Spark's tables. A field of a struct is read in brackets: after a dot it could be a column of a table of that name.

    Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is of
    the years 1 to 9999; each text is UTF-8, and has, as each blob, at most `MOST_STORED`. No stored value makes the reading fail,
    wherever Spark evaluates it.
    Why: all that is written is defined for every value of the engine type: TRY_CAST and TRY_VALIDATE_UTF8 give NULL where a cast
    would fail, and comparisons of one type always compare, NaN being greater than all numbers.
    Source: Spark 4.0 documentation, "ANSI compliance" and "NaN semantics"; Unicode 15, section 3.9 (UTF-8).
    """

    def emit_bounded_column(self, column: Column) -> str:
        """Clamp the column; a text that is in the domain is UTF-8, and not too long."""
        raw, facts = self.emit_stored_column(column), column.facts
        listed = facts.domain is not None and facts.engine_type in ("VARCHAR", "CHAR")
        read = _emit_binary_collation(raw, facts.engine_type) if listed else self.emit_widened_column(column)
        return self.emit_clamped_value(raw, read, facts)

    def emit_widened_column(self, column: Column) -> str:
        """Cast with TRY_CAST, and check the bytes and the length of texts."""
        raw, facts = self.emit_stored_column(column), column.facts
        match facts.type:
            case Type.VARCHAR if facts.engine_type in ("VARCHAR", "CHAR"):
                return emit_text(raw, facts.engine_type)
            case Type.VARCHAR:
                return f"CAST({raw} AS STRING)"
            case Type.BLOB:
                return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN {raw} END"
            case kind:
                return f"TRY_CAST({raw} AS {self.values.get_type_name(kind)})"


COLUMNS = SparkColumns(VALUES)


def emit_text(stored: str, engine: str) -> str:
    """Emit a text by its bytes, whatever its collation, and without the blanks that pad it to a fixed length.

    It is NULL where it is not UTF-8 or too long.
    """
    raw = _emit_binary_collation(stored, engine)
    return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN TRY_VALIDATE_UTF8({raw}) END"


def _emit_binary_collation(stored: str, engine: str) -> str:
    raw = f"({stored} COLLATE UTF8_BINARY)"
    return f"RTRIM({raw})" if engine == "CHAR" else raw


def emit_copied_column(column: str, kind: str) -> str:
    """Emit a column of a public table as Python can hold it: days and moments of the calendar alone."""
    return _emit_copied_value(quote_identifier(column), kind)


def _emit_copied_value(read: str, kind: str, depth: int = 0) -> str:
    of, inner = parse_element_type(kind), parse_struct_fields(kind)
    if of is not None:
        each = f"x{depth}"
        return f"TRANSFORM({read}, {each} -> {_emit_copied_value(each, of, depth + 1)})"
    if inner is not None:
        parts = (
            f"{emit_constant(name)}, {_emit_copied_value(f'{read}[{emit_constant(name)}]', of, depth)}"
            for name, of in inner.items()
        )
        return f"CASE WHEN {read} IS NOT NULL THEN NAMED_STRUCT({', '.join(parts)}) END"
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        at = read if kind == "DATE" else f"TRY_CAST({read} AS TIMESTAMP_NTZ)"
        low, high = map(emit_constant, CALENDAR[Type.DATE if kind == "DATE" else Type.TIMESTAMP])
        return f"CASE WHEN {at} BETWEEN {low} AND {high} THEN {at} END"
    return emit_text(read, kind) if kind in ("VARCHAR", "CHAR") else read


# The other parts of the dialect.


WIDE = "DECIMAL(38,0)"
"""The type of wide whole numbers. Of two of them, sums and products are of this type, too.

38 digits hold all that a statement adds up and multiplies: see `planning.clamping.NORM_BITS`.
"""
PART = 17
"""The bits of numbers of which 2^46 are added up in 64 bits, with a sign."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'[^\']*\'')
_EXCLUDED_ROWS = "frames with EXCLUDE in windows within a unit"
_ROW_IDS = "row ids of tables whose rows are units, which joins and DISTINCT need"
_ODD_NAMES = 'names that contain " or \\'


@dataclass(frozen=True)
class SparkSupport(QuerySupport):
    """The queries that Spark answers: not those with names that its parser would read differently."""

    def require_supported_release(self, release: Release) -> None:
        """Refuse frames with EXCLUDE, too."""
        for part in iterate_relations(release.input):
            if isinstance(part, PerUnitWindows) and any(map(_has_frame_exclusion, part.windows)):
                self.refuse_feature(_EXCLUDED_ROWS)
        QuerySupport.require_supported_release(self, release)

    def require_readable_sql(self, sql: str) -> None:
        """Refuse names that Spark's parser would read differently."""
        for found in _NAME.finditer(sql):
            if found[1] is not None and ('""' in found[1] or "\\" in found[1]):
                self.refuse_feature(_ODD_NAMES, "use other names for tables and columns")


def _has_frame_exclusion(window: WindowCall) -> bool:
    return OVER[window.function].depends_on_frame and window.frame is not None and window.frame.exclude != ""


@dataclass(frozen=True)
class SparkFunctions(FunctionSyntax):
    """The functions of Spark."""

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """Add whole numbers as wide ones, and divide two DOUBLE for a mean, as in DuckDB.

        If several rows are best by y, ARG_MIN and ARG_MAX show the one that is best by x, too.
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


@dataclass(frozen=True)
class SparkIntegers(IntegerSyntax):
    """BIGINT, whose sums wrap or fail beyond 64 bits, and DECIMAL of 38 digits, which is several times as slow."""

    def emit_exact_sum(self, points: str, most: int) -> str:
        """Add DECIMAL, whose sum has ten more digits, at most 38: 2^46 numbers of 64 bits have 33.

        BIGINT is added much faster. The sum of 2^46 numbers below 2^17 has 63 bits; others below 2^34 are added in two parts.
        """
        if most >= 2 ** (2 * PART):
            return f"SUM(CAST({points} AS {WIDE}))"
        if most < 2**PART:
            return f"CAST(SUM({points}) AS {WIDE})"
        whole = f"TRY_CAST({points} AS BIGINT)"  # what is of another type is no greater
        high, low = f"SUM(SHIFTRIGHT({whole}, {PART}))", f"SUM({whole} & {2**PART - 1})"
        return f"CAST(CAST({high} AS {WIDE}) * {2**PART} + {low} AS {WIDE})"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Subtract the remainder before dividing, so that the quotient is whole; it has at most 32 digits.

        DIV of BIGINT rounds toward zero, too; no divisor is 0.
        """
        if fits_int64(most):
            return f"{dividend} DIV {divisor}"
        ours, theirs = (f"CAST({number} AS {WIDE})" for number in (dividend, divisor))
        return f"CAST(TRY_DIVIDE({ours} - TRY_MOD({ours}, {theirs}), {theirs}) AS {WIDE})"

    def emit_right_shift(self, number: str, bits: int) -> str:
        """Avoid the operator, which the parser reads as the end of two types where ARRAY stands before."""
        return f"SHIFTRIGHT({number}, {bits})"


@dataclass(frozen=True)
class SparkPoints(PointSyntax):
    """Lattice points by RINT, which rounds half to even, and TRY_CAST, which gives NULL beyond 64 bits."""

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Round half to even with RINT; a product of DOUBLE cannot fail, and TRY_CAST gives NULL beyond 64 bits."""
        product = f"CAST({number} AS DOUBLE) * {self.values.emit_constant(factor)}"
        return f"TRY_CAST(RINT({product}) AS BIGINT)"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Cast two parts of 64 bits: a cast of a DOUBLE to DECIMAL takes 17 digits. The parts are whole and exact."""
        first, second, part, times = map(self.values.emit_constant, (*factors, 2.0**-40, 2.0**40))
        high = f"RINT(a * {part})"
        low = f"TRY_CAST(a - {high} * {times} AS BIGINT)"
        parts = f"CAST(TRY_CAST({high} AS BIGINT) AS {WIDE}) * {2**40} + CAST({low} AS {WIDE})"
        return bind_arguments(f"CAST({parts} AS {WIDE})", f"RINT({number} * {first} * {second})")

    def emit_day_number(self, day: str) -> str:
        """Use DATEDIFF: the difference of two days of the calendar is an INT."""
        return f"CAST(DATEDIFF({day}, DATE '0001-01-01') + 1 AS BIGINT)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """Use UNIX_MICROS in the session's time zone, which is UTC."""
        return f"UNIX_MICROS(CAST({moment} AS TIMESTAMP))"


@dataclass(frozen=True)
class SparkHashes(HashSyntax):
    """XXHASH64 and SHA2, which are defined for every value. Rows have no ids."""

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Refuse: in a task that is tried again rows may have other numbers."""
        refuse_query(
            f"not supported on Spark: {_ROW_IDS}", "declare the column with the unit's id in the policy"
        )

    def emit_row_hash(self, unit: str) -> str:
        """Raise LookupError: rows have no ids, so nobody asks for it."""
        raise LookupError(unit)

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Hash the values, each of which has one form."""
        return f"XXHASH64({', '.join(values)})"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Compare digests, which are texts of 64 hexadecimal digits in lower case."""
        digest = f"SHA2(CONCAT({self.values.emit_constant(secret)}, CAST({unit} AS STRING)), 256)"
        return f"{digest} < {self.values.emit_constant(f'{below:064x}')}"


@dataclass(frozen=True)
class SparkQueries(QuerySyntax):
    """Tables with the catalog and the schema of those that the policy names without a schema."""

    catalog: str
    schema: str

    def quote_table_name(self, name: str) -> str:
        """Quote a declared table's name, always with its catalog and schema: no temporary view hides it."""
        schema, table = split_table_name(name)
        return ".".join(map(quote_identifier, (self.catalog, schema or self.schema, table)))

    def emit_coalesced_query(self, query: str) -> str:
        """Coalesce to one partition, which is added up without another shuffle."""
        return f"SELECT /*+ COALESCE(1) */ * FROM {self.emit_derived_table(query)}"

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Raise LookupError: the groups of all units are ranked, so nobody asks for it."""
        raise LookupError(left, right, anti)

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Raise LookupError: many histograms are read in stages, so nobody asks for it."""
        raise LookupError(query, keys, rows, names)


@dataclass(frozen=True)
class SparkLists(ListSyntax):
    """Arrays, whose elements are found by their places and transformed by lambdas."""

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Collect an array of arrays, which are in the order of their elements."""
        return f"SORT_ARRAY(COLLECT_LIST(ARRAY({', '.join(items)})) FILTER (WHERE {order} IS NOT NULL))"

    def emit_value_list_aggregate(self, value: str) -> str:
        """Collect an array without NULL, or NULL if there are no values."""
        return f"NULLIF(SORT_ARRAY(COLLECT_LIST({value})), CAST(ARRAY() AS ARRAY<BIGINT>))"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Concatenate two arrays."""
        pair = f"ARRAY(CAST(point AS {WIDE}), CAST(point_values AS {WIDE}))"
        first = f"ARRAY(CAST(MIN(total_values) AS {WIDE}), CAST(MIN(values_before) AS {WIDE}))"
        packed = f"CONCAT({first}, FLATTEN(SORT_ARRAY(COLLECT_LIST({pair})))) AS {name}"
        return f"SELECT {', '.join([*keys, packed])} FROM {self.queries.emit_derived_table(rows)}{by} HAVING COUNT(*) > 0"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Find elements by their places, which a sequence gives; GET gives NULL where there is none."""
        place = f"CAST((2 * CAST(i AS BIGINT) + 1) * SIZE({values}) DIV (2 * GREATEST({most}, 1)) AS INT)"
        series = f"SEQUENCE(CAST(0 AS BIGINT), GREATEST(CAST({most} AS BIGINT), 1) - 1)"
        some = f"TRANSFORM({series}, i -> GET({values}, {place}))"
        return f"EXPLODE(CASE WHEN SIZE({values}) <= {most} THEN {values} ELSE {some} END)"

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Explode the first elements of an array; EXPLODE_OUTER keeps a row without elements, with NULL."""
        explode = "EXPLODE_OUTER" if listed.outer else "EXPLODE"
        cut = f"SLICE({self.columns.emit_column_path(listed.stored)}, 1, {listed.max_elements})"
        return f"SELECT *, {explode}({cut}) AS {quote_identifier(listed.column.name)} FROM {table}"


UNSUPPORTED = (
    _EXCLUDED_ROWS,
    INTERPOLATED_QUANTILES,
    QUANTILES_OF_MANY_DIGITS,
    JOINS_TO_PUBLIC_GROUPS,
    _ROW_IDS,
    "times of day and UUIDs, which Spark lacks",
    "structs and arrays with timestamps, whose unit the catalog does not state, and arrays of tables with timestamps of an unknown unit",
    _ODD_NAMES,
    "views, temporary views, and tables of files without types, such as CSV and JSON",
)


def make_spark_dialect(catalog: str = "spark_catalog", schema: str = "default") -> Dialect:
    """Return the dialect of a session, whose tables without a schema are of this catalog and schema."""
    queries = SparkQueries(catalog, schema)
    return Dialect(
        capabilities=Capabilities(
            materializes_ctes=True, ranks_all_groups=True, supports_groups_frames=False
        ),
        support=SparkSupport("Spark", UNSUPPORTED),
        values=VALUES,
        columns=COLUMNS,
        functions=SparkFunctions(
            where="Spark as it is in DuckDB",
            spellings=SPELLINGS,
            work_rules=WORK,
            approximate_functions=APPROXIMATE,
            numbered_row_aggregates=frozenset({"quantile_cont", "quantile_disc", "median"}),
        ),
        integers=SparkIntegers(VALUES, wide=WIDE),
        points=SparkPoints(VALUES),
        hashes=SparkHashes(VALUES),
        queries=queries,
        lists=SparkLists(COLUMNS, queries),
    )
