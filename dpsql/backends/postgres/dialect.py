"""The dialect of PostgreSQL, and the features that it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

from dpsql.backends.dialect import TABLES, fits_int64
from dpsql.backends.function_spellings import APPROXIMATE, require_template
from dpsql.backends.postgres import columns, values
from dpsql.backends.postgres.functions import SPELLINGS, WORK
from dpsql.backends.quoting import quote_identifier
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Column, WorkRule
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

NAME_BYTES = 63
"""PostgreSQL truncates longer names, so that two names may become equal."""
SCHEMA = "public"
"""The schema of a table that the policy names without one."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'(?:[^\']|\'\')*\'')
_OPERATORS = (
    *(Scan, Filter, Join, SemiJoin, Project, PerUnitGroupBy),
    *(PerUnitWindows, SetOperation, PublicSubquery, Values),
)
_BY_PLACE = frozenset({"quantile_cont", "quantile_disc", "median", "arg_min", "arg_max"})

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

MOST_ELEMENTS = 2**20
"""The largest number of elements of an array with several dimensions."""
CANNOT = (
    "IGNORE NULLS in windows within a unit whose frames have EXCLUDE",
    "interpolated quantiles within a unit, except the median and, of bounded whole numbers, q = k / 2^j such as 0.25",
    "quantiles within a unit of more than 6 digits",
    "joins of private rows to more than 10,000 groups of public rows, or to groups of released values",
    "fields of composite types, and elements of arrays of composite types, enumerated types and domains",
    "names of more than 63 bytes",
    "views, materialized views, foreign tables and tables with row security",
)
"""Features that are refused with code `engine`, or, for tables, when the policy is checked."""


@dataclass(frozen=True, slots=True)
class PostgresDialect:
    """The dialect of PostgreSQL: NUMERIC for wide whole numbers, CASE around operations that may fail, arrays."""

    nan: str = values.NAN
    supports_stages: bool = False
    materializes_ctes: bool = False
    ranks_all_groups: bool = False
    unnests_constant_lists: bool = False
    groups_by_domain_index: bool = False
    supports_public_groups: bool = False
    supports_ignore_nulls: bool = False
    supports_groups_frames: bool = True
    short_circuits: bool = True
    approximate_functions: frozenset[str] = APPROXIMATE
    numbered_row_aggregates: frozenset[str] = _BY_PLACE
    work_rules: Mapping[str, WorkRule] = field(default_factory=lambda: WORK)

    def require_supported_release(self, release: Release) -> None:
        """Refuse the features in `CANNOT`, and every unknown operator."""
        for part in _iterate_relations(release.input):
            if not isinstance(part, _OPERATORS):
                refuse_query("this query is not supported on PostgreSQL")
            if isinstance(part, PerUnitGroupBy) and not is_private(part):
                refuse_query(f"not supported on PostgreSQL: {CANNOT[3]}")

    def require_readable_sql(self, sql: str) -> None:
        """Refuse names that PostgreSQL would truncate, and the character NUL."""
        if "\x00" in sql:
            refuse_query("texts of PostgreSQL cannot contain the character NUL")
        for found in _NAME.finditer(sql):
            if len((found[1] or "").replace('""', '"').encode(errors="replace")) > NAME_BYTES:
                refuse_query(
                    f"not supported on PostgreSQL: {CANNOT[5]}", "use shorter names for tables and columns"
                )

    def quote_table_name(self, name: str) -> str:
        """Quote a declared table's name, always with its schema, so that the search path does not matter."""
        schema, table = split_table_name(name)
        return f"{quote_identifier(schema or SCHEMA)}.{quote_identifier(table)}"

    def emit_constant(self, value: Value | Pairs) -> str:
        """As `values.emit_constant`."""
        return values.emit_constant(value)

    def emit_cast(self, text: str, kind: Type) -> str:
        """As `values.emit_cast`."""
        return values.emit_cast(text, kind)

    def emit_call_template(self, expr: Call) -> str:
        """As `functions.SPELLINGS` say."""
        return require_template(SPELLINGS, expr, "PostgreSQL")

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
        """The first elements by their places, as an array may number them from anywhere; of several dimensions, row by row.

        An array of one dimension is cut before it is unnested, as PostgreSQL stores all elements of one that is unnested: one row
        could fill the disk, or take all the time that a statement has. One of more dimensions and `MOST_ELEMENTS` is as NULL.
        """
        (column,) = listed.stored
        read = quote_identifier(column)
        last = f"CAST(LEAST(ARRAY_UPPER({read}, 1), CAST(ARRAY_LOWER({read}, 1) AS BIGINT) + {listed.max_elements - 1}) AS INTEGER)"
        whole = f"WHEN CARDINALITY({read}) <= {MOST_ELEMENTS} THEN {read}"
        few = f"CASE WHEN ARRAY_NDIMS({read}) = 1 THEN ({read})[ARRAY_LOWER({read}, 1):{last}] {whole} END"
        items = f"UNNEST({few}) WITH ORDINALITY AS e (v, place)"
        cut = f"WHERE place <= {listed.max_elements}"
        first = f"SELECT v AS {quote_identifier(listed.column.name)} FROM {items} {cut}"
        join = "LEFT JOIN" if listed.outer else "JOIN"
        return f'SELECT * FROM {table} {join} LATERAL ({first}) AS "#elements" ON TRUE'

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Digests are bytes, and so compared. A connection requires a database in UTF-8, to which no text fails to convert."""
        digest = f"SHA256(CONVERT_TO({values.emit_constant(secret)} || CAST({unit} AS TEXT), 'UTF8'))"
        return f"{digest} < DECODE('{below:064x}', 'hex')"

    def emit_binary_collation(self, text: str) -> str:
        """A text under the collation that compares bytes."""
        return f'({text} COLLATE "C")'

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """A hash of the values that are read, each hashed for itself, as all of them together may be too long a text."""
        hashed = self.emit_shuffle_key([f"HASHTEXTEXTENDED(CAST({value} AS TEXT), 0)" for value in values])
        unique = f"CAST({hashed} & {2**63 - 1} AS NUMERIC) * {2**63} + ROW_NUMBER() OVER ()"
        return f"{unique} + {table * TABLES}" if table else unique

    def emit_row_hash(self, unit: str) -> str:
        """What is above 2^63."""
        return f"DIV({unit}, {2**63})"

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """A hash of the hash of a row of them.

        The hash of a row adds those of its values up, so that the groups of all units would follow one another alike.
        """
        return f"HASHINT8EXTENDED(HASH_RECORD_EXTENDED(ROW({', '.join(values)}), 0), 0)"

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Cast within 64 bits alone; what would be too small for a DOUBLE is 0.

        A factor of at least 1 needs the number once, which may be long: the ends, which stand for NULL and for what is beyond
        them, become NULL.
        """
        far = values.emit_constant(min(2.0**62 / factor, 1.7e308))
        if factor < 1:
            near = values.emit_constant(2.0**-1022 / factor)
            product = f"{number} * {values.emit_constant(factor)}"
            tiny = f"WHEN {number} BETWEEN -{near} AND {near} THEN 0 "
            return f"CASE {tiny}WHEN {number} BETWEEN -{far} AND {far} THEN CAST({product} AS BIGINT) END"
        within = f"NULLIF(NULLIF(LEAST(GREATEST({number}, -{far}), {far}), -{far}), {far})"
        return f"CAST({within} * {values.emit_constant(factor)} AS BIGINT)"

    def emit_exact_sum(self, points: str, most: int) -> str:  # noqa: ARG002
        """A sum of BIGINT is a NUMERIC."""
        return f"SUM({points})"

    def emit_day_number(self, day: str) -> str:
        """A difference of days."""
        return f"({day} - DATE '0001-01-01' + 1)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """EXTRACT gives a NUMERIC, which is exact."""
        return f"CAST(EXTRACT(EPOCH FROM {moment}) * 1000000 AS BIGINT)"

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> None:  # noqa: ARG002
        """DOUBLE is as fast."""
        return

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> None:  # noqa: ARG002
        """Rows are grouped by interval."""
        return

    def emit_right_shift(self, number: str, bits: int) -> str:
        """An operator."""
        return f"({number} >> {bits})"

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """NUMERIC has as many digits as it takes; BIGINT, where that suffices, is several times as quick."""
        return number if fits_int64(most) else f"CAST({number} AS NUMERIC)"

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Cast within the ends, so that no number fails; of NULL, LEAST and GREATEST would make an end."""
        if not fits_int64(low) or not fits_int64(high):
            return number
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def to_double(self, number: str) -> str:
        """A cast, of at most 2^190."""
        return f"CAST({number} AS {values.REAL})"

    def cast_double_to_int(self, number: str, most: int) -> str:
        """A cast within the ends. The number is written once, as it is computed each time; NaN is above all numbers."""
        low, high = values.emit_constant(0.0), values.emit_constant(float(most))
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """In two parts of 64 bits, where one does not suffice: NUMERIC takes 15 digits of a DOUBLE.

        Beyond 2^62 a DOUBLE is whole, and so is what is left of it after a multiple of 2^40, which is exact.
        """
        first, second = factors
        near = values.emit_constant(min(2.0**-1021 / min(first, 1.0) / min(second, 1.0), 2.0**1000))
        far, part, times = (values.emit_constant(2.0**exponent) for exponent in (62, -40, 40))
        high, low = f"FLOOR(b * {part})", f"b - FLOOR(b * {part}) * {times}"
        product = f"a * {values.emit_constant(first)} * {values.emit_constant(second)}"
        held = f'(SELECT CASE WHEN ABS(a) < {near} THEN 0 ELSE {product} END AS b FROM (SELECT {number} AS a OFFSET 0) AS "#held" OFFSET 0)'
        return (
            f"(SELECT CASE WHEN ABS(b) < {far} THEN CAST(CAST(b AS BIGINT) AS NUMERIC) WHEN ABS(b) < {values.emit_constant(2.0**90)} "
            f'THEN CAST(CAST({high} AS BIGINT) AS NUMERIC) * {2**40} + CAST({low} AS BIGINT) END FROM {held} AS "#point")'
        )

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Where the product is beyond all DOUBLE, it is infinite."""
        first, second = map(values.emit_constant, factors)
        most = values.emit_constant(min(1.7e308 / max(factors[0], 1.0) / max(factors[1], 1.0), 1.7e308))
        real = f"CAST({number} AS {values.REAL})"
        return (
            f"CASE WHEN {real} > {most} THEN {values.INFINITY} WHEN {real} < -{most} THEN -{values.INFINITY} "
            f"ELSE {real} * {first} * {second} END"
        )

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """Within 64 bits, compared as NUMERIC: the greatest BIGINT is no DOUBLE. All other types have every value."""
        if kind is not Type.INTEGER:
            return values.emit_cast(number, kind)
        return f"CASE WHEN CAST({number} AS NUMERIC) BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({number} AS BIGINT) END"

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """A mean is the quotient of two DOUBLE, as in DuckDB; NULL, of no value, divided by 0 is NULL.

        UUID and BLOB are in the order of their digits; of BOOLEAN, the least says whether all are true.
        """
        if kind is not None and kind in _EXTREMES and function in ("min", "max"):
            return _EXTREMES[kind][function]
        if function not in ("avg", "avg_distinct"):
            return template
        each = "DISTINCT {0}" if function == "avg_distinct" else "{0}"
        return f"CAST(SUM({each}) AS {values.REAL}) / CAST(COUNT({each}) AS {values.REAL})"

    def emit_window_call(
        self,
        function: str,
        arguments: Sequence[str],
        over: str,
        *,
        ignore_nulls: bool,  # noqa: ARG002
    ) -> str:
        """NULLs are not ignored. A count that is no INTEGER, or below 1, would fail; no row is so far away."""
        *values, last = arguments or ("",)
        if function == "nth_value":
            last = f"CAST(CASE WHEN {last} BETWEEN 1 AND {2**31 - 1} THEN {last} END AS INTEGER)"
        return f"{function}({', '.join([*values, last])}){over}"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """DIV of NUMERIC; the operator of BIGINT cuts digits off, too."""
        return f"{dividend} / {divisor}" if fits_int64(most) else f"DIV({dividend}, {divisor})"

    def emit_derived_table(self, query: str, name: str = '"#rows"', *, once: bool = False) -> str:
        """A query in FROM has a name; one with OFFSET is not merged into the query around it."""
        return f"({query}{' OFFSET 0' * once}) AS {name}"

    def emit_coalesced_query(self, query: str) -> str:
        """As it is."""
        return query

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """EXISTS."""
        chosen = "NOT EXISTS" if anti else "EXISTS"
        return f'{left} WHERE {chosen} (SELECT 1 FROM {right} AS "#of" WHERE "#of".u = {left}.u)'

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """Equal arrays of texts: NULL equals NULL there, and a full join needs an equality that can be hashed."""
        ours, theirs = (", ".join(f"CAST({pair[side]} AS TEXT)" for pair in on) for side in (0, 1))
        return f"FULL JOIN ({query}) AS {name} ON ARRAY[{ours}] = ARRAY[{theirs}]"

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """An array of arrays."""
        return f"ARRAY_AGG(ARRAY[{', '.join(items)}] ORDER BY {order}) FILTER (WHERE {order} IS NOT NULL)"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """A lateral join with VALUES, which are prepared anew for each row: so they are columns and constants."""
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        lateral = f'LATERAL (VALUES {values}) AS "#each" ({", ".join(names)})'
        return f"SELECT {', '.join([*keys, *names])} FROM {self.emit_derived_table(query, once=True)} CROSS JOIN {lateral}"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """An array of pairs, whose elements UNNEST gives in their order."""
        pair = "ARRAY[CAST(p AS NUMERIC), CAST(n AS NUMERIC)]"
        first = "ARRAY[ARRAY[CAST(MIN(total) AS NUMERIC), CAST(MIN(before) AS NUMERIC)]]"
        pairs = ", ".join([*keys, f"{first} || ARRAY_AGG({pair} ORDER BY p) AS pairs"])
        flat = "(SELECT ARRAY_AGG(e ORDER BY o) FROM UNNEST(pairs) WITH ORDINALITY AS f(e, o))"
        inner = f"SELECT {pairs} FROM {self.emit_derived_table(rows)}{by} HAVING COUNT(*) > 0"
        return f"SELECT {', '.join([*keys, f'{flat} AS {name}'])} FROM {self.emit_derived_table(inner)}"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Elements by their places, which a series gives."""
        length = f"CARDINALITY({values})"
        place = f"DIV(CAST(2 * i + 1 AS NUMERIC) * {length}, 2 * GREATEST({most}, 1)) + 1"
        series = f"GENERATE_SERIES(0, CAST({most} AS BIGINT) - 1) AS g(i)"
        some = f"ARRAY(SELECT ({values})[CAST({place} AS INTEGER)] FROM {series})"
        return f"UNNEST(CASE WHEN {length} <= {most} THEN {values} ELSE {some} END)"

    def emit_value_list_aggregate(self, value: str) -> str:
        """An array."""
        return f"ARRAY_AGG({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"


POSTGRES = PostgresDialect()


def refuse_query(rule: str, hint: str | None = None) -> NoReturn:
    """Refuses a query that another engine could be asked."""
    raise QueryRejected(
        rule, code="engine", hint=hint or "the engines reference lists the features of each engine"
    )


def _iterate_relations(relation: Relation) -> Iterator[Relation]:
    yield relation
    for part in list_inputs(relation):
        yield from _iterate_relations(part)
