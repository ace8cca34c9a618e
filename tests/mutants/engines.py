"""Faults in what is written for PostgreSQL and Spark, and in the connections to them."""

from __future__ import annotations

from .fault import Fault

_FUNCTIONS = "tests/engines/test_functions.py::test_it_is_total_and_means_the_same"
_POSTGRES = "tests/engines/test_postgres.py"
_BOUNDS = "tests/engines/test_bounds.py"
_UNIT_ROWS = "tests/engines/test_unit_rows.py"
_SPARK_UNIT_ROWS = "tests/engines/test_spark_unit_rows.py"
_SPARK = "tests/engines/test_spark.py"

FAULTS = (
    Fault(
        "casts-in-texts",
        "dpsql.backends.postgres.checks:condition",
        "_TEXT.sub(lambda _: f\"'{next(places)}'\", text)",
        "text",
        "what stands in a text of a CHECK constraint is read as part of its condition",
        "tests/engines/test_postgres_commands.py::test_what_stands_in_a_text_stays",
    ),
    Fault(
        "postgres-products-overflow",
        "dpsql.backends.postgres.functions",
        'f"CASE WHEN ABS(a) >= {_MOST} / ABS(b) THEN {_INFINITE} ELSE a * b END"',
        '"a * b"',
        "a product beyond DOUBLE ends a query in PostgreSQL",
        f"{_FUNCTIONS}[multiply]",
    ),
    Fault(
        "postgres-sums-wrap",
        "dpsql.backends.postgres.functions:_narrowed",
        'f"CASE WHEN a BETWEEN {_MIN} AND {_MAX} THEN CAST(a AS BIGINT) END"',
        '"CAST(a AS BIGINT)"',
        "a whole number beyond 64 bits ends a query in PostgreSQL",
        f"{_FUNCTIONS}[add]",
    ),
    Fault(
        "postgres-nan-is-high",
        "dpsql.backends.clamps:Clamps._double",
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.infinity} THEN {high} END"
        """,
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"
        """,
        "NaN, which is greater than all numbers in PostgreSQL, counts as the upper bound",
        f"{_POSTGRES}::test_what_is_stored_is_read_within_bounds",
    ),
    Fault(
        "postgres-numeric-is-cast-plainly",
        "dpsql.backends.postgres.columns:widened",
        'f"CASE WHEN {raw} BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({raw} AS BIGINT) END"',
        'f"CAST({raw} AS BIGINT)"',
        "a NUMERIC beyond 64 bits ends a query",
        f"{_POSTGRES}::test_what_is_stored_is_read_within_bounds",
    ),
    Fault(
        "postgres-texts-keep-their-collation",
        "dpsql.backends.postgres.columns:widened",
        """f'(CASE WHEN OCTET_LENGTH({text}) <= {MOST_BYTES} THEN {text} END COLLATE "C")'""",
        """f'(CASE WHEN OCTET_LENGTH({text}) <= {MOST_BYTES} THEN {text} END)'""",
        "the collation of a column decides which texts are equal",
        f"{_POSTGRES}::test_texts_are_compared_by_their_bytes",
    ),
    Fault(
        "postgres-excess-is-kept",
        "dpsql.backends.postgres.dialect:PostgresDialect.semi_join",
        '"NOT EXISTS" if anti else "EXISTS"',
        '"EXISTS"',
        "the units that exceed a bound count with all groups beside those that count, and all others do not",
        f"{_BOUNDS}::test_a_bound_is_reached",
    ),
    Fault(
        "postgres-joins-lose-groups",
        "dpsql.backends.postgres.dialect:PostgresDialect.outer_join",
        'f"FULL JOIN ({query}) AS {name} ON ARRAY[{ours}] = ARRAY[{theirs}]"',
        'f"LEFT JOIN ({query}) AS {name} ON ARRAY[{ours}] = ARRAY[{theirs}]"',
        "a value does not count where no row of its group does",
        f"{_BOUNDS}::test_a_value_counts_in_a_group_without_counted_rows",
    ),
    Fault(
        "postgres-long-names-pass",
        "dpsql.backends.postgres.dialect:PostgresDialect.require_text",
        """len((found[1] or "").replace('""', '"').encode(errors="replace")) > NAME_BYTES""",
        "False",
        "two names that PostgreSQL cuts to one are one table, and conditions on units are of one row",
        f"{_POSTGRES}::test_names_that_would_be_cut_are_refused",
    ),
    Fault(
        "postgres-views-pass",
        "dpsql.backends.postgres.connection:PostgresBackend.origin",
        "[_KINDS[kind] for _, kind, *_ in rows if kind in _KINDS]",
        "list[str]()",
        "a view, whose expressions may fail on a row, is read",
        f"{_POSTGRES}::test_what_could_fail_on_a_row_is_refused"
        "[ALTER TABLE people RENAME TO p; CREATE VIEW people AS SELECT * FROM p-view_source]",
    ),
    Fault(
        "postgres-tables-may-change",
        "dpsql.backends.postgres.connection:PostgresBackend.snapshot",
        "self._is_unchanged()",
        "True",
        "a table that was replaced by a view is read",
        f"{_POSTGRES}::test_a_table_that_changes_is_refused_before_a_charge[view]",
    ),
    Fault(
        "postgres-settings-of-the-role",
        "dpsql.backends.postgres.connection:PostgresBackend.snapshot",
        "_BEGIN + pinning(self._timeout)",
        "_BEGIN",
        "what a role sets decides over the texts and moments that are read",
        f"{_POSTGRES}::test_nobodys_settings_decide",
    ),
    Fault(
        "postgres-error-keeps-its-context",
        "dpsql.backends.postgres.connection:PostgresBackend._answered",
        "failed = self._failure()",
        "raise self._failure()",
        "the words of PostgreSQL, which quote a value, are the context of an error",
        f"{_POSTGRES}::test_a_failure_says_nothing",
    ),
    Fault(
        "spark-sums-wrap",
        "dpsql.backends.spark.dialect:SparkDialect.addend",
        'f"CAST({point} AS {WIDE})"',
        "point",
        "a sum of BIGINT fails beyond 64 bits",
        f"{_SPARK}::test_whole_numbers_do_not_wrap",
    ),
    Fault(
        "spark-points-are-cast-at-once",
        "dpsql.backends.spark.dialect:SparkDialect.wide_point",
        'held(f"CAST({parts} AS {WIDE})", f"RINT({number} * {first} * {second})")',
        'f"CAST(RINT({number} * {first} * {second}) AS {WIDE})"',
        "a DOUBLE is cast to DECIMAL by the digits that show it, so that it is no multiple of its step",
        f"{_SPARK}::test_whole_numbers_do_not_wrap",
    ),
    Fault(
        "spark-nan-is-high",
        "dpsql.backends.clamps:Clamps._double",
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.infinity} THEN {high} END"
        """,
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"
        """,
        "NaN, which is greater than all numbers in Spark, counts as the upper bound",
        f"{_SPARK}::test_what_is_stored_is_read_within_bounds",
    ),
    Fault(
        "spark-texts-are-not-looked-at",
        "dpsql.backends.spark.columns:text",
        'f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_BYTES} THEN TRY_VALIDATE_UTF8({raw}) END"',
        'f"CASE WHEN OCTET_LENGTH({raw}) <= {MOST_BYTES} THEN {raw} END"',
        "a text that is not UTF-8 ends a query when its group is read",
        f"{_SPARK}::test_what_is_stored_is_read_within_bounds",
    ),
    Fault(
        "spark-texts-keep-their-collation",
        "dpsql.backends.spark.columns:_by_bytes",
        'f"({stored} COLLATE UTF8_BINARY)"',
        'f"({stored})"',
        "the collation of a column decides which texts are equal",
        f"{_SPARK}::test_texts_are_compared_by_their_bytes",
    ),
    Fault(
        "spark-holds-nothing",
        "dpsql.sql.emit.dialect:read_often",
        "held is None or not dialect().holds",
        "True",
        "contributions are computed once for each of their readers, over files that may have changed",
        f"{_SPARK}::test_what_is_read_more_than_once_is_held",
    ),
    Fault(
        "spark-rows-are-shuffled-as-they-are",
        "dpsql.backends.spark.dialect:SparkDialect.derived",
        'f"({query}) AS {name}"',
        'f"(SELECT * FROM ({query}) AS q DISTRIBUTE BY 1) AS {name}"',
        "the rows of a unit that has nearly all meet in one task",
        "tests/engines/test_spark_shuffles.py::test_rows_of_a_unit_are_added_up_before_they_are_shuffled[SELECT COUNT(*) FROM visits-False]",
    ),
    Fault(
        "spark-rows-are-computed-again",
        "dpsql.backends.spark.connection:SparkBackend._checkpoint",
        "self._session.sql(query).localCheckpoint(eager=True)",
        "self._session.sql(query)",
        "the statements of a release read different contributions",
        f"{_SPARK}::test_statements_read_the_same_contributions",
    ),
    Fault(
        "spark-views-pass",
        "dpsql.backends.spark.connection:SparkBackend.origin",
        "Origin(frozenset({where}), found.foreign)",
        "Origin(frozenset({where}))",
        "a view, whose expressions may fail on a row, is read",
        f"{_SPARK}::test_what_could_fail_on_a_row_is_refused[CREATE VIEW {{}} AS SELECT * FROM people-view_source]",
    ),
    Fault(
        "spark-tables-may-change",
        "dpsql.backends.spark.connection:SparkBackend.snapshot",
        "self._marks is None or self._definitions() == self._marks",
        "True",
        "a table that was replaced by a view is read",
        f"{_SPARK}::test_a_table_that_changes_is_refused_before_a_charge",
    ),
    Fault(
        "spark-settings-of-the-owner",
        "dpsql.backends.spark.session:pin",
        "session.conf.unset(name)",
        "session.conf.get(name)",
        "what an owner sets decides over errors and moments",
        f"{_SPARK}::test_nobodys_settings_decide",
    ),
    Fault(
        "spark-error-keeps-its-context",
        "dpsql.backends.spark.connection:SparkBackend._guarded",
        "failed = self._failure()",
        "raise self._failure()",
        "the words of Spark, which quote a value, are the context of an error",
        f"{_SPARK}::test_a_failure_says_nothing",
    ),
    Fault(
        "spark-excess-is-kept",
        "dpsql.backends.spark.dialect:SparkDialect.semi_join",
        '"ANTI" if anti else "SEMI"',
        '"SEMI"',
        "the units that exceed a bound count with all groups beside those that count, and all others do not",
        "tests/engines/test_spark_bounds.py::test_a_bound_is_reached",
    ),
    Fault(
        "spark-products-fail",
        "dpsql.backends.spark.functions",
        '"TRY_MULTIPLY({0}, {1})"',
        '"({0} * {1})"',
        "a whole number beyond 64 bits ends a query in Spark",
        f"{_SPARK}::test_no_row_that_a_condition_drops_ends_a_query[s.e * s.e]",
    ),
    Fault(
        "places-of-quantiles-are-rounded-down",
        "dpsql.sql.emit.ranked:place_of",
        "_whole(share.denominator - 1)",
        "_whole(0)",
        "a quantile within a unit is the value before on PostgreSQL and Spark",
        f"{_UNIT_ROWS}::test_places_of_quantiles_are_duckdb_s",
    ),
    Fault(
        "missing-values-are-best",
        "dpsql.sql.emit.ranked:_Made._best",
        "Order(missing, descending=False, nulls_first=False)",
        "Order(missing, descending=True, nulls_first=False)",
        "ARG_MAX shows a row without a value where another has one",
        f"{_UNIT_ROWS}::test_aggregates_of_a_unit_have_the_same_values[k-ARG_MAX(n, x)]",
    ),
    Fault(
        "medians-are-the-upper-value",
        "dpsql.sql.emit.ranked:_Made._median",
        """_called("multiply", low, half)""",
        """_called("multiply", high, half)""",
        "the median of an even number of rows is one of them",
        f"{_UNIT_ROWS}::test_aggregates_of_a_unit_have_the_same_values[k-MEDIAN(x)]",
    ),
    Fault(
        "postgres-true-is-least",
        "dpsql.backends.postgres.dialect",
        """{"min": "BOOL_AND({0})", "max": "BOOL_OR({0})"}""",
        """{"min": "BOOL_OR({0})", "max": "BOOL_AND({0})"}""",
        "the least of true and false is true",
        f"{_UNIT_ROWS}::test_aggregates_of_a_unit_have_the_same_values[k-CASE WHEN MIN(yes) THEN 1 ELSE 0 END]",
    ),
    Fault(
        "postgres-means-of-distinct-values-count-all",
        "dpsql.backends.postgres.dialect:PostgresDialect.per_unit",
        '"DISTINCT {0}" if function == "avg_distinct" else "{0}"',
        '"{0}"',
        "a value counts as often as a unit has it",
        f"{_UNIT_ROWS}::test_aggregates_of_a_unit_have_the_same_values[k-AVG(DISTINCT x)]",
    ),
    Fault(
        "spark-shows-any-of-the-best",
        "dpsql.backends.spark.dialect:SparkDialect.per_unit",
        """f"{function.removeprefix('arg_').upper()}_BY({{0}}, STRUCT({{1}}, {{0}}))\"""",
        """f"{function.removeprefix('arg_').upper()}_BY({{0}}, STRUCT({{1}}))\"""",
        "which of several rows is shown hangs on where they are stored",
        f"{_SPARK_UNIT_ROWS}::test_aggregates_of_a_unit_have_the_same_values[aggregates6]",
    ),
    Fault(
        "spark-has-its-own-letters",
        "dpsql.backends.spark.functions:_translated",
        'f"TRANSLATE({text}, {before}, {after})"',
        'f"{function.upper()}({text})"',
        "LOWER and UPPER change letters as Java does, several at once and by what stands beside them",
        "tests/engines/test_spark_functions.py::test_letters_become_those_of_duckdb",
    ),
    Fault(
        "postgres-decimals-are-cast-plainly",
        "dpsql.backends.postgres.functions",
        """
        f"CASE WHEN ABS(a) < 1e{_DIGITS + 1} AND LENGTH(CAST(TRUNC(ABS(ROUND(a, {{2}}))) AS TEXT)) <= {{1}} - {{2}} "
        "THEN CAST(ROUND(a, {2}) AS TEXT) END"
        """,
        '"CAST(CAST(a AS NUMERIC({1}, {2})) AS TEXT)"',
        "a number that a DECIMAL does not hold ends a query in PostgreSQL",
        f"{_FUNCTIONS}[cast_varchar decimal]",
    ),
    Fault(
        "postgres-shifts-by-what-is-left-of-64",
        "dpsql.backends.postgres.functions",
        '"CASE WHEN b BETWEEN 0 AND 63 THEN a >> CAST(b AS INTEGER) WHEN a # b IS NOT NULL THEN 0 END"',
        '"a >> CAST(b & 63 AS INTEGER)"',
        "a shift by 64 bits leaves a number as it is",
        f"{_FUNCTIONS}[shift_right]",
    ),
    Fault(
        "postgres-moments-leave-the-calendar",
        "dpsql.backends.postgres.functions:_of_micros",
        """f"CASE WHEN a BETWEEN {low} AND {high} THEN TIMESTAMP '1970-01-01' + ({added}) END\"""",
        """f"TIMESTAMP '1970-01-01' + ({added})\"""",
        "a number that is no moment ends a query in PostgreSQL",
        f"{_FUNCTIONS}[make_timestamp_us]",
    ),
)
