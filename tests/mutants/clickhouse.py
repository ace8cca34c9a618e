"""Faults in what is written for ClickHouse, and in the connection to it; its tests need chdb."""

from __future__ import annotations

from .fault import Fault

_CLICKHOUSE = "tests/engines/test_clickhouse.py"
_DIALECT = "dpsql.backends.clickhouse.dialect"

FAULTS = (
    Fault(
        "clickhouse-sums-wrap",
        f"{_DIALECT}:ClickHouseIntegers.emit_exact_sum",
        'f"SUM(CAST({points} AS {WIDE}))"',
        'f"SUM({points})"',
        "sums beyond 64 bits wrap in ClickHouse, without an error: one row makes another sum of any size",
        f"{_CLICKHOUSE}::test_whole_numbers_do_not_wrap",
    ),
    Fault(
        "clickhouse-reads-wide-literals",
        f"{_DIALECT}:ClickHouseIntegers.emit_threshold",
        "str(number) if fits_int64(number) else _emit_wide_constant(str(number))",
        "str(number)",
        "a threshold beyond 64 bits is a DOUBLE, and contributions are in other intervals",
        "tests/engines/test_clickhouse_bounds.py::test_64_bits_are_used_where_they_suffice",
    ),
    Fault(
        "clickhouse-moments-wrap",
        f"{_DIALECT}:_emit_stored_microseconds",
        "f\"accurateCastOrNull(CAST(reinterpretAsInt64({raw}) AS Int128) * 1000, 'Int64')\"",
        'f"reinterpretAsInt64({raw}) * 1000"',
        "a moment that is too late for 64 bits is read as another one",
        f"{_CLICKHOUSE}::test_stored_values_are_read_within_bounds",
    ),
    Fault(
        "clickhouse-broken-texts-pass",
        f"{_DIALECT}:_emit_text",
        'f"CASE WHEN length({text}) <= {MOST_STORED} AND isValidUTF8({text}) THEN {text} END"',
        'f"CASE WHEN length({text}) <= {MOST_STORED} THEN {text} END"',
        "a text that is not UTF-8 is read, and may end a query",
        f"{_CLICKHOUSE}::test_stored_values_are_read_within_bounds",
    ),
    Fault(
        "clickhouse-null-is-lost-in-subqueries",
        f"{_DIALECT}:_is_strict",
        "return expr.function.name in _STRICT and all(map(_is_strict, expr.arguments))",
        "return True",
        "NOT IN counts rows with NULL, which DuckDB does not: an answer is wrong",
        f"{_CLICKHOUSE}::test_conditions_that_hold_of_null_are_refused",
    ),
    Fault(
        "clickhouse-joins-by-bits",
        f"{_DIALECT}:_compares_doubles",
        "return side.type is Type.DOUBLE and not decimal",
        "return False",
        "a join by DOUBLE loses rows with -0.0",
        f"{_CLICKHOUSE}::test_joins_by_doubles_are_refused",
    ),
    Fault(
        "clickhouse-lists-by-bits",
        f"{_DIALECT}:ClickHouseColumns.emit_membership",
        "kind is not Type.DOUBLE",
        "True",
        "a condition with a list loses rows with -0.0",
        f"{_CLICKHOUSE}::test_joins_by_doubles_are_refused",
    ),
    Fault(
        "clickhouse-merged-tables-pass",
        "dpsql.backends.clickhouse.catalog:TableDescription.foreign_sources",
        'self.engine != "MergeTree"',
        '"MergeTree" not in self.engine',
        "which rows a table has depends on merges, and on rows of other units",
        f"{_CLICKHOUSE}::test_unstable_tables_are_refused",
    ),
    Fault(
        "clickhouse-computed-columns-pass",
        "dpsql.backends.clickhouse.catalog:TableDescription.readable_columns",
        "[(name, kind) for name, kind, default in self.columns if not default]",
        "[(name, kind) for name, kind, default in self.columns]",
        "a column that an expression of the owner computes may fail for one row",
        f"{_CLICKHOUSE}::test_unstable_tables_are_refused",
    ),
    Fault(
        "clickhouse-tables-are-read-twice",
        "dpsql.backends.clickhouse.connection:ClickHouseBackend._hold_tables",
        "len(read_table.findall(sql)) > 1",
        "len(read_table.findall(sql)) > 2",
        "a statement reads a table as it was at two moments",
        f"{_CLICKHOUSE}::test_statements_read_the_same_rows",
    ),
    Fault(
        "clickhouse-binding-runs-subqueries",
        "dpsql.backends.clickhouse.connection:ClickHouseBackend._can_plan",
        'f"EXPLAIN QUERY TREE {sql}"',
        'f"EXPLAIN PLAN {sql}"',
        "private rows are read before the charge, and one of them decides whether the query is refused",
        f"{_CLICKHOUSE}::test_binding_reads_no_row",
    ),
    Fault(
        "clickhouse-sessions-write",
        "dpsql.backends.clickhouse.session:SessionRunner.pin_settings",
        '("readonly", "2")',
        '("readonly", "0")',
        "the session of statements can change tables and settings",
        f"{_CLICKHOUSE}::test_settings_of_the_owner_are_separate",
    ),
    Fault(
        "clickhouse-words-reach-users",
        "dpsql.backends.clickhouse.session:SessionRunner.run_guarded",
        "Exception",
        "ZeroDivisionError",
        "an error of ClickHouse quotes the value that it is about",
        f"{_CLICKHOUSE}::test_failure_has_constant_text",
    ),
    Fault(
        "clickhouse-rows-of-failures-stay",
        "dpsql.backends.clickhouse.session:SessionRunner.run_guarded",
        "self._has_leftovers = True",
        "self._has_leftovers = False",
        "exact rows of a statement that failed are in the result of the next one",
        f"{_CLICKHOUSE}::test_rows_of_a_failed_statement_are_discarded",
    ),
)
