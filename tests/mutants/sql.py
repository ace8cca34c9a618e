"""Faults of what is accepted: the parser, the whitelist, names, constants and functions."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "second-statement-dropped",
        "dpsql.sql.read.parse:_tree",
        """
        select = trees[0] if len(trees) == 1 else None
        if len(trees) > 1:
            _refuse("one_statement", "a query must be one statement", "send the statements separately")
        """,
        """
        select = trees[0]
        if not trees:
            _refuse("one_statement", "a query must be one statement", "send the statements separately")
        """,
        "of two statements the first is answered as if it were alone",
        "tests/sql/test_fixtures.py::test_refusal[refused_form: A second statement that does harm]",
    ),
    Fault(
        "depth-without-limit",
        "dpsql.sql.read.parse:_check_depth",
        "depth > MAX_DEPTH",
        "depth > 100 * MAX_DEPTH",
        "a deep query ends in a RecursionError",
        "tests/attacks/test_a23_options.py::test_depth_and_bulk_are_refused[sums]",
    ),
    Fault(
        "functions-of-other-dialects-pass",
        "dpsql.sql.read.dialect:Parser",
        "{name: build for name, build in DuckDBParser.FUNCTIONS.items() if name in _AGGREGATES}",
        "{name: build for name, build in DuckDBParser.FUNCTIONS.items()}",
        "the parser rewrites a call before its arguments are read",
        "tests/sql/test_fixtures.py::test_meaning[functions_text: Numbers, dates and booleans are joined as text]",
    ),
    Fault(
        "grouping-set-takes-every-key",
        "dpsql.sql.lower.grouping:Grouping.of_set",
        "self.group_all(keys, items)",
        "self.group_all(every, items)",
        "each set has the groups of all of them, at a price for few",
        "tests/sql/test_grouping_sets.py::test_sets_are_what_their_union_is",
    ),
    Fault(
        "unknown-clause-passes",
        "dpsql.sql.lower.statement:_check_clauses",
        "name not in allowed",
        "name in ()",
        "a clause of SELECT that is not modelled is ignored",
        "tests/sql/test_whitelist.py::test_an_unknown_argument_of_any_node_is_refused[aggregates: COUNT of NULL]",
    ),
    Fault(
        "unknown-argument-passes",
        "dpsql.sql.read.rejection:Source.take",
        "key in fixed and value in fixed[key]",
        "key not in fixed or value in fixed[key]",
        "an argument of a node that is not modelled is ignored",
        "tests/sql/test_whitelist.py::test_an_unknown_argument_of_any_node_is_refused[aggregates: COUNT of NULL]",
    ),
    Fault(
        "window-passes",
        "dpsql.sql.lower.unit_windows:check_partition",
        "not rows and any(identity(part, relation) is not None for part in partition)",
        "not rows",
        "a window is laid on private rows of whomever",
        "tests/sql/test_fixtures.py::test_refusal[refused_meaning: A rank of rows, counted]",
    ),
    Fault(
        "window-in-a-filter",
        "dpsql.plan.nodes:_check_rows",
        "any(map(windowed, exprs))",
        "all(map(windowed, exprs)) and exprs is None",
        "a plan may look at the rows of several units below the boundary",
        "tests/sql/test_boundary.py::test_no_window_stands_below_the_boundary",
    ),
    Fault(
        "spread-of-a-unit-without-bounds",
        "dpsql.sql.lower.aggregates.variance:_exact.within",
        "found if bounds is None else formula.between(found, *bounds)",
        "found",
        "a sample's variance within a unit has no bounds, so it cannot be added up",
        "tests/sql/test_spread_of_groups.py::test_of_a_unit_s_rows",
    ),
    Fault(
        "windows-of-each-set",
        "dpsql.sql.lower.set_windows:Parts._shape",
        "isinstance(expr, Windowed)",
        "isinstance(expr, Windowed) and not expr.order",
        "ranks of the groups of several grouping sets are those within each set",
        "tests/sql/test_fixtures.py::test_answers_as_duckdb_does[grouping_sets: A window over grouping sets]",
    ),
    Fault(
        "last-of-equal-rows",
        "dpsql.sql.lower.unit_windows:check_window",
        "window.function in _CHOSEN and not by_rows and not whole",
        "window.function in _CHOSEN and node is None",
        "which of several rows that are equal in order is shown, storage says",
        "tests/sql/test_unit_windows.py::test_what_sets_units_beside_each_other_is_refused",
    ),
    Fault(
        "windows-across-units",
        "dpsql.sql.emit.unit_windows:_over",
        """
        f"PARTITION BY {', '.join([unit, *map(write, window.partition)])}"
        """,
        """
        f"PARTITION BY {', '.join([*map(write, window.partition)])}"
        """,
        "units that share a key that should be one's share a window",
        "tests/properties/test_linked.py::test_a_person_s_rows_depend_on_nobody_else",
    ),
    Fault(
        "ties-broken-by-storage",
        "dpsql.sql.emit.unit_windows:_over",
        "by_place or by_rows",
        "by_rows",
        "among rows that are equal in order, the place where they are stored decides",
        "tests/sql/test_unit_windows.py::test_where_rows_are_stored_decides_nothing",
    ),
    Fault(
        "frames-of-rows-broken-by-storage",
        "dpsql.sql.emit.unit_windows:_over",
        "by_place or by_rows",
        "by_place",
        "which of several equal rows a frame begins with, storage says",
        "tests/sql/test_unit_windows.py::test_where_rows_are_stored_decides_nothing",
    ),
    Fault(
        "ties-of-two-zeros",
        "dpsql.sql.emit.relations:_Block._windows",
        "map(group_keys.grouped, source.items)",
        "map(write, source.items)",
        "0.0 and -0.0 are equal in order, and differ in what follows",
        "tests/sql/test_unit_windows.py::test_where_rows_are_stored_decides_nothing",
    ),
    Fault(
        "numbers-of-one-partition",
        "dpsql.analysis.stability:_numbered",
        "max(0, floor(number)) * _most_values(partition, source.input, within)",
        "max(0, floor(number))",
        "the first row of each group of a unit is taken for its only one",
        "tests/sql/test_unit_windows.py::test_the_first_rows_of_a_unit_bound_its_contribution",
    ),
    Fault(
        "window-takes-alias-of-window",
        "dpsql.sql.lower.windows:_over_rows",
        "windowed(expr)",
        "grouping.select is None",
        "a window is laid on the values of another of the same SELECT",
        "tests/sql/test_fixtures.py::test_refusal[refused_meaning: A window over a window's alias]",
    ),
    Fault(
        "other-columns-counted-as-units",
        "dpsql.sql.lower.aggregates.count:count_across",
        "is_unit = facts_of(expr, over.input).is_unit",
        "is_unit = facts_of(expr, over.input) is not None",
        "COUNT(DISTINCT x) counts units, whatever x is",
        "tests/sql/test_fixtures.py::test_meaning[aggregates: Values]",
    ),
    Fault(
        "clock-read-at-each-use",
        "dpsql.sql.lower.statement_time:StatementTime.constant",
        "self.at.date() if kind is Type.DATE else self.at",
        "self.at.date() if kind is Type.DATE else dt.datetime.now()",
        "a plan depends on when it is made, not on when it is asked for",
        "tests/attacks/test_a19_volatile_functions.py::test_the_clock_is_read_once_and_never_by_the_engine[now()]",
    ),
    Fault(
        "columns-where-constants-belong",
        "dpsql.sql.lower.calls:_wrong",
        "sorted(built.function.literals)",
        "sorted(built.function.literals & {-1})",
        "a pattern, a start or a number of digits comes from a row",
        "tests/sql/test_fixtures.py::test_refusal[refused_meaning: A pattern that is no constant]",
    ),
    Fault(
        "integers-overflow",
        "dpsql.sql.lower.calls:_widened",
        "interval(built).within(SAFE_INTEGER)",
        "interval(built)",
        "a product beyond 64 bits is NULL",
        "tests/attacks/test_a03_exact_sums.py::test_a_product_beyond_64_bits_is_no_null",
    ),
    Fault(
        "intervals-too-narrow",
        "dpsql.functions.operators:_difference",
        "return of[0] - of[1]",
        "return of[0] + of[1]",
        "a difference leaves its interval, so it is clamped amiss, or overflows",
        "tests/properties/test_bounds.py::test_values_lie_in_their_interval[SUM(i - 3)-]",
    ),
    Fault(
        "division-by-zero",
        "dpsql.functions.operators",
        '"(CAST({0} AS DOUBLE) / NULLIF(CAST({1} AS DOUBLE), 0))"',
        '"(CAST({0} AS DOUBLE) / CAST({1} AS DOUBLE))"',
        "a zero divisor gives an infinity, not NULL",
        "tests/sql/test_fixtures.py::test_answers_as_duckdb_does[functions: A division by zero in a row is NULL]",
    ),
    Fault(
        "casts-fail",
        "dpsql.functions.casts:_integer",
        'f"CAST(TRY_CAST({{0}} AS {name}) AS BIGINT)"',
        'f"CAST(CAST({{0}} AS {name}) AS BIGINT)"',
        "one row's text that is no number fails the query",
        "tests/attacks/test_a05_data_errors.py::test_what_is_accepted_never_fails",
    ),
    Fault(
        "days-out-of-range-fail",
        "dpsql.functions.dates:_truncation",
        """
        f"TRY(DATE_TRUNC('{unit}', TRY_CAST({{0}} AS TIMESTAMP)))"
        """,
        """
        f"DATE_TRUNC('{unit}', TRY_CAST({{0}} AS TIMESTAMP))"
        """,
        "one row's day at the end of the calendar fails the query",
        "tests/attacks/test_a05_data_errors.py::test_what_is_accepted_never_fails",
    ),
    Fault(
        "whole-numbers-overflow",
        "dpsql.functions.operators:_arithmetic",
        'f"TRY_CAST((CAST({{0}} AS HUGEINT) {symbol} {{1}}) AS BIGINT)"',
        'f"({{0}} {symbol} {{1}})"',
        "a product fails on a row that a condition drops",
        "tests/attacks/test_a27_evaluation_order.py::test_no_dropped_row_makes_a_statement_fail[joined to itself]",
    ),
    Fault(
        "negated-whole-numbers-overflow",
        "dpsql.functions.operators",
        '"TRY_CAST((- CAST({0} AS HUGEINT)) AS BIGINT)"',
        '"(- {0})"',
        "the least of all whole numbers fails a query",
        "tests/functions/test_total.py::test_no_row_makes_it_fail[negate]",
    ),
    Fault(
        "released-values-enter-as-they-are",
        "dpsql.engine.post_processor:_clamped_column",
        "moved = [_clamped(value, around) for value in values]",
        "moved = [_clamped(value, ANYWHERE) for value in values]",
        "noise of any size enters among private rows",
        "tests/attacks/test_a28_released_factors.py::test_a_factor_is_read_within_its_interval",
    ),
    Fault(
        "values-that-differ-enter-as-one",
        "dpsql.engine.post_processor:_clamped_column",
        "None if isinstance(at, (int, float)) and at != value and at in merged else at",
        "at",
        "noisy keys beyond their interval become equal, and a private row is joined to all of them",
        "tests/attacks/test_a28_released_factors.py::test_values_that_differ_never_become_one",
    ),
    Fault(
        "any-epsilon-is-asked-for",
        "dpsql.engine.pipeline:Engine.prepare",
        "require_above(self.policy.min_epsilon, wanted.loss)",
        "",
        "noise is made as large as an analyst wants",
        "tests/attacks/test_a28_released_factors.py::test_no_query_asks_for_less_than_the_least",
    ),
    Fault(
        "comparison-narrows-the-wrong-side",
        "dpsql.analysis.intervals",
        '{"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}',
        '{"lt": "lt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}',
        "of x < y it is concluded that y is small",
        "tests/analysis/test_intervals.py::test_a_comparison_narrows_both_sides",
    ),
    Fault(
        "unbounded-sums-pass",
        "dpsql.analysis.analyse:_measure",
        "not around.bounded or around.meet(limits(expr.type)) != around",
        "not around.bounded",
        "bounds are accepted whose squares no DOUBLE can hold",
        "tests/analysis/test_intervals.py::test_bounds_that_arithmetic_could_not_hold_are_none",
    ),
    Fault(
        "engine-not-asked-whether-it-parses",
        "dpsql.engine.pipeline:Engine.prepare",
        "not self.backend.parses(parsed.text)",
        "self.backend.parses(parsed.text) is None",
        "the parser's guess at a broken query is answered",
        "tests/sql/test_fixtures.py::test_refusal[refused_form: BETWEEN without AND]",
    ),
)
