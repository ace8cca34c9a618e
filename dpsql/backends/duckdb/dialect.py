"""The dialect of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.backends.dialect import TABLES, fits_int64
from dpsql.backends.duckdb import columns, values
from dpsql.backends.quoting import quote_identifier, quote_table_name
from dpsql.plan.expressions import Call, Column, WorkRule
from dpsql.plan.types import Pairs, Type, Value

if TYPE_CHECKING:
    from dpsql.plan.nodes import Release
    from dpsql.plan.tables import UnnestedList

_NUMBERS = f"CAST({2**63} AS HUGEINT)"


@dataclass(frozen=True, slots=True)
class DuckDBDialect:
    """DuckDB's: whole numbers of 128 bits, TRY_CAST and TRY, lists, semi-joins."""

    nan: str = values.NAN
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
        """As `values.emit_constant`."""
        return values.emit_constant(value)

    def emit_cast(self, text: str, kind: Type) -> str:
        """As `values.emit_cast`."""
        return values.emit_cast(text, kind)

    def emit_call_template(self, expr: Call) -> str:
        """The entry's template: of arithmetic that gives a whole number in a form that cannot leave 64 bits."""
        return (
            expr.function.integer_sql
            if expr.function.integer_sql and expr.type is Type.INTEGER
            else expr.function.sql
        )

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
        """As `columns.emit_unit_id`."""
        return columns.emit_unit_id(unit)

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """A list is cut by LIST_SLICE; one without elements is a list of NULL alone where its row stays."""
        cut = f"list_slice({columns.emit_column_path(listed.stored)}, 1, {listed.max_elements})"
        if listed.outer:
            cut = f"CASE WHEN LEN({cut}) > 0 THEN {cut} ELSE [NULL] END"
        return f"SELECT *, UNNEST({cut}) AS {quote_identifier(listed.column.name)} FROM {table}"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Digests are texts of 64 hexadecimal digits in lower case."""
        digest = f"SHA256(CONCAT({values.emit_constant(secret)}, CAST({unit} AS VARCHAR)))"
        return f"{self.emit_binary_collation(digest)} < {values.emit_constant(f'{below:064x}')}"

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
        return f"TRY_CAST({number} * {values.emit_constant(factor)} AS BIGINT)"

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
        first, second = map(values.emit_constant, factors)
        return f"CAST({number} * {first} * {second} AS HUGEINT)"

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """A product of DOUBLE cannot fail."""
        first, second = map(values.emit_constant, factors)
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
