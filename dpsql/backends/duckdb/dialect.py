"""The dialect of DuckDB: whole numbers of 128 bits, TRY_CAST and TRY, lists, semi-joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import duckdb

from dpsql.backends.dialect import (
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
    ValueSyntax,
    fits_int64,
)
from dpsql.backends.duckdb.sources import UNCHECKED, UNTYPED
from dpsql.backends.duckdb.versions import supports
from dpsql.backends.function_spellings import require_template
from dpsql.plan.expressions import Call, Column, ColumnInfo
from dpsql.plan.interval import MOST_STORED
from dpsql.plan.nodes import Release
from dpsql.plan.tables import UnnestedList
from dpsql.plan.types import Pairs, Type
from dpsql.policy.names import quote_identifier


@dataclass(frozen=True)
class DuckDBValues(ValueSyntax):
    """Constants and casts as DuckDB writes them.

    >>> VALUES.emit_constant(3), VALUES.emit_constant(0.5), VALUES.emit_constant("it's")
    ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
    """

    def _emit_double(self, value: float) -> str:
        """Emit a literal with an exponent, which DuckDB reads as a DOUBLE, and no DECIMAL."""
        if math.isinf(value):
            return f"CAST('{value}' AS DOUBLE)"
        text = repr(value)
        text = text if "e" in text else f"{text}e0"
        return f"({text})" if value < 0 else text

    def _emit_blob(self, value: bytes) -> str:
        return f"CAST('{''.join(f'{chr(92)}x{byte:02X}' for byte in value)}' AS BLOB)"

    def _emit_map(self, pairs: Pairs) -> str:
        items = (f"({self.emit_constant(key)}, {self.emit_constant(n)})" for key, n in pairs)
        return f"MAP_FROM_ENTRIES([{', '.join(items)}])"

    def emit_cast(self, text: str, kind: Type) -> str:
        """Cast with TRY_CAST; a list has a type of its own."""
        return text if kind is Type.LIST else ValueSyntax.emit_cast(self, text, kind)


VALUES = DuckDBValues(
    engine="DuckDB",
    types=MappingProxyType({kind: kind.value for kind in Type if kind not in (Type.LIST, Type.NULL)}),
    collation='"binary"',
)


@dataclass(frozen=True)
class DuckDBColumns(ColumnSyntax):
    """Columns of DuckDB's tables, of frames and of files.

    Claim: every value that is read is in the column's interval or domain, or is NULL; it is never NaN, and every text is UTF-8;
    each text or blob has at most `MOST_STORED` bytes.
    Why: each expression is total over the engine type; the condition that keeps a value is false for NaN, which the engine
    orders above infinity.
    Source: DuckDB's documentation, "Numeric types", on the order of NaN and infinities.
    """

    def emit_bounded_column(self, column: Column) -> str:
        """Clamp the column; a text or blob without a domain is limited in its length."""
        facts, read = column.facts, self.emit_widened_column(column)
        if facts.domain is None and facts.type in (Type.VARCHAR, Type.BLOB):
            return _emit_length_limit(read, facts.type)
        return self.emit_clamped_value(self._emit_raw_column(column), read, facts)

    def emit_widened_column(self, column: Column) -> str:
        """Cast where the stored type is another one."""
        return _emit_widened_value(self._emit_raw_column(column), column.facts)

    def emit_unit_id(self, unit: Column) -> str:
        """Read whole numbers as they are stored: all engine types of them can be compared without a conversion that fails."""
        whole = unit.type is Type.INTEGER and unit.facts.engine_type != UNTYPED
        return self.emit_stored_column(unit) if whole else self.emit_widened_column(unit)

    def emit_column_path(self, names: Sequence[str]) -> str:
        """Read fields with STRUCT_EXTRACT."""
        read = quote_identifier(names[0])
        for name in names[1:]:
            read = f"struct_extract({read}, {self.values.emit_constant(name)})"
        return read

    def _emit_raw_column(self, column: Column) -> str:
        raw = self.emit_stored_column(column)
        if column.facts.engine_type == UNCHECKED:
            # The engine's functions of text fail on bytes that are not UTF-8, and end every later query too.
            return f"TRY(decode(encode({raw})))"
        untyped = column.facts.engine_type == UNTYPED and column.facts.type is Type.INTEGER
        if untyped and column.facts.identity is not None:
            # '1' and '01' are two ids: only one of them is how a number is written.
            number = f"TRY_CAST({raw} AS BIGINT)"
            return f"CASE WHEN CAST({number} AS VARCHAR) = {raw} THEN {number} END"
        return f"TRY_CAST({raw} AS HUGEINT)" if untyped else raw


_NARROWER = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"})
_MOMENTS = frozenset({Type.DATE, Type.TIMESTAMP})
_COARSE_MOMENTS = frozenset({"TIMESTAMP_S", "TIMESTAMP_MS"})


def _emit_length_limit(read: str, kind: Type) -> str:
    """Emit a text or blob that is not too long: within the expression, where no optimizer moves the limit away."""
    length = "STRLEN" if kind is Type.VARCHAR else "OCTET_LENGTH"
    return f"CASE WHEN {length}({read}) <= {MOST_STORED} THEN {read} END"


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
    if facts.engine_type in _COARSE_MOMENTS and not supports("total_moments"):
        read = f"TRY({read})"
    # Under a collation, which of two equal texts stands for a group would depend on one row.
    return f'({read} COLLATE "binary")' if facts.type is Type.VARCHAR else read


@dataclass(frozen=True)
class DuckDBSupport(QuerySupport):
    """Everything is supported: what is lowered is what DuckDB can do."""

    def require_supported_release(self, release: Release) -> None:
        """Refuse nothing."""


@dataclass(frozen=True)
class DuckDBFunctions(FunctionSyntax):
    """The functions of the registry, which has DuckDB's templates."""

    def emit_call_template(self, expr: Call) -> str:
        """Return the entry's template; arithmetic on whole numbers has a form that cannot leave 64 bits.

        Raises QueryRejected (`engine_function`) for a function that the installed version lacks.
        """
        name, template = expr.function.name, expr.function.sql
        if name.startswith("overlay") and not supports("overlay"):
            require_template({}, expr, f"DuckDB {duckdb.__version__}")
        if name.startswith("date_trunc_") and not supports("total_truncation"):
            template = template.replace("TRY_CAST({0} AS TIMESTAMP)", "TRY(TRY_CAST({0} AS TIMESTAMP))")
            return f"TRY_CAST({template} AS TIMESTAMP)"
        if name == "split_part" and not supports("typed_null_lists"):
            return f"CAST({template} AS VARCHAR)"
        moments = {argument.type for argument in expr.arguments} & _MOMENTS
        if name == "cast_time" and moments and not supports("total_moments"):
            return template.replace("{0}", "CASE WHEN ISFINITE({0}) THEN {0} END")
        return (
            expr.function.integer_sql if expr.function.integer_sql and expr.type is Type.INTEGER else template
        )

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """Write IGNORE NULLS after the arguments."""
        return f"{function}({', '.join(arguments)}{' IGNORE NULLS' * ignore_nulls}){over}"


@dataclass(frozen=True)
class DuckDBIntegers(IntegerSyntax):
    """Whole numbers of 64 bits, whose sums DuckDB makes HUGEINT, and HUGEINT of 128 bits."""

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """Cast all numbers: a HUGEINT is as fast."""
        return f"{number}::{self.wide}"

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Cast with a cast that cannot fail: what is stored and looked up has half the size."""
        return f"TRY_CAST({number} AS BIGINT)" if fits_int64(low) and fits_int64(high) else number

    def cast_double_to_int(self, number: str, most: int) -> str:
        """Cast: 128 bits hold every such DOUBLE."""
        return f"CAST({number} AS {self.wide})"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Use the operator of whole numbers; no divisor is 0."""
        return f"{dividend} // {divisor}"


@dataclass(frozen=True)
class DuckDBPoints(PointSyntax):
    """Lattice points by casts, which round half to even; TRY_CAST gives NULL beyond 64 bits."""

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Cast the product."""
        return f"TRY_CAST({number} * {self.values.emit_constant(factor)} AS BIGINT)"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Cast the product: 128 bits hold 2^80."""
        first, second = map(self.values.emit_constant, factors)
        return f"CAST({number} * {first} * {second} AS HUGEINT)"

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Multiply: a product with a DOUBLE is one, and cannot fail."""
        first, second = map(self.values.emit_constant, factors)
        return f"({number}) * {first} * {second}"

    def emit_decimal_lattice_point(self, stored: str, low: str, high: str, factor: int) -> str:
        """Clamp with a bound in the last branch, which tells the optimizer how large points are, and whether sums need 128 bits."""
        within = f"WHEN {stored} BETWEEN {low} AND {high} THEN {stored}"
        beyond = f"WHEN {stored} < {low} THEN {low} WHEN {stored} IS NULL THEN {stored} ELSE {high}"
        return f"TRY_CAST(CASE {within} {beyond} END * {factor} AS BIGINT)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """Call EPOCH_US, which is defined for every timestamp."""
        return f"EPOCH_US({moment})"

    def emit_histogram_items(self, number: str, ends: Sequence[int], places: Sequence[int]) -> str:
        """Call HISTOGRAM, which looks ends up; a CASE of as many is planned for longer than it runs. The casts are within the ends."""
        kind = "BIGINT" if fits_int64(ends[-1]) else "HUGEINT"
        least, *_, most = ends
        listed = f"[{', '.join(map(str, ends))}]::{kind}[]"
        counts = f"HISTOGRAM(CAST(GREATEST(LEAST({number}, {most}), {least}) AS {kind}), {listed})"
        return f"UNNEST([{', '.join(map(str, places))}]) AS interval_index, UNNEST(MAP_VALUES({counts})) AS pair_count"


_NUMBERS = f"CAST({2**63} AS HUGEINT)"


@dataclass(frozen=True)
class DuckDBHashes(HashSyntax):
    """HASH, which is defined for every value of every type, and SHA256."""

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Hash all values of the row. Tables have fewer rows than 2^55, so that what is added stays below the hash.

        They are hashed as one struct: a function of several texts requires them in one collation.
        """
        unique = f"CAST(HASH(ROW(*COLUMNS(*))) >> 1 AS HUGEINT) * {_NUMBERS} + ROW_NUMBER() OVER ()"
        return f"{unique} + {table * TABLES}" if table else unique

    def emit_row_hash(self, unit: str) -> str:
        """Return the upper bits."""
        return f"{unit} // {_NUMBERS}"

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Hash twice: one hash of several values is correlated with each of them, and would favor some keys."""
        return f"HASH(HASH({', '.join(values)}))"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Compare digests, which are texts of 64 hexadecimal digits in lower case."""
        digest = f"SHA256(CONCAT({self.values.emit_constant(secret)}, CAST({unit} AS VARCHAR)))"
        return f"{self.values.emit_binary_collation(digest)} < {self.values.emit_constant(f'{below:064x}')}"


@dataclass(frozen=True)
class DuckDBQueries(QuerySyntax):
    """Subqueries that need no name, semi-joins, and lists of structs that are unnested."""

    def emit_derived_table(self, query: str, name: str = "", *, once: bool = False) -> str:
        """Write a name only where one is required; values of a subquery in FROM are computed once."""
        return f"({query}) AS {name}" if name else f"({query})"

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Use the joins that DuckDB has for it."""
        return f"{left} {'ANTI' if anti else 'SEMI'} JOIN {right} USING (unit_id)"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Unnest a list of structs, whose fields become columns."""
        each = (
            f"{{{', '.join(f'{name}: {text}' for name, text in zip(names, row, strict=True))}}}"
            for row in rows
        )
        items = ", ".join([*keys, f"UNNEST([{', '.join(each)}], recursive := true)"])
        return f"SELECT {items} FROM {self.emit_derived_table(query)}"


@dataclass(frozen=True)
class DuckDBLists(ListSyntax):
    """Lists, whose elements are found by their places and transformed by lambdas."""

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Collect a list of lists."""
        return f"LIST([{', '.join(items)}] ORDER BY {order}) FILTER (WHERE {order} IS NOT NULL)"

    def emit_value_list_aggregate(self, value: str) -> str:
        """Collect a list."""
        return f"LIST({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Concatenate two lists."""
        packed = f"LIST_CONCAT([MIN(total_values), MIN(values_before)], FLATTEN(LIST([point, point_values] ORDER BY point))) AS {name}"
        return f"SELECT {', '.join([*keys, packed])} FROM (\n    {rows}){by} HAVING COUNT(*) > 0"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Find elements by their places, which a lambda computes."""
        place = f"TRY_CAST((2 * i + 1)::HUGEINT * LEN({values}) // (2 * GREATEST({most}, 1)::HUGEINT) + 1 AS BIGINT)"
        some = f"LIST_TRANSFORM(RANGE(TRY_CAST({most} AS BIGINT)), LAMBDA i: {values}[{place}])"
        return f"UNNEST(CASE WHEN LEN({values}) <= {most} THEN {values} ELSE {some} END)"

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Cut the list with LIST_SLICE; one without elements is a list of NULL alone where its row stays."""
        cut = f"list_slice({self.columns.emit_column_path(listed.stored)}, 1, {listed.max_elements})"
        if listed.outer:
            cut = f"CASE WHEN LEN({cut}) > 0 THEN {cut} ELSE [NULL] END"
        return f"SELECT *, UNNEST({cut}) AS {quote_identifier(listed.column.name)} FROM {table}"


_COLUMNS, _QUERIES = DuckDBColumns(VALUES), DuckDBQueries()
DUCKDB = Dialect(
    capabilities=Capabilities(
        unnests_constant_lists=True, groups_by_domain_index=True, supports_public_groups=True
    ),
    support=DuckDBSupport(engine="DuckDB"),
    values=VALUES,
    columns=_COLUMNS,
    functions=DuckDBFunctions(where="DuckDB", spellings=MappingProxyType({})),
    integers=DuckDBIntegers(VALUES, wide="HUGEINT"),
    points=DuckDBPoints(VALUES),
    hashes=DuckDBHashes(VALUES),
    queries=_QUERIES,
    lists=DuckDBLists(_COLUMNS, _QUERIES),
)
