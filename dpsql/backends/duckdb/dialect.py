"""The dialect of DuckDB."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.backends.dialect import TABLES, ColumnBounds, fits_int64
from dpsql.backends.duckdb.sources import UNCHECKED, UNTYPED
from dpsql.backends.quoting import quote_identifier, quote_table_name
from dpsql.plan.expressions import Call, Column, ColumnInfo, WorkRule
from dpsql.plan.text_size import MOST_STORED
from dpsql.plan.types import Pairs, Type, Value

if TYPE_CHECKING:
    from dpsql.plan.nodes import Release
    from dpsql.plan.tables import UnnestedList


# Constants and casts as DuckDB's SQL writes them.


NAN = "CAST('NaN' AS DOUBLE)"


def emit_constant(value: Value | Pairs) -> str:
    """A constant of exactly the engine type that its plan type stands for.

    >>> emit_constant(3), emit_constant(0.5), emit_constant("it's")
    ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"CAST({value} AS BIGINT)"
        case float() if math.isinf(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            text = repr(value)
            text = text if "e" in text else f"{text}e0"
            return f"({text})" if value < 0 else text
        case str():
            return "'" + value.replace("'", "''") + "'"
        case tuple():
            return f"MAP_FROM_ENTRIES([{', '.join(f'({emit_constant(key)}, {emit_constant(n)})' for key, n in value)}])"
        case _:
            return _emit_typed_literal(value)


def _emit_typed_literal(value: dt.date | dt.time | uuid.UUID | bytes) -> str:
    """A constant that the engine writes as a text of its type."""
    match value:
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case uuid.UUID():
            return f"CAST('{value}' AS UUID)"
        case bytes():
            return f"CAST('{''.join(f'{chr(92)}x{byte:02X}' for byte in value)}' AS BLOB)"


def emit_cast(text: str, kind: Type) -> str:
    """The SQL of a value as one of a type; what is always NULL has none, and a list says its own."""
    return text if kind in (Type.NULL, Type.LIST) else f"TRY_CAST({text} AS {kind.value})"


# The shape of an emitted statement: its text without its constants, by which the engine binds it alike.


_CONSTANT = re.compile(
    r"""
    (?P<name>"(?:[^"]|"")*") | (?P<text>'(?:[^']|'')*')
    | (?<!\w)(?: (?P<double>\d+(?:\.\d+)?e[+-]?\d+) | (?P<decimal>\d+\.\d+) | (?P<whole>\d+) )
    """,
    re.VERBOSE,
)
_WIDTHS = (31, 63, 127)
"""Binary digits of the magnitudes of DuckDB's INTEGER, BIGINT and HUGEINT."""


def compute_statement_shape(sql: str) -> str:
    """The text of an emitted statement with a mark for the type of each text and number in it.

    Claim: of statements of one shape, the engine binds all or none.
    Why: binding resolves names and types. The type of a text or a floating-point number does not depend on its value, that
    of a whole number on its width alone, and what else binding reads of a constant, as a regular expression, was tried
    before. Names, and decimals, whose type has their digits, stay as they are.

    >>> print(compute_statement_shape("SELECT 'a''b', 3, 2147483648, 1.5, 2.5e0 FROM t1 WHERE x1 > -7"))
    SELECT '', #31, #63, 1.5, #e FROM t1 WHERE x1 > -#31
    """
    return _CONSTANT.sub(_mask_constant, sql)


def _mask_constant(found: re.Match[str]) -> str:
    if found["text"] is not None:
        return "''"
    if found["double"] is not None:
        return "#e"
    if found["whole"] is not None:
        digits = int(found["whole"]).bit_length() if len(found["whole"]) <= 40 else 128
        return next((f"#{width}" for width in _WIDTHS if digits <= width), found["whole"])
    return found[0]


# Sanitized columns: widened to a common type, clamped to declared bounds, NULL outside a declared domain.
#
# Claim: every value that is read is in the column's interval or domain, or is NULL; it is never NaN, and every text is UTF-8;
# each text or blob has at most `MOST_STORED` bytes.
# Why: each expression is total over the engine type; the condition that keeps a value is false for NaN, which the engine
# orders above infinity.
# Source: DuckDB's documentation, "Numeric types", on the order of NaN and infinities.


_NARROWER = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"})
INFINITY = "CAST('Infinity' AS DOUBLE)"
_COLUMN_BOUNDS = ColumnBounds(emit_constant, NAN, INFINITY)


def emit_bounded_column(column: Column) -> str:
    """The SQL that reads a column of the scanned table."""
    facts, read = column.facts, emit_widened_column(column)
    if facts.domain is None and facts.type in (Type.VARCHAR, Type.BLOB):
        return _emit_length_limit(read, facts.type)
    return _COLUMN_BOUNDS.emit_bounded_column(_emit_raw_column(column), read, facts)


def _emit_length_limit(read: str, kind: Type) -> str:
    """A text or blob that is not too long: within the expression, where no optimizer moves it away."""
    length = "STRLEN" if kind is Type.VARCHAR else "OCTET_LENGTH"
    return f"CASE WHEN {length}({read}) <= {MOST_STORED} THEN {read} END"


def emit_widened_column(column: Column) -> str:
    """The SQL that reads a column in the engine type of its plan type, whatever its value."""
    return _emit_widened_value(_emit_raw_column(column), column.facts)


def emit_unit_id(unit: Column) -> str:
    """A unit's id, of a type that two tables' ids can be compared in without any failing to convert."""
    whole = unit.type is Type.INTEGER and unit.facts.engine_type != UNTYPED
    return emit_stored_column(unit) if whole else emit_widened_column(unit)


def emit_stored_column(column: Column) -> str:
    """A column as it is stored, or a field of a STRUCT."""
    return emit_column_path(column.facts.path or (column.name,))


def emit_column_path(names: Sequence[str]) -> str:
    """A column of a table, or a field of one that is a STRUCT, which is NULL where that is."""
    read = quote_identifier(names[0])
    for name in names[1:]:
        read = f"struct_extract({read}, {emit_constant(name)})"
    return read


def _emit_raw_column(column: Column) -> str:
    raw = emit_stored_column(column)
    if column.facts.engine_type == UNCHECKED:
        # The engine's functions of text fail on bytes that are not UTF-8, and end every later query too.
        return f"TRY(decode(encode({raw})))"
    untyped = column.facts.engine_type == UNTYPED and column.facts.type is Type.INTEGER
    if untyped and column.facts.identity is not None:
        # '1' and '01' are two ids: only one of them is how a number is written.
        number = f"TRY_CAST({raw} AS BIGINT)"
        return f"CASE WHEN CAST({number} AS VARCHAR) = {raw} THEN {number} END"
    return f"TRY_CAST({raw} AS HUGEINT)" if untyped else raw


def _emit_widened_integer(raw: str, engine: str) -> str:
    if engine == "BIGINT":
        return raw
    return f"CAST({raw} AS BIGINT)" if engine in _NARROWER else f"TRY_CAST({raw} AS BIGINT)"


def _emit_widened_value(raw: str, facts: ColumnInfo) -> str:
    if facts.type is Type.INTEGER:
        return _emit_widened_integer(raw, facts.engine_type)
    wanted = facts.type.value
    if facts.has_time_zone and facts.type is Type.TIMESTAMP:
        # A cast would go by the session's time zone. TRY, because the engine does not say that the conversion fails on no bits.
        raw = f"TRY({raw} AT TIME ZONE 'UTC')"
        return raw if facts.engine_type == "TIMESTAMP WITH TIME ZONE" else f"TRY_CAST({raw} AS TIMESTAMP)"
    read = raw if facts.engine_type in (wanted, UNCHECKED) else f"TRY_CAST({raw} AS {wanted})"
    # Under a collation, which of two equal texts stands for a group would depend on one row.
    return f'({read} COLLATE "binary")' if facts.type is Type.VARCHAR else read


_NUMBERS = f"CAST({2**63} AS HUGEINT)"


@dataclass(frozen=True, slots=True)
class DuckDBDialect:
    """DuckDB's: whole numbers of 128 bits, TRY_CAST and TRY, lists, semi-joins."""

    nan: str = NAN
    supports_stages: bool = True
    materializes_ctes: bool = False
    ranks_all_groups: bool = False
    unnests_constant_lists: bool = True
    groups_by_domain_index: bool = True
    supports_public_groups: bool = True
    supports_ignore_nulls: bool = True
    supports_groups_frames: bool = True
    short_circuits: bool = False
    approximate_functions: frozenset[str] = frozenset()
    numbered_row_aggregates: frozenset[str] = frozenset()
    work_rules: Mapping[str, WorkRule] = field(default_factory=dict)

    def require_supported_release(self, release: Release) -> None:
        """Nothing is refused: what is lowered is what this engine can do."""

    def require_readable_sql(self, sql: str) -> None:
        """As `require_supported_release`."""

    def quote_table_name(self, name: str) -> str:
        """A declared table's name in quotes."""
        return quote_table_name(name)

    def emit_constant(self, value: Value | Pairs) -> str:
        """As `emit_constant`."""
        return emit_constant(value)

    def emit_cast(self, text: str, kind: Type) -> str:
        """As `emit_cast`."""
        return emit_cast(text, kind)

    def emit_call_template(self, expr: Call) -> str:
        """The entry's template: of arithmetic that gives a whole number in a form that cannot leave 64 bits."""
        return (
            expr.function.integer_sql
            if expr.function.integer_sql and expr.type is Type.INTEGER
            else expr.function.sql
        )

    def emit_bounded_column(self, column: Column) -> str:
        """As `emit_bounded_column`."""
        return emit_bounded_column(column)

    def emit_widened_column(self, column: Column) -> str:
        """As `emit_widened_column`."""
        return emit_widened_column(column)

    def emit_stored_column(self, column: Column) -> str:
        """As `emit_stored_column`."""
        return emit_stored_column(column)

    def emit_unit_id(self, unit: Column) -> str:
        """As `emit_unit_id`."""
        return emit_unit_id(unit)

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """A list is cut by LIST_SLICE; one without elements is a list of NULL alone where its row stays."""
        cut = f"list_slice({emit_column_path(listed.stored)}, 1, {listed.max_elements})"
        if listed.outer:
            cut = f"CASE WHEN LEN({cut}) > 0 THEN {cut} ELSE [NULL] END"
        return f"SELECT *, UNNEST({cut}) AS {quote_identifier(listed.column.name)} FROM {table}"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Digests are texts of 64 hexadecimal digits in lower case."""
        digest = f"SHA256(CONCAT({emit_constant(secret)}, CAST({unit} AS VARCHAR)))"
        return f"{self.emit_binary_collation(digest)} < {emit_constant(f'{below:064x}')}"

    def emit_binary_collation(self, text: str) -> str:
        """A text under the collation that compares bytes."""
        return f'({text} COLLATE "binary")'

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:  # noqa: ARG002
        """Of all values of the row. Tables have fewer rows than 2^55, so that what is added stays below the hash.

        They are hashed as one struct: a function of several texts wants them in one collation.
        """
        unique = f"CAST(HASH(ROW(*COLUMNS(*))) >> 1 AS HUGEINT) * {_NUMBERS} + ROW_NUMBER() OVER ()"
        return f"{unique} + {table * TABLES}" if table else unique

    def emit_row_hash(self, unit: str) -> str:
        """The upper bits."""
        return f"{unit} // {_NUMBERS}"

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Hashed twice: one hash of several values is correlated with each of them, and would favour some keys."""
        return f"HASH(HASH({', '.join(values)}))"

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """A cast rounds half to even."""
        return f"TRY_CAST({number} * {emit_constant(factor)} AS BIGINT)"

    def emit_exact_sum(self, points: str, most: int) -> str:  # noqa: ARG002
        """A sum of BIGINT is a HUGEINT."""
        return f"SUM({points})"

    def emit_day_number(self, day: str) -> str:
        """A difference of days."""
        return f"({day} - DATE '0001-01-01' + 1)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """EPOCH_US."""
        return f"EPOCH_US({moment})"

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> str:
        """With a bound in the last branch the optimizer knows how large points are, and whether sums need 128 bits."""
        within = f"WHEN {stored} BETWEEN {low} AND {high} THEN {stored}"
        beyond = f"WHEN {stored} < {low} THEN {low} WHEN {stored} IS NULL THEN {stored} ELSE {high}"
        return f"TRY_CAST(CASE {within} {beyond} END * {factor} AS BIGINT)"

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> str:
        """HISTOGRAM looks ends up, where a CASE of as many is planned for longer than it runs. The casts are within the ends."""
        kind = "BIGINT" if fits_int64(ends[-1]) else "HUGEINT"
        least, *_, most = ends
        listed = f"[{', '.join(map(str, ends))}]::{kind}[]"
        counts = f"HISTOGRAM(CAST(GREATEST(LEAST({number}, {most}), {least}) AS {kind}), {listed})"
        return f"UNNEST([{', '.join(map(str, places))}]) AS b, UNNEST(MAP_VALUES({counts})) AS n"

    def emit_right_shift(self, number: str, bits: int) -> str:
        """An operator."""
        return f"({number} >> {bits})"

    def to_wide_int(self, number: str, most: int | None = None) -> str:  # noqa: ARG002
        """A HUGEINT has 128 bits."""
        return f"{number}::HUGEINT"

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """A cast that cannot fail: what is stored and looked up has half the size."""
        return f"TRY_CAST({number} AS BIGINT)" if fits_int64(low) and fits_int64(high) else number

    def to_double(self, number: str) -> str:
        """A cast."""
        return f"CAST({number} AS DOUBLE)"

    def cast_double_to_int(self, number: str, most: int) -> str:  # noqa: ARG002
        """A cast."""
        return f"CAST({number} AS HUGEINT)"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """A cast rounds half to even."""
        first, second = map(emit_constant, factors)
        return f"CAST({number} * {first} * {second} AS HUGEINT)"

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """A product of DOUBLE cannot fail."""
        first, second = map(emit_constant, factors)
        return f"({number}) * {first} * {second}"

    def emit_aggregate_cast(self, number: str, kind: Type) -> str:
        """TRY_CAST."""
        return f"TRY_CAST({number} AS {kind.value})"

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:  # noqa: ARG002
        """As the registry has it."""
        return template

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """IGNORE NULLS stands after the arguments."""
        return f"{function}({', '.join(arguments)}{' IGNORE NULLS' * ignore_nulls}){over}"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:  # noqa: ARG002
        """The operator of whole numbers."""
        return f"{dividend} // {divisor}"

    def emit_derived_table(self, query: str, name: str = "", *, once: bool = False) -> str:  # noqa: ARG002
        """A query in FROM needs no name; its values are computed once."""
        return f"({query}) AS {name}" if name else f"({query})"

    def emit_coalesced_query(self, query: str) -> str:
        """As it is."""
        return query

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Joins of their own."""
        return f"{left} {'ANTI' if anti else 'SEMI'} JOIN {right} USING (u)"

    def emit_full_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """IS NOT DISTINCT FROM is a condition of a hash join."""
        equal = " AND ".join(f"{ours} IS NOT DISTINCT FROM {theirs}" for ours, theirs in on)
        return f"FULL JOIN ({query}) AS {name} ON {equal}"

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """A list of lists."""
        return f"LIST([{', '.join(items)}] ORDER BY {order}) FILTER (WHERE {order} IS NOT NULL)"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """A list of structs, whose fields are columns."""
        each = (
            f"{{{', '.join(f'{name}: {text}' for name, text in zip(names, row, strict=True))}}}"
            for row in rows
        )
        items = ", ".join([*keys, f"UNNEST([{', '.join(each)}], recursive := true)"])
        return f"SELECT {items} FROM {self.emit_derived_table(query)}"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """A list that is put together of two."""
        packed = f"LIST_CONCAT([MIN(total), MIN(before)], FLATTEN(LIST([p, n] ORDER BY p))) AS {name}"
        return f"SELECT {', '.join([*keys, packed])} FROM (\n    {rows}){by} HAVING COUNT(*) > 0"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Elements by their places, which a lambda computes."""
        place = f"TRY_CAST((2 * i + 1)::HUGEINT * LEN({values}) // (2 * GREATEST({most}, 1)::HUGEINT) + 1 AS BIGINT)"
        some = f"LIST_TRANSFORM(RANGE(TRY_CAST({most} AS BIGINT)), LAMBDA i: {values}[{place}])"
        return f"UNNEST(CASE WHEN LEN({values}) <= {most} THEN {values} ELSE {some} END)"

    def emit_value_list_aggregate(self, value: str) -> str:
        """A list."""
        return f"LIST({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"


DUCKDB = DuckDBDialect()
