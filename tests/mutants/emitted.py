"""Faults of the statement that is sent to the engine: what is read, whose it is, and how much of it counts."""

from __future__ import annotations

from .fault import Fault

_MOVES = "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_beyond_its_sensitivity"

_STORED = "tests/sql/test_stored_conditions.py"
_POINTS = "tests/sql/test_scan_points.py"
_CLAMPING = "tests/planning/test_clamping.py"
FAULTS = (
    Fault(
        "bins-are-counted-from-the-least-point",
        "dpsql.sql.compile.quantile_windows:_emit_bin",
        "return compiler.dialect.integers.emit_right_shift(at, width)",
        'return compiler.dialect.integers.emit_right_shift(f"({at} + 4611686018427387904)", width)',
        "the distance of two points leaves 64 bits for one row",
        "tests/attacks/test_a26_overflow.py::test_no_extreme_makes_a_statement_fail[9223372036854775807-]",
    ),
    Fault(
        "points-are-cast-plainly",
        "dpsql.backends.duckdb.dialect:DuckDBPoints.emit_lattice_point",
        'f"TRY_CAST({number} * {self.values.emit_constant(factor)} AS BIGINT)"',
        'f"CAST({number} * {self.values.emit_constant(factor)} AS BIGINT)"',
        "a value beyond 64 bits fails a query, wherever the engine casts it",
        "tests/properties/test_infallible.py::test_points_are_infallible",
    ),
    Fault(
        "scores-not-clamped",
        "dpsql.sql.compile.statement:emit_scores",
        'share = f"LEAST(GREATEST({_emit_unit_score(compiler, analysis, moment)}, {top_k.low}), {top_k.high})"',
        "share = _emit_unit_score(compiler, analysis, moment)",
        "a unit with many rows decides which group is best",
        "tests/properties/test_best.py::test_unit_changes_score_differences_as_derived",
    ),
    Fault(
        "values-need-a-row-that-counts",
        "dpsql.sql.compile.statement:_join_groups",
        "compiler.dialect.queries.emit_full_join(query, name, on)",
        'compiler.dialect.queries.emit_full_join(query, name, on).replace("FULL", "LEFT")',
        "a unit's row brings the values of others to a group",
        "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_beyond_its_sensitivity"
        "[SELECT COUNT(DISTINCT s) FROM t GROUP BY k []]",
    ),
    Fault(
        "bins-left-out-too-near",
        "dpsql.sql.compile.quantile_windows:_emit_window",
        """
        f"SELECT {', '.join([*keys, 'bin', 'total_values', 'values_up_to - bin_values AS values_before'])} FROM {_BINS} "
        f"WHERE values_up_to * {_emit_wide_integer(compiler, quantile.steps_per_row)} >= {offset} - {_emit_wide_integer(compiler, quantile.cutoff)} "
        f"AND (values_up_to - bin_values) * {_emit_wide_integer(compiler, quantile.steps_per_row)} <= {offset} + {_emit_wide_integer(compiler, quantile.cutoff)}"
        """,
        """
        f"SELECT {', '.join([*keys, 'bin', 'total_values', 'values_up_to - bin_values AS values_before'])} FROM {_BINS} "
        f"WHERE values_up_to * {_emit_wide_integer(compiler, quantile.steps_per_row)} >= {offset} - {_emit_wide_integer(compiler, quantile.cutoff)} "
        f"AND (values_up_to - bin_values) * {_emit_wide_integer(compiler, quantile.steps_per_row)} <= {offset}"
        """,
        "values just above a rank are taken to be as far as all others",
        "tests/properties/test_ranked.py::test_windows_hold_all_near_points",
    ),
    Fault(
        "all-rows-in-order",
        "dpsql.sql.compile.quantile_windows:_emit_points",
        'compiler.dialect.lists.emit_evenly_spaced_elements("sorted_points", "counted_rows")',
        '"UNNEST(sorted_points)"',
        "all rows of a unit count where values are put in order",
        "tests/properties/test_ranked.py::test_unit_moves_penalty_differences_as_derived",
    ),
    Fault(
        "column-not-clamped",
        "dpsql.backends.dialect:ColumnSyntax._emit_bounded_double",
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.values.infinity} THEN {high} END"
        """,
        """
        f"CASE WHEN {low} <= {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.values.infinity} THEN {high} END"
        """,
        "a real number is read as it is, whatever its bounds",
        f"{_MOVES}[SELECT SUM(x) FROM t [unit=row]]",
    ),
    Fault(
        "null-counts-as-the-upper-bound",
        "dpsql.backends.dialect:ColumnSyntax._emit_bounded_double",
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} WHEN {read} <= {self.values.infinity} THEN {high} END"
        """,
        """
        f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} "
        f"WHEN {read} < {low} THEN {low} ELSE {high} END"
        """,
        "NULL and NaN are values",
        "tests/sql/test_fixtures.py::test_answers_match_duckdb[conditions: IS NULL and its kin]",
    ),
    Fault(
        "nan-counts-as-a-value",
        "dpsql.backends.dialect:ColumnSyntax._emit_bounded_double",
        "return self.values.emit_nan_as_null(read)",
        "return read",
        "NaN is counted in a column without bounds",
        "tests/properties/test_clamp.py::test_nan_counts_as_null[COUNT(z)-2]",
    ),
    Fault(
        "computed-nan-counts-as-a-value",
        "dpsql.sql.compile.compiler:Compiler.emit_number_or_null",
        "Type.DOUBLE",
        "None",
        "NaN that arithmetic made is counted",
        "tests/properties/test_clamp.py::test_nan_counts_as_null[COUNT(z - z)-1]",
    ),
    Fault(
        "null-of-any-type",
        "dpsql.sql.compile.compiler:Compiler.emit_expression",
        'return self.emit_cast("NULL", expr.type) if expr.value is None else self.emit_constant(expr.value)',
        "return self.emit_constant(expr.value)",
        "a released text that is NULL makes the engine fail after the charge",
        "tests/api/test_several_releases.py::test_without_noise_the_answer_is_the_engine_s[zcdp-a text that is not there, among values of a person]",
    ),
    Fault(
        "cube-roots-estimated",
        "dpsql.plan.functions.numeric",
        '_define_function("CBRT", make_increasing_rule(math.cbrt), ("CBRT(8)", "2.0"), of="TRY({0})")',
        '_define_function("CBRT", make_increasing_rule(math.cbrt), ("CBRT(8)", "2.0"))',
        "the engine fails where the least and the largest of private values are close",
        "tests/plan/functions/test_estimates.py::test_no_entry_fails_on_close_extremes[cbrt]",
    ),
    Fault(
        "values-outside-the-domain-kept",
        "dpsql.backends.dialect:ColumnSyntax.emit_clamped_value",
        "facts.domain is not None",
        "facts.domain == ()",
        "a value that the policy does not list is read",
        "tests/properties/test_bounds.py::test_keys_lie_in_their_domain[k-]",
    ),
    Fault(
        "wide-integers-lost",
        "dpsql.backends.dialect:ColumnSyntax._emit_bounded_integer",
        'f"CASE WHEN {raw} BETWEEN {low} AND {high} THEN {read} WHEN {raw} < {low} THEN {low} WHEN {raw} > {high} THEN {high} END"',
        'f"CASE WHEN {read} BETWEEN {low} AND {high} THEN {read} WHEN {read} < {low} THEN {low} WHEN {read} > {high} THEN {high} END"',
        "a number beyond 64 bits is NULL, not the nearer bound",
        "tests/sql/test_compile.py::test_value_too_large_for_its_type_is_clamped",
    ),
    Fault(
        "expression-not-clamped",
        "dpsql.sql.compile.lattice:emit_lattice_point",
        "around is not None and is_clamped_when_read(expr, around)",
        "around is not None",
        "a computed value is trusted to lie in its interval",
        "tests/properties/test_clamp.py::test_clamp_holds_for_a_wrong_interval",
    ),
    Fault(
        "texts-not-escaped",
        "dpsql.policy.names:quote_literal",
        """
        return "'" + text.replace("'", "''") + "'"
        """,
        """
        return "'" + text + "'"
        """,
        "a quote in a constant ends it",
        "tests/api/test_pep249.py::test_parameters_are_bound_as_literals",
    ),
    Fault(
        "names-not-escaped",
        "dpsql.policy.names:quote_identifier",
        """return '"' + name.replace('"', '""') + '"'""",
        """return '"' + name + '"'""",
        "a quote in a name ends it",
        'tests/attacks/test_a08_name_games.py::test_names_used_by_emitted_sql_keep_the_bound[a"b]',
    ),
    Fault(
        "minus-zero-is-another-key",
        "dpsql.sql.compile.compiler:Compiler.emit_canonical_value",
        'return self.dialect.values.emit_nan_as_null(f"{text} + 0")',
        "return self.dialect.values.emit_nan_as_null(text)",
        "one unit's -0.0 spells the key of everybody's 0.0",
        "tests/attacks/test_a11_secret_keys.py::test_one_unit_cannot_change_the_spelling_of_a_key[zero-row]",
    ),
    Fault(
        "columns-keep-their-collation",
        "dpsql.backends.duckdb.dialect:_emit_widened_value",
        """return f'({read} COLLATE "binary")' if facts.type is Type.VARCHAR else read""",
        "return read",
        "texts that differ in case are one key",
        "tests/sql/test_group_keys.py::test_groups_are_those_of_the_values[VARCHAR COLLATE NOCASE-row]",
    ),
    Fault(
        "keys-keep-their-collation",
        "dpsql.sql.compile.compiler:Compiler.emit_canonical_value",
        "return self.dialect.values.emit_binary_collation(text) if expr.type is Type.VARCHAR else text",
        "return text",
        "texts that a query makes itself are run together where the database's collation says so",
        "tests/sql/test_compile.py::test_texts_are_compared_by_their_bytes",
    ),
    Fault(
        "excluded-keys-kept",
        "dpsql.sql.compile.group_keys:emit_key_condition",
        'f"{text} > 0"',
        'f"{text} >= 0"',
        "a key that the policy excludes is shown beside another key",
        "tests/sql/test_compile.py::test_excluded_key_appears_in_no_combination",
    ),
    Fault(
        "excluded-groups-kept",
        "dpsql.sql.compile.group_keys:emit_having_clause",
        'f"{name_group_key(analysis.release, key)} > 0"',
        'f"{name_group_key(analysis.release, key)} >= 0"',
        "a key that the policy excludes is shown beside another key, and takes the place of a group that counts",
        "tests/sql/test_compile.py::test_excluded_key_appears_in_no_combination",
    ),
    Fault(
        "decimals-beyond-their-bound",
        "dpsql.backends.duckdb.dialect:DuckDBPoints.emit_decimal_lattice_point",
        'f"WHEN {stored} < {low} THEN {low} WHEN {stored} IS NULL THEN {stored} ELSE {high}"',
        'f"WHEN {stored} < {low} THEN {low} WHEN {stored} IS NULL THEN {stored} ELSE {stored}"',
        "a decimal above its bound is added up as it is",
        f"{_POINTS}::test_points_of_decimals_are_those_of_doubles[DECIMAL(15,2)-bounds9]",
    ),
    Fault(
        "missing-decimals-are-the-bound",
        "dpsql.backends.duckdb.dialect:DuckDBPoints.emit_decimal_lattice_point",
        'f"WHEN {stored} < {low} THEN {low} WHEN {stored} IS NULL THEN {stored} ELSE {high}"',
        'f"WHEN {stored} < {low} THEN {low} ELSE {high}"',
        "a decimal that is missing counts as the upper bound",
        f"{_POINTS}::test_points_of_decimals_are_those_of_doubles[DECIMAL(15,2)-bounds9]",
    ),
    Fault(
        "decimals-of-too-many-digits",
        "dpsql.sql.compile.lattice:emit_decimal_lattice_point",
        "sum(digits) + 1 > _MOST_DIGITS",
        "sum(digits) > 99",
        "points of decimals are computed in 128 bits, which takes longer than DOUBLE",
        f"{_POINTS}::test_other_points_are_computed_from_a_double[DECIMAL(12,6)-bounds1]",
    ),
    Fault(
        "beyond-the-last-point-is-up-to-it",
        "dpsql.sql.compile.contribution_bounds:emit_interval_counts",
        "len(clamp.thresholds) - 1",
        "places[-1]",
        "units beyond the last point are not in the last interval where two points are equal",
        f"{_CLAMPING}::test_rows_are_counted_by_interval",
    ),
    Fault(
        "intervals-of-64-bits",
        "dpsql.backends.duckdb.dialect:DuckDBPoints.emit_histogram_items",
        '"BIGINT" if fits_int64(ends[-1]) else "HUGEINT"',
        '"BIGINT"',
        "a query whose totals may have more than 64 bits fails",
        f"{_CLAMPING}::test_rows_are_counted_by_interval",
    ),
    Fault(
        "rows-of-nobody-kept",
        "dpsql.sql.compile.relations:emit_rows",
        'where.insert(0, f"{name} IS NOT NULL")',
        'where.insert(0, "TRUE")',
        "rows whose unit is NULL count as one unit's",
        "tests/properties/test_sensitivity.py::test_rows_without_a_unit_do_not_count",
    ),
    Fault(
        "fanout-counted-before-conversion",
        "dpsql.sql.compile.relations:emit_multiplicity",
        "shared = find_common_type((ours.type, theirs.type)) or theirs.type",
        "shared = theirs.type",
        "public keys that are equal only when they are joined are counted one by one",
        "tests/analysis/test_stability.py::test_fanout_is_counted_as_the_join_compares",
    ),
    Fault(
        "fanout-counted-before-cleaning",
        "dpsql.sql.compile.relations:emit_multiplicity",
        "source, _ = emit_from_clause(compiler, join.right, [theirs for _, theirs in join.on])",
        'source = f"{quote_identifier(join.right.table)} AS {quote_identifier(join.right.alias)}"',
        "public keys that are clamped to one value are counted one by one",
        "tests/analysis/test_stability.py::test_fanout_is_counted_as_the_join_compares",
    ),
    Fault(
        "rows-of-a-unit-not-limited",
        "dpsql.sql.compile.statement:_emit_pairs",
        'f"LEAST(unit_rows, {bound.rows}) AS counted_rows"',
        '"unit_rows AS counted_rows"',
        "all rows of a unit count, however many there are",
        f"{_MOVES}[SELECT COUNT(x) FROM t []]",
    ),
    Fault(
        "rows-limited-group-by-group",
        "dpsql.sql.compile.contribution_bounds:_emit_counted_ranked_groups",
        'f"LEAST(unit_rows, GREATEST(0, {bound.rows} - (rows_up_to - unit_rows)))"',
        'f"LEAST(unit_rows, {bound.rows})"',
        "a unit has its whole bound of rows in each group",
        "tests/properties/test_sensitivity.py::test_allowed_number_of_rows_counts",
    ),
    Fault(
        "group-limit-dropped",
        "dpsql.sql.compile.contribution_bounds:_emit_counted_ranked_groups",
        'f" WHERE group_rank <= {bound.groups}"',
        '" WHERE group_rank > 0"',
        "a unit counts in all of its groups",
        "tests/properties/test_sensitivity.py::test_allowed_number_of_rows_counts",
    ),
    Fault(
        "excess-rows-overlooked",
        "dpsql.sql.compile.contribution_bounds:_emit_excess_units",
        'f"SUM(unit_rows) > {bound.rows}"',
        'f"SUM(unit_rows) > 2 * {bound.rows}"',
        "a unit with somewhat too many rows is not limited",
        "tests/properties/test_sensitivity.py::test_allowed_number_of_rows_counts",
    ),
    Fault(
        "excess-groups-overlooked",
        "dpsql.sql.compile.contribution_bounds:_emit_excess_units",
        '[f"SUM(unit_rows) > {bound.rows}", *([f"COUNT(*) > {bound.groups}"] if bound.limits_groups else [])]',
        '[f"SUM(unit_rows) > {bound.rows}"]',
        "a unit with too many groups but few rows is not limited",
        "tests/properties/test_sensitivity.py::test_choice_of_groups_depends_on_the_unit_only",
    ),
    Fault(
        "sum-of-a-unit-not-clamped",
        "dpsql.sql.compile.lattice:UnitSums._build_total",
        'f"LEAST(GREATEST({total}, {wide} * ({low})), {wide} * ({high}))"',
        "total",
        "rows that do not count are added up all the same",
        f"{_MOVES}[SELECT SUM(x) FROM t []]",
    ),
    Fault(
        "points-put-on-the-lattice-twice",
        "dpsql.sql.compile.lattice:emit_measure_total",
        "find_point_column(measure) is None",
        "True",
        "what a unit adds to a sum or a score is a multiple of what was derived",
        "tests/properties/test_best.py::test_unit_changes_score_differences_as_derived[SUM(x)-{'unit': 'row'}]",
    ),
    Fault(
        "stored-values-compared-at-a-bound",
        "dpsql.sql.compile.scan_conditions:_is_between_bounds",
        "ends[0] < at < ends[1]",
        "ends[0] <= at <= ends[1]",
        "a value beyond a bound fulfils a condition that the bound does not",
        f"{_STORED}::test_stored_conditions_keep_the_same_rows[TINYINT-id]",
    ),
    Fault(
        "stored-nan-above-all",
        "dpsql.sql.compile.scan_conditions:_emit_equivalent_condition",
        'name in ("gt", "ge")',
        'name == "gt"',
        "NaN, which counts nowhere, fulfils a condition",
        f"{_STORED}::test_stored_conditions_keep_the_same_rows[DOUBLE-row]",
    ),
    Fault(
        "stored-columns-with-other-bounds",
        "dpsql.sql.compile.scan_conditions:_emit_implied_condition",
        "_find_stored_bounds(first.facts) == _find_stored_bounds(second.facts) is not None",
        "_find_stored_bounds(first.facts) is not None",
        "a row that counts is left out, as a bound is less than what is stored",
        f"{_STORED}::test_clamping_keeps_the_order_of_two_columns",
    ),
    Fault(
        "stored-decimals-compared-with-near-ones",
        "dpsql.sql.compile.scan_conditions:emit_stored_decimals",
        "float(near) != value",
        "False",
        "a constant between two decimals is taken for one of them",
        f"{_STORED}::test_stored_conditions_keep_the_same_rows[DECIMAL(6, 3)-id]",
    ),
    Fault(
        "stored-conditions-beside-null",
        "dpsql.sql.compile.scan_conditions:_iterate_kept_scans",
        "relation.kind is JoinKind.INNER",
        "True",
        "a row is kept beside NULL that a condition leaves out",
        f"{_STORED}::test_rows_of_an_outer_join_stay",
    ),
    Fault(
        "unit-without-values-adds-the-least",
        "dpsql.sql.compile.lattice:UnitSums._build_total",
        'f"COALESCE({name_total(index)}, 0)"',
        'f"{name_total(index)}"',
        "a unit without a value counts as many times the least one as it has rows",
        "tests/properties/test_unit_totals.py::test_unit_total_sums_the_counted_rows",
    ),
    Fault(
        "rows-without-values-add-the-least",
        "dpsql.sql.compile.lattice:UnitSums._build_total",
        "least, most = min(low, 0), max(high, 0)",
        "least, most = low, high",
        "a row without a value counts as the value that is nearest to 0",
        "tests/properties/test_unit_totals.py::test_unit_total_sums_the_counted_rows",
    ),
    Fault(
        "count-of-a-unit-not-capped",
        "dpsql.sql.compile.lattice:UnitSums._build_count",
        'f"LEAST({name_value_count(index)}, counted_rows)"',
        'f"{name_value_count(index)}"',
        "COUNT(x) counts rows that do not count",
        f"{_MOVES}[SELECT COUNT(x) FROM t []]",
    ),
    Fault(
        "quantiles-of-a-unit-are-medians",
        "dpsql.plan.aggregates.per_unit:ExactAggregate.emit_sql",
        "_MIDDLE if rank is None else rank",
        "_MIDDLE",
        "every quantile of a unit's rows is its median",
        "tests/sql/test_fixtures.py::test_answers_match_duckdb[aggregates: Quantiles of the rows of each unit]",
    ),
    Fault(
        "values-of-a-unit-not-bounded",
        "dpsql.sql.compile.statement:_emit_limited_values",
        'f"{compiler.dialect.queries.emit_derived_table(counted)} WHERE counted_rows > 0"',
        'f"{compiler.dialect.queries.emit_derived_table(counted)} WHERE counted_rows >= 0"',
        "a unit brings more values than its rows that count",
        "tests/properties/test_sensitivity.py::test_allowed_number_of_values_counts[-1-1]",
    ),
    Fault(
        "values-counted-once-a-unit",
        "dpsql.sql.compile.statement:_emit_distinct_values",
        'f"COUNT(DISTINCT {VALUE}) AS distinct_count"',
        'f"COUNT({VALUE}) AS distinct_count"',
        "a value that several units have is counted for each",
        "tests/properties/test_sensitivity.py::test_allowed_number_of_values_counts[-3-3]",
    ),
    Fault(
        "sum-of-what-is-null-unbounded",
        "dpsql.sql.compile.per_unit_aggregates:emit_per_unit_aggregate",
        "found if found.is_bounded else named.facts.interval",
        "found",
        "a value that turns out to be NULL ends a query after its charge",
        "tests/api/test_several_releases.py::test_without_noise_the_answer_is_the_engine_s"
        "[zcdp-a value that is not there, in a sum of a person]",
    ),
    Fault(
        "units-without-rows-counted",
        "dpsql.sql.compile.statement:_emit_per_unit",
        '"WHERE counted_rows > 0"',
        '"WHERE counted_rows >= 0"',
        "a unit counts in groups in which none of its rows does",
        f"{_MOVES}[SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k [domain=False]]",
    ),
    Fault(
        "rows-counted-as-units",
        "dpsql.sql.compile.lattice:UnitSums.pair_summands",
        '{"unit_count": ONE, "row_count": Summand("counted_rows", self.analysis.bound.rows), **limited}',
        '{"unit_count": Summand("counted_rows", 1), "row_count": Summand("counted_rows", self.analysis.bound.rows), **limited}',
        "a unit is as many as it has rows",
        "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_beyond_its_sensitivity[SELECT COUNT(DISTINCT u) FROM t []]",
    ),
    Fault(
        "ranks-follow-row-numbers",
        "dpsql.sql.compile.contribution_bounds:emit_group_order",
        '["unit_id" if by_column else compiler.dialect.hashes.emit_row_hash("unit_id"), *keys]',
        '["unit_id", *keys]',
        "which groups of a row count changes when another row goes",
        "tests/properties/test_sensitivity.py::test_choice_of_groups_depends_on_the_unit_only",
    ),
    Fault(
        "small-groups-leave-the-engine",
        "dpsql.sql.compile.statement:_emit_grouping",
        "min_frequency > 1",
        "min_frequency < 1",
        "HAVING does not hold the least frequency",
        "tests/sql/test_compile.py::test_group_of_too_few_units_does_not_leave_the_engine",
    ),
    Fault(
        "groups-in-the-order-of-the-data",
        "dpsql.sql.compile.statement:_finish_statement",
        r"""
        f"\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"
        """,
        r'"\n"',
        "rows come in an order that the data makes",
        "tests/sql/test_compile.py::test_groups_come_in_the_order_of_their_keys",
    ),
    Fault(
        "released-keys-enter-within-their-interval",
        "dpsql.engine.lookups:to_constants",
        "ANYWHERE if exact else derive_interval(column).narrow_to(around)",
        "derive_interval(column).narrow_to(around)",
        "two group keys beyond an interval become one, so that one private row is joined to two groups",
        "tests/attacks/test_a39_ids_beyond_their_type.py::test_released_keys_stay_distinct",
    ),
    Fault(
        "what-noise-chose-is-taken-for-noise",
        "dpsql.plan.provenance:_is_noiseless_column",
        "return mark_noiseless_outputs(source.outer)[find_place(column, source.columns)]",
        "return False",
        "group keys beyond 2^55 that a query over an answer gives match nothing",
        "tests/attacks/test_a39_ids_beyond_their_type.py::test_rows_match_their_released_group",
    ),
)
