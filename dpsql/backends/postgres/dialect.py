"""The dialect of PostgreSQL: NUMERIC for wide whole numbers, CASE around operations that may fail, arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from dpsql.backends.dialect import (
    CALENDAR,
    INTERPOLATED_QUANTILES,
    JOINS_TO_PUBLIC_GROUPS,
    QUANTILES_OF_MANY_DIGITS,
    TABLES,
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
    refuse_query,
)
from dpsql.backends.function_spellings import APPROXIMATE
from dpsql.backends.postgres.functions import SPELLINGS, WORK
from dpsql.backends.postgres.values import INFINITY, REAL, VALUES, emit_constant
from dpsql.plan.expressions import Column
from dpsql.plan.interval import MOST_STORED
from dpsql.plan.tables import UnnestedList
from dpsql.plan.types import Type
from dpsql.policy import split_table_name
from dpsql.policy.engine_types import UNLIMITED, parse_element_type
from dpsql.policy.names import quote_identifier

# Sanitized columns of PostgreSQL's tables: widened, clamped to declared bounds, NULL outside a declared domain.


_DATED = {
    "DATE": Type.DATE,
    "TIMESTAMP": Type.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": Type.TIMESTAMP,
    "TIME": Type.TIME,
}
_WHOLE = frozenset({"SMALLINT", "INTEGER", "BIGINT"})
_NUMERIC = ("DECIMAL", UNLIMITED)
_FAR = 10**300
"""NUMERIC values beyond are infinite as DOUBLE, and digits after the point beyond its digits are rounded off."""


@dataclass(frozen=True)
class PostgresColumns(ColumnSyntax):
    """Columns of PostgreSQL's tables. Fields of composite types are not read.

    Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is of
    the years 1 to 9999, and each text or blob has at most `MOST_STORED`. No stored value makes the reading fail.
    Why: what can fail stands in a branch of a CASE whose condition excludes the values for which it does, and PostgreSQL evaluates
    a branch for rows that take it alone, where it reads a column. What is written of these columns rests on these bounds, not on
    conditions of the query.
    Source: PostgreSQL 15 manual, section 4.2.14 (evaluation order of CASE) and chapter 8 (data types).
    """

    def emit_bounded_column(self, column: Column) -> str:
        """Clamp the column; the bounds of NUMERIC are compared as NUMERIC, and a text of the domain is not too long."""
        facts = column.facts
        if facts.type is Type.DOUBLE and facts.interval.is_bounded and facts.engine_type.startswith(_NUMERIC):
            return _emit_bounded_numeric(column)
        stored = self.emit_stored_column(column)
        listed = facts.domain is not None and facts.type is Type.VARCHAR
        read = (
            self.values.emit_binary_collation(f"CAST({stored} AS TEXT)")
            if listed
            else self.emit_widened_column(column)
        )
        return self.emit_clamped_value(stored, read, facts)

    def emit_widened_column(self, column: Column) -> str:
        """Cast within the range of the type, and limit texts and blobs in their length."""
        raw, facts = self.emit_stored_column(column), column.facts
        match facts.type:
            case Type.INTEGER if facts.engine_type not in _WHOLE:
                return f"CASE WHEN {raw} BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({raw} AS BIGINT) END"
            case Type.DOUBLE if facts.engine_type == UNLIMITED:
                return (
                    f"CASE WHEN {raw} BETWEEN -{_FAR} AND {_FAR} THEN CAST(ROUND({raw}, 300) AS {REAL}) "
                    f"WHEN {raw} < 0 THEN -{INFINITY} WHEN {raw} > 0 THEN {INFINITY} END"
                )
            case Type.VARCHAR:
                text = f"CAST({raw} AS TEXT)"
                return f'(CASE WHEN OCTET_LENGTH({text}) <= {MOST_STORED} THEN {text} END COLLATE "C")'
            case Type.BLOB:
                return f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_STORED} THEN {raw} END"
            case Type.TIMESTAMP if facts.has_time_zone:
                return f"({raw} AT TIME ZONE 'UTC')"
            case kind:
                return f"CAST({raw} AS {self.values.get_type_name(kind)})"

    def emit_stored_column(self, column: Column) -> str:
        """Read NaN of NUMERIC, which is greater than all numbers, as NULL."""
        stored = quote_identifier(column.name)
        return f"NULLIF({stored}, 'NaN')" if column.facts.engine_type.startswith(_NUMERIC) else stored


COLUMNS = PostgresColumns(VALUES)


def _emit_bounded_numeric(column: Column) -> str:
    """Emit a NUMERIC column within its bounds, which are compared as NUMERIC: a cast to DOUBLE is slow, and so is made once.

    Claim: it is the clamped DOUBLE of `ColumnSyntax`.
    Why: the bounds are DOUBLE, and rounding to DOUBLE is monotone, so that a value between them stays there, and one beyond
    is rounded to the bound or beyond it, or is the bound here. NaN is greater than infinity.
    """
    stored = quote_identifier(column.name)
    rounded = f"ROUND({stored}, 300)" if column.facts.engine_type == UNLIMITED else stored
    low, high = map(float, column.facts.interval.ends)
    return (
        f"CASE WHEN {stored} BETWEEN {Decimal(low):f} AND {Decimal(high):f} THEN CAST({rounded} AS {REAL}) "
        f"WHEN {stored} < {Decimal(low):f} THEN {emit_constant(low)} WHEN {stored} < 'NaN' THEN {emit_constant(high)} END"
    )


def emit_copied_column(column: str, kind: str) -> str:
    """Emit a column of a public table as Python can hold it: days and moments of the calendar alone, and arrays of one dimension."""
    read, of = quote_identifier(column), parse_element_type(kind)
    if of is not None:
        each = f"SELECT {emit_copied_column('value', of)} FROM UNNEST({read}) WITH ORDINALITY AS elements (value, place) ORDER BY place"
        return f"CASE WHEN {read} IS NOT NULL THEN ARRAY({each}) END"
    if kind == UNLIMITED:
        return f"CASE WHEN {read} BETWEEN -1e300 AND 1e300 THEN CAST(ROUND({read}, 300) AS {REAL}) END"
    if kind.startswith("DECIMAL"):
        return f"NULLIF({read}, 'NaN')"
    if kind in _DATED:
        at = f"({read} AT TIME ZONE 'UTC')" if kind.endswith("ZONE") else read
        low, high = map(emit_constant, CALENDAR[_DATED[kind]])
        return f"CASE WHEN {at} BETWEEN {low} AND {high} THEN {at} END"
    return f"CAST({read} AS TEXT)" if kind == "VARCHAR" or kind.startswith("ENUM") else read


# The other parts of the dialect.


NAME_BYTES = 63
"""PostgreSQL truncates longer names, so that two names may become equal."""
SCHEMA = "public"
"""The schema of a table that the policy names without one."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'(?:[^\']|\'\')*\'')
_LONG_NAMES = f"names of more than {NAME_BYTES} bytes"


@dataclass(frozen=True)
class PostgresSupport(QuerySupport):
    """The queries that PostgreSQL answers: not those with names that it would truncate, or texts that it cannot hold."""

    def require_readable_sql(self, sql: str) -> None:
        """Refuse names that PostgreSQL would truncate, and the character NUL."""
        if "\x00" in sql:
            refuse_query("texts of PostgreSQL cannot contain the character NUL")
        for found in _NAME.finditer(sql):
            if len((found[1] or "").replace('""', '"').encode(errors="replace")) > NAME_BYTES:
                self.refuse_feature(_LONG_NAMES, "use shorter names for tables and columns")


_EXTREMES = MappingProxyType(
    {
        Type.BOOLEAN: {"min": "BOOL_AND({0})", "max": "BOOL_OR({0})"},
        Type.UUID: {
            name: f'CAST({name.upper()}(CAST({{0}} AS TEXT) COLLATE "C") AS UUID)' for name in ("min", "max")
        },
        Type.BLOB: {
            name: f"DECODE({name.upper()}(ENCODE({{0}}, 'hex') COLLATE \"C\"), 'hex')"
            for name in ("min", "max")
        },
    }
)
"""MIN and MAX for types that they do not support in every version."""


@dataclass(frozen=True)
class PostgresFunctions(FunctionSyntax):
    """The functions of PostgreSQL."""

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """Divide a sum by a count for a mean, both DOUBLE, as in DuckDB; NULL, of no value, divided by 0 is NULL.

        UUID and BLOB are in the order of their digits; the least BOOLEAN says whether all are true.
        """
        if kind is not None and kind in _EXTREMES and function in ("min", "max"):
            return _EXTREMES[kind][function]
        if function not in ("avg", "avg_distinct"):
            return template
        each = "DISTINCT {0}" if function == "avg_distinct" else "{0}"
        return f"CAST(SUM({each}) AS {REAL}) / CAST(COUNT({each}) AS {REAL})"

    def emit_window_call(
        self,
        function: str,
        arguments: Sequence[str],
        over: str,
        *,
        ignore_nulls: bool,
    ) -> str:
        """Cast a position to INTEGER, and others to NULL: one beyond INTEGER or below 1 would fail, and no window has such a row.

        IGNORE NULLS is never asked for: positions are computed.
        """
        *values, last = arguments or ("",)
        if function == "nth_value":
            last = f"CAST(CASE WHEN {last} BETWEEN 1 AND {2**31 - 1} THEN {last} END AS INTEGER)"
        return f"{function}({', '.join([*values, last])}){over}"


@dataclass(frozen=True)
class PostgresIntegers(IntegerSyntax):
    """BIGINT, whose sums PostgreSQL makes NUMERIC, and NUMERIC, which has as many digits as it takes."""

    def cast_double_to_int(self, number: str, most: int) -> str:
        """Cast within the ends. The number is written once, as it is computed each time; NaN is above all numbers."""
        low, high = self.values.emit_constant(0.0), self.values.emit_constant(float(most))
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Use DIV of NUMERIC, or the operator of BIGINT, which rounds toward zero, too; no divisor is 0."""
        return f"{dividend} / {divisor}" if fits_int64(most) else f"DIV({dividend}, {divisor})"


@dataclass(frozen=True)
class PostgresPoints(PointSyntax):
    """Lattice points by casts within 64 bits alone: PostgreSQL fails beyond them, and where a product is too large or too small."""

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Cast within 64 bits alone; a product that is too small for a DOUBLE is 0.

        A factor of at least 1 needs the number once, which may be long: the ends, which stand for NULL and for numbers beyond
        them, become NULL.
        """
        far = self.values.emit_constant(min(2.0**62 / factor, 1.7e308))
        if factor < 1:
            near = self.values.emit_constant(2.0**-1022 / factor)
            product = f"{number} * {self.values.emit_constant(factor)}"
            tiny = f"WHEN {number} BETWEEN -{near} AND {near} THEN 0 "
            return f"CASE {tiny}WHEN {number} BETWEEN -{far} AND {far} THEN CAST({product} AS BIGINT) END"
        within = f"NULLIF(NULLIF(LEAST(GREATEST({number}, -{far}), {far}), -{far}), {far})"
        return f"CAST({within} * {self.values.emit_constant(factor)} AS BIGINT)"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Cast two parts of 64 bits where one does not suffice: NUMERIC takes 15 digits of a DOUBLE.

        Beyond 2^62 a DOUBLE is whole, and so is its remainder after a multiple of 2^40, which is exact.
        """
        first, second = factors
        near = self.values.emit_constant(min(2.0**-1021 / min(first, 1.0) / min(second, 1.0), 2.0**1000))
        far, part, times = (self.values.emit_constant(2.0**exponent) for exponent in (62, -40, 40))
        high, low = f"FLOOR(b * {part})", f"b - FLOOR(b * {part}) * {times}"
        product = f"a * {self.values.emit_constant(first)} * {self.values.emit_constant(second)}"
        held = f'(SELECT CASE WHEN ABS(a) < {near} THEN 0 ELSE {product} END AS b FROM (SELECT {number} AS a OFFSET 0) AS "#held" OFFSET 0)'
        return (
            f"(SELECT CASE WHEN ABS(b) < {far} THEN CAST(CAST(b AS BIGINT) AS NUMERIC) WHEN ABS(b) < {self.values.emit_constant(2.0**90)} "
            f'THEN CAST(CAST({high} AS BIGINT) AS NUMERIC) * {2**40} + CAST({low} AS BIGINT) END FROM {held} AS "#point")'
        )

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Write infinity where the product is beyond all DOUBLE, and would fail."""
        first, second = map(self.values.emit_constant, factors)
        most = self.values.emit_constant(min(1.7e308 / max(factors[0], 1.0) / max(factors[1], 1.0), 1.7e308))
        real = f"CAST({number} AS {REAL})"
        return (
            f"CASE WHEN {real} > {most} THEN {INFINITY} WHEN {real} < -{most} THEN -{INFINITY} "
            f"ELSE {real} * {first} * {second} END"
        )

    def emit_epoch_microseconds(self, moment: str) -> str:
        """Use EXTRACT, which gives a NUMERIC and is exact."""
        return f"CAST(EXTRACT(EPOCH FROM {moment}) * 1000000 AS BIGINT)"


@dataclass(frozen=True)
class PostgresHashes(HashSyntax):
    """Hashes of texts and records, which are defined for every value, and SHA256."""

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Hash the values that are read, each for itself, as all of them together may be too long a text."""
        hashed = self.emit_shuffle_key([f"HASHTEXTEXTENDED(CAST({value} AS TEXT), 0)" for value in values])
        unique = f"CAST({hashed} & {2**63 - 1} AS NUMERIC) * {2**63} + ROW_NUMBER() OVER ()"
        return f"{unique} + {table * TABLES}" if table else unique

    def emit_row_hash(self, unit: str) -> str:
        """Divide by 2^63."""
        return f"DIV({unit}, {2**63})"

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Hash the hash of a record: the hash of a record adds up those of its values, so that all units would have their groups in one order."""
        return f"HASHINT8EXTENDED(HASH_RECORD_EXTENDED(ROW({', '.join(values)}), 0), 0)"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Compare digests as bytes. A connection requires a database in UTF-8, to which no text fails to convert."""
        digest = f"SHA256(CONVERT_TO({self.values.emit_constant(secret)} || CAST({unit} AS TEXT), 'UTF8'))"
        return f"{digest} < DECODE('{below:064x}', 'hex')"


@dataclass(frozen=True)
class PostgresQueries(QuerySyntax):
    """Tables with their schemas, and joins of arrays."""

    def quote_table_name(self, name: str) -> str:
        """Quote a declared table's name, always with its schema, so that the search path does not matter."""
        schema, table = split_table_name(name)
        return f"{quote_identifier(schema or SCHEMA)}.{quote_identifier(table)}"

    def emit_derived_table(self, query: str, name: str = '"#rows"', *, once: bool = False) -> str:
        """Add OFFSET to a query whose values are computed once: it is not merged into the query around it."""
        return f"({query}{' OFFSET 0' * once}) AS {name}"

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """Compare arrays of texts: NULL equals NULL there, and a full join needs an equality that can be hashed."""
        ours, theirs = (", ".join(f"CAST({pair[side]} AS TEXT)" for pair in on) for side in (0, 1))
        return f"FULL JOIN ({query}) AS {name} ON ARRAY[{ours}] = ARRAY[{theirs}]"


MOST_ELEMENTS = 2**20
"""The largest number of elements of an array with several dimensions."""


@dataclass(frozen=True)
class PostgresLists(ListSyntax):
    """Arrays, whose elements are read by their places."""

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Collect an array of arrays."""
        return f"ARRAY_AGG(ARRAY[{', '.join(items)}] ORDER BY {order}) FILTER (WHERE {order} IS NOT NULL)"

    def emit_value_list_aggregate(self, value: str) -> str:
        """Collect an array."""
        return f"ARRAY_AGG({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Collect an array of pairs, whose elements UNNEST gives in their order."""
        pair = "ARRAY[CAST(point AS NUMERIC), CAST(point_values AS NUMERIC)]"
        first = "ARRAY[ARRAY[CAST(MIN(total_values) AS NUMERIC), CAST(MIN(values_before) AS NUMERIC)]]"
        pairs = ", ".join([*keys, f"{first} || ARRAY_AGG({pair} ORDER BY point) AS pairs"])
        flat = "(SELECT ARRAY_AGG(number ORDER BY place) FROM UNNEST(pairs) WITH ORDINALITY AS numbers(number, place))"
        inner = f"SELECT {pairs} FROM {self.queries.emit_derived_table(rows)}{by} HAVING COUNT(*) > 0"
        return (
            f"SELECT {', '.join([*keys, f'{flat} AS {name}'])} FROM {self.queries.emit_derived_table(inner)}"
        )

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Find elements by their places, which a series gives."""
        length = f"CARDINALITY({values})"
        place = f"DIV(CAST(2 * step + 1 AS NUMERIC) * {length}, 2 * GREATEST({most}, 1)) + 1"
        series = f"GENERATE_SERIES(0, CAST({most} AS BIGINT) - 1) AS steps(step)"
        some = f"ARRAY(SELECT ({values})[CAST({place} AS INTEGER)] FROM {series})"
        return f"UNNEST(CASE WHEN {length} <= {most} THEN {values} ELSE {some} END)"

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Find the first elements by their places, as an array may number them from anywhere; of several dimensions, row by row.

        An array of one dimension is cut before it is unnested, as PostgreSQL stores all elements of one that is unnested: one row
        could fill the disk, or take all the time that a statement has. One of several dimensions and more than `MOST_ELEMENTS` is NULL.
        """
        (column,) = listed.stored
        read = quote_identifier(column)
        last = f"CAST(LEAST(ARRAY_UPPER({read}, 1), CAST(ARRAY_LOWER({read}, 1) AS BIGINT) + {listed.max_elements - 1}) AS INTEGER)"
        whole = f"WHEN CARDINALITY({read}) <= {MOST_ELEMENTS} THEN {read}"
        few = f"CASE WHEN ARRAY_NDIMS({read}) = 1 THEN ({read})[ARRAY_LOWER({read}, 1):{last}] {whole} END"
        items = f"UNNEST({few}) WITH ORDINALITY AS elements (value, place)"
        cut = f"WHERE place <= {listed.max_elements}"
        first = f"SELECT value AS {quote_identifier(listed.column.name)} FROM {items} {cut}"
        join = "LEFT JOIN" if listed.outer else "JOIN"
        return f'SELECT * FROM {table} {join} LATERAL ({first}) AS "#elements" ON TRUE'


UNSUPPORTED = (
    "IGNORE NULLS in windows within a unit whose frames have EXCLUDE",
    INTERPOLATED_QUANTILES,
    QUANTILES_OF_MANY_DIGITS,
    JOINS_TO_PUBLIC_GROUPS,
    "fields of composite types, and elements of arrays of composite types, enumerated types and domains",
    _LONG_NAMES,
    "views, materialized views, foreign tables and tables with row security",
)
_QUERIES = PostgresQueries()
POSTGRES = Dialect(
    capabilities=Capabilities(supports_stages=False, supports_ignore_nulls=False, short_circuits=True),
    support=PostgresSupport("PostgreSQL", UNSUPPORTED),
    values=VALUES,
    columns=COLUMNS,
    functions=PostgresFunctions(
        where="PostgreSQL",
        spellings=SPELLINGS,
        work_rules=WORK,
        approximate_functions=APPROXIMATE,
        numbered_row_aggregates=frozenset({"quantile_cont", "quantile_disc", "median", "arg_min", "arg_max"}),
    ),
    integers=PostgresIntegers(VALUES, wide="NUMERIC"),
    points=PostgresPoints(VALUES),
    hashes=PostgresHashes(VALUES),
    queries=_QUERIES,
    lists=PostgresLists(COLUMNS, _QUERIES),
)
