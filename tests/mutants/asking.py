"""Faults of what a query asks for itself, of other dialects, and of the ends of intervals."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "unit-of-the-query-trusted",
        "dpsql.sql.lower.unit_checks:check_unit",
        "not column.facts.is_unit",
        "column is None",
        "a query names a unit of its own, and believes to be answered for it",
        "tests/sql/test_fixtures.py::test_refused_query_has_its_code_and_position[options: A column that is not the unit's]",
    ),
    Fault(
        "clause-goes-unheard",
        "dpsql.policy.request.query:_merge_option",
        "return called if written is None else written",
        "return called",
        "a query that asks for less is charged what the connection was told",
        "tests/api/test_options.py::test_the_clause_goes_before_the_connection_s_epsilon",
    ),
    Fault(
        "cap-ignored-by-targets",
        "dpsql.engine.accuracy_targets:LossSearch.compute_epsilon_limit",
        "self.cap is not None",
        "self.cap is None",
        "who asks for an accuracy gets what no query may lose",
        "tests/api/test_target.py::test_a_target_above_the_cap_names_the_reachable_error[zcdp]",
    ),
    Fault(
        "target-of-the-first-value",
        "dpsql.engine.accuracy_targets:LossSearch._compute_largest_excess",
        "max(Fraction(error) / allowed_error(value.place) for value, error in self._iterate_errors(values, epsilon))",
        "min(Fraction(error) / allowed_error(value.place) for value, error in self._iterate_errors(values, epsilon))",
        "only the most accurate value of an answer keeps to the error that was asked for",
        "tests/api/test_target.py::test_the_least_loss_is_found[zcdp-0.8-a count and a sum]",
    ),
    Fault(
        "factors-cost-nothing",
        "dpsql.engine.accuracy_targets:_NoisyOutput.predict_error",
        "return half * self.factor",
        "return half",
        "what multiplies a value multiplies its noise beyond the error that was asked for",
        "tests/api/test_target.py::test_the_least_loss_is_found[pure-0.8-a factor]",
    ),
    Fault(
        "losses-below-the-found-one-untried",
        "dpsql.engine.accuracy_targets:_search_first_index",
        "high - low > 1",
        "high - low > 2",
        "more is charged than the accuracy that was asked for takes",
        "tests/api/test_target.py::test_the_search_ends_at_the_smallest_loss_of_the_grid",
    ),
    Fault(
        "released-values-beside-unseen",
        "dpsql.engine.accuracy_targets:_is_noisy",
        "list_releases(part.outer)",
        "False",
        "a value from a subquery has an error that nobody asked about",
        "tests/api/test_target.py::test_targets_of_data_dependent_errors_are_refused[zcdp-a value beside]",
    ),
    Fault(
        "loss-and-accuracy-at-once",
        "dpsql.policy.request.query:_resolve_loss",
        "epsilon is not None",
        "epsilon is None and error < 0",
        "of two prices one is guessed",
        "tests/api/test_target.py::test_a_loss_and_a_target_are_refused_together[zcdp-epsilon = 1, target_error = 50-call2]",
    ),
    Fault(
        "search-past-the-most",
        "dpsql.engine.relative_targets:_StepwiseSearch._compute_room",
        "whole = self._get_accountant(quote).compute_charge(Pure(most)).loss - self.spent_units[quote.key, quote.box]",
        "whole = quote.remaining.loss",
        "the steps of one query together cost more than its cap",
        "tests/api/test_relative.py::test_all_steps_together_stay_below_the_most[SELECT COUNT(*) AS n FROM visits-1.75-pure-None]",
    ),
    Fault(
        "half-widths-as-if-nothing-was-seen",
        "dpsql.engine.relative_targets",
        "_MISSED = Fraction(2, 3)",
        "_MISSED = Fraction(1)",
        "a search that ends on lucky noise is wrong more often than it promises",
        "tests/properties/test_relative.py::test_relative_target_holds_in_the_worst_case[-0.9-0.1]",
    ),
    Fault(
        "one-value-near-enough",
        "dpsql.engine.relative_targets:_StepwiseSearch._list_missed_cells",
        "return [cell for cell in self._list_cells(result) if not cell.is_within_target(self.share)]",
        """
        cells = self._list_cells(result)
        return [] if any(cell.is_within_target(self.share) for cell in cells) else list(cells)
        """,
        "only one value of an answer keeps to its error",
        "tests/api/test_relative.py::test_half_widths_meet_the_relative_target[pure-20%-0.2-two releases]",
    ),
    Fault(
        "what-is-out-of-reach-bought",
        "dpsql.engine.relative_targets:Cell.is_out_of_reach",
        "return not self.is_exact_zero and Fraction(least) > share * (abs(self.value) + self.half_width)",
        "return Fraction(least) < 0",
        "an error that nothing buys is paid for with all there is",
        "tests/api/test_relative.py::test_an_unreachable_target_ends_the_search[pure]",
    ),
    Fault(
        "relative-steps-of-chosen-groups",
        "dpsql.engine.accuracy_targets:LossSearch._require_relative_target",
        "analysis.domains is None or analysis.selects_keys",
        "False",
        "a first step that shows no groups counts as accurate",
        "tests/api/test_relative.py::test_relative_targets_of_noisy_selections_are_refused[pure-chosen groups]",
    ),
    Fault(
        "relative-steps-of-hidden-values",
        "dpsql.plan.provenance:_is_unfiltered_relation",
        """
        match relation:
            case PublicSubquery():
                return is_unfiltered(relation.outer)
            case Filter():
                return False
            case _:
                return all(map(_is_unfiltered_relation, list_inputs(relation)))
        """,
        """
        match relation:
            case PublicSubquery():
                return is_unfiltered(relation.outer)
            case _:
                return all(map(_is_unfiltered_relation, list_inputs(relation)))
        """,
        "noise hides values from a search, which then counts as met",
        "tests/api/test_relative.py::test_relative_targets_of_noisy_selections_are_refused[pure-a condition above]",
    ),
    Fault(
        "earlier-steps-unbilled",
        "dpsql.engine.relative_targets:_StepwiseSearch._finish_answer",
        """
        replace(
            result.receipt,
            entries=entries,
            loss=None if loss is None else json.loads(to_json(loss)),
            target=(result.receipt.target or {}) | outcome,
            replayed=tuple(id_ for id_ in result.receipt.replayed if id_ not in own and id_ not in refined),
            refined=tuple(refined),
            notices=(notice,) if notice else (),
        )
        """,
        """
        replace(
            result.receipt,
            entries=result.receipt.entries,
            loss=None if loss is None else json.loads(to_json(loss)),
            target=(result.receipt.target or {}) | outcome,
            replayed=tuple(id_ for id_ in result.receipt.replayed if id_ not in own and id_ not in refined),
            refined=tuple(refined),
            notices=(notice,) if notice else (),
        )
        """,
        "a receipt tells of the last charge alone",
        "tests/api/test_relative.py::test_half_widths_meet_the_relative_target[pure-20%-0.2-a count]",
    ),
    Fault(
        "relative-plans-priced",
        "dpsql.engine.forecast:forecast_queries",
        "prepared.terms.target is not None and prepared.terms.target.relative_error is not None",
        "False",
        "a plan is told the price of a first step",
        "tests/api/test_relative.py::test_explain_promises_no_price[pure]",
    ),
    Fault(
        "geomean-of-what-may-be-zero",
        "dpsql.sql.lower.aggregates.sums_and_means:_lower_geomean_across",
        "around.low is None or around.low <= 0",
        "around.low is None or around.low < 0",
        "a geometric mean is of values whose logarithms are not all numbers",
        "tests/sql/test_aggregate_calls.py::test_examples_are_refused[GEOMEAN]",
    ),
    Fault(
        "geomean-beyond-its-interval",
        "dpsql.sql.lower.aggregates.sums_and_means:_lower_geomean_across",
        'scalars.build_call(node, "case", scalars.build_call(node, "lt", found, low), low, found)',
        "found",
        "the exponential of a rounded logarithm lies below the interval",
        "tests/sql/test_geomean.py::test_geomean_stays_within_the_interval_of_its_argument",
    ),
    Fault(
        "filtered-without-a-word-of-it",
        "dpsql.sql.lower.grouping:rewrite_filtered_aggregate",
        "entry is None or not entry.filters",
        "entry is None",
        "FILTER stands behind what does not take it",
        "tests/sql/test_aggregate_calls.py::test_filter_is_accepted_where_the_entry_says_so[MODE]",
    ),
    Fault(
        "rarest-for-most-frequent",
        "dpsql.sql.lower.aggregates.chosen_values:lower_mode",
        "Order(count, descending=True, nulls_first=False)",
        "Order(count, descending=False, nulls_first=False)",
        "MODE is the value that the fewest rows have",
        "tests/sql/test_fixtures.py::test_answers_match_duckdb[grouping: The most frequent value]",
    ),
    Fault(
        "mode-of-nothing-there",
        "dpsql.sql.lower.aggregates.chosen_values:build_value_counts",
        "build_filter(over.input, [there])",
        "over.input",
        "MODE is NULL where most rows have no value",
        "tests/properties/test_best.py::test_mode_is_not_null",
    ),
    Fault(
        "mode-of-any-values",
        "dpsql.sql.lower.aggregates.chosen_values:lower_mode",
        "over.scope.context.requirements.append(PublicGroupsRequirement(release, refuse))",
        "pass",
        "MODE of real numbers counts each of them, though hardly two rows have the same one",
        "tests/sql/test_fixtures.py::test_refused_query_has_its_code_and_position[refused_form: The value that is most frequent]",
    ),
    Fault(
        "bins-of-nothing-there",
        "dpsql.sql.lower.aggregates.histogram:lower_histogram",
        "build_filter(over.input, [_build_presence(over, argument, value)])",
        "over.input",
        "rows without a value are counted in the last bin",
        "tests/properties/test_histograms.py::test_histogram_equals_its_rewrite",
    ),
    Fault(
        "bins-without-what-is-above",
        "dpsql.sql.lower.aggregates.histogram:_iterate_bin_ends",
        "not exact or most is None or most > places[-1]",
        "not exact or most is None",
        "rows above the last end are counted below it",
        "tests/properties/test_histograms.py::test_bins_match_brute_force",
    ),
    Fault(
        "bins-that-are-hidden",
        "dpsql.engine.plan_completion:_find_public_groups",
        "None if analysis.selects_keys else analysis.domains",
        "analysis.domains",
        "bins that few people are in are missing from the map, or it fails without any",
        "tests/properties/test_histograms.py::test_histogram_is_refused_for_hidden_groups",
    ),
    Fault(
        "bins-up-to-their-ends-alone",
        "dpsql.sql.lower.aggregates.histogram:_build_bin_end",
        'scalars.build_call(node, "le", value, end)',
        'scalars.build_call(node, "lt", value, end)',
        "a value at the end of a bin is counted in the next",
        "tests/properties/test_histograms.py::test_bins_match_duckdb",
    ),
    Fault(
        "bins-of-another-group",
        "dpsql.sql.lower.aggregates.histogram:_build_cell_number",
        "Literal(len(values), Type.INTEGER)",
        "Literal(len(values) - 1, Type.INTEGER)",
        "groups by several keys take each other's bins",
        "tests/properties/test_histograms.py::test_each_group_has_its_own_bins",
    ),
    Fault(
        "bins-of-what-has-no-value",
        "dpsql.sql.lower.aggregates.histogram",
        """
        "CASE WHEN {1} IS NULL THEN MAP({2}, LIST_TRANSFORM({2}, lambda bin: 0)) "
        "ELSE MAP({2}, LIST_SLICE(MAP_VALUES({0}), {1} * LEN({2}) + 1, ({1} + 1) * LEN({2}))) END"
        """,
        """
        "CASE WHEN {1} IS NULL THEN MAP({2}, LIST_SLICE(MAP_VALUES({0}), 1, LEN({2}))) "
        "ELSE MAP({2}, LIST_SLICE(MAP_VALUES({0}), {1} * LEN({2}) + 1, ({1} + 1) * LEN({2}))) END"
        """,
        "a group of rows without a value has the bins of another",
        "tests/properties/test_histograms.py::test_each_group_has_its_own_bins",
    ),
    Fault(
        "shares-of-what-is-free",
        "dpsql.engine.loss_split:split_loss",
        "0 if analysis.is_free else max(1, len(release.aggregations))",
        "max(1, len(release.aggregations))",
        "public keys take a share of the loss, and spend nothing of it",
        "tests/properties/test_histograms.py::test_histogram_of_each_group_equals_its_rewrite",
    ),
    Fault(
        "rows-of-nobody-counted",
        "dpsql.sql.lower.from_clause:require_private_argument",
        "name is not None and not _is_null_when_absent(expr, name)",
        "False",
        "aggregates of public rows without private ones are those of an INNER JOIN, unsaid",
        "tests/properties/test_public_left_joins.py::test_value_of_missing_rows_is_refused",
    ),
    Fault(
        "rows-of-nobody-otherwise",
        "dpsql.sql.lower.from_clause:_is_null_when_absent",
        """
        _is_null_when_absent(otherwise, name) and all(
            _is_untrue_when_absent(condition, name) or _is_null_when_absent(value, name) for condition, value in branches
        )
        """,
        "all(_is_untrue_when_absent(condition, name) or _is_null_when_absent(value, name) for condition, value in branches)",
        "what ELSE says of public rows without private ones is not counted",
        "tests/properties/test_public_left_joins.py::test_value_of_missing_rows_is_refused",
    ),
    Fault(
        "rows-of-nobody-by-alternatives",
        "dpsql.sql.lower.from_clause:_is_untrue_when_absent",
        "return all(_is_untrue_when_absent(part, name) for part in expr.arguments)",
        "return any(_is_untrue_when_absent(part, name) for part in expr.arguments)",
        "public rows without private ones that an alternative chooses are not counted",
        "tests/properties/test_public_left_joins.py::test_value_of_missing_rows_is_refused",
    ),
    Fault(
        "groups-of-nobody-missing",
        "dpsql.sql.lower.from_clause:with_all_public_rows",
        "scope.context.requirements.append(PublicGroupsRequirement(release, refuse))",
        "pass",
        "groups that nobody has are left out, and nothing says so",
        "tests/properties/test_public_left_joins.py::test_hidden_groups_are_refused_in_a_left_join",
    ),
    Fault(
        "best-of-no-key",
        "dpsql.sql.lower.aggregates.chosen_values:find_best_group",
        """
        replace(
            release,
            input=build_filter(release.input, [there]),
            aggregations=tuple(known for known in release.aggregations if known.name == score.name),
        )
        """,
        """
        replace(
            release, aggregations=tuple(known for known in release.aggregations if known.name == score.name)
        )
        """,
        "ARG_MIN is NULL where few rows have no key, or is not chosen at all",
        "tests/properties/test_arg_max.py::test_arg_max_of_released_groups_is_the_best_group[ARG_MIN-alone]",
    ),
    Fault(
        "best-of-groups-left-out",
        "dpsql.sql.lower.aggregates.chosen_values:_find_read_release",
        "len(found) != 1 or not is_unfiltered(asked)",
        "len(found) != 1",
        "a group that a condition leaves out is chosen",
        "tests/sql/test_fixtures.py::test_answers_match_duckdb[subqueries: The best of some released groups]",
    ),
    Fault(
        "best-beside-its-numbers",
        "dpsql.sql.lower.aggregates.chosen_values:_has_further_clauses",
        "other or any((outer.having, outer.qualify, outer.order, outer.limit is not None, outer.offset))",
        "any((outer.having, outer.qualify, outer.order, outer.limit is not None, outer.offset))",
        "a group is chosen at a price of its own beside the numbers that say which it is",
        "tests/sql/test_fixtures.py::test_accepted_query_has_its_meaning[subqueries: The best of released groups, beside a subquery over them]",
    ),
    Fault(
        "first-of-equals",
        "dpsql.plan.aggregates.per_unit",
        'f"{name.upper()}({{0}}, ROW({{1}}, {{0}})) FILTER (WHERE {{1}} IS NOT NULL)"',
        'f"{name.upper()}({{0}}, {{1}})"',
        "of a unit's rows that are equally good the one that comes first is shown, in whatever order they are",
        "tests/properties/test_arg_max.py::test_unit_s_value_depends_on_its_rows_only[ARG_MAX]",
    ),
    Fault(
        "ends-swapped",
        "dpsql.engine.intervals.cells:compute_interval_ends",
        'which == "high"',
        'which != "high"',
        "the lower end of an interval is above the upper one",
        "tests/sql/test_interval_ends.py::test_ends_are_the_same_above_a_subquery",
    ),
    Fault(
        "remainders-kept",
        "dpsql.sql.lower.typed_calls:_divide",
        'scalars.build_call(node, "//" if are_whole else "/", left, right)',
        'scalars.build_call(node, "/", left, right)',
        "PostgreSQL's 7 / 2 is 3.5",
        "tests/sql/test_dialects.py::test_translation_means_the_duckdb_query[postgres: Whole numbers drop the remainder there]",
    ),
    Fault(
        "sums-of-long-numbers-without-remainder",
        "dpsql.sql.lower.typed_calls:lower_grouped_typed_call",
        "any(_is_long(row_scalars.lower(part.this)) for part in sums)",
        "False",
        "PostgreSQL's SUM(x) / 2 of a bigint column loses its half",
        "tests/sql/test_dialects.py::test_translation_means_the_duckdb_query[postgres: A sum of long numbers is a numeric]",
    ),
    Fault(
        "means-of-whole-numbers-kept",
        "dpsql.sql.lower.typed_calls:_lower_mean",
        "value.type is not Type.INTEGER",
        "True",
        "T-SQL's AVG of whole numbers has a fraction",
        "tests/sql/test_dialects.py::test_translation_means_the_duckdb_query[tsql: So does their mean]",
    ),
    Fault(
        "sums-of-derived-tables-guessed",
        "dpsql.sql.parse.translate_types:translate_division",
        "not any(map(_has_own_sum, sides))",
        "False",
        "a quotient of a sum whose type is not known is answered by a guess",
        "tests/sql/test_dialects.py::test_refused_query_names_its_position[postgres: A SUM in a derived table, whose type is not known by its name]",
    ),
    Fault(
        "reserved-calls-by-users",
        "dpsql.sql.parse.parse:_check_token_pair",
        "token.text.lower().startswith(PREFIX)",
        "token.text.lower().startswith(PREFIX * 2)",
        "an analyst calls what only a translation may write",
        "tests/sql/test_dialects.py::test_reserved_calls_are_refused_in_a_users_text[duckdb]",
    ),
    Fault(
        "patterns-of-other-dialects-pass",
        "dpsql.sql.parse.translate_texts:take_pattern",
        "not _PLAIN_PATTERN.fullmatch(text)",
        "False",
        "a regular expression means something else in DuckDB",
        "tests/sql/test_dialects.py::test_refused_query_names_its_position[postgres: A regular expression with a class of its own]",
    ),
    Fault(
        "arguments-of-other-dialects-pass",
        "dpsql.sql.parse.translate_nodes:Translator._check_node",
        "self.source.take_arguments(node, *known)",
        "_ = known",
        "what a word after a function or clause says is left out without a word",
        "tests/sql/test_dialects.py::test_refused_query_names_its_position[snowflake: Digits of a ceiling]",
    ),
    Fault(
        "days-between-in-their-order",
        "dpsql.sql.parse.translate_dates:translate_date_difference",
        'build_call("date_diff", exp.Literal.string(name), earlier, later)',
        'build_call("date_diff", exp.Literal.string(name), later, earlier)',
        "the days between two dates have the wrong sign",
        "tests/sql/test_dialects.py::test_results_are_those_of_the_manual[spark: Days between]",
    ),
    Fault(
        "joins-without-limit",
        "dpsql.sql.parse.parse:_check_joins",
        "waiting > MAX_JOINS",
        "waiting > 100 * MAX_JOINS",
        "a short text keeps the parser busy for years",
        "tests/sql/test_fixtures.py::test_refused_query_has_its_code_and_position[refused_length: Joins whose conditions are not said]",
    ),
    Fault(
        "simulated-ends-less-certain",
        "dpsql.engine.intervals.cells:compute_interval_ends",
        "simulate_intervals(plan, table, of, rows, confidence)",
        "simulate_intervals(plan, table, of, rows, 0.5)",
        "ends of ratios in SQL hold half of the time",
        "tests/sql/test_interval_ends.py::test_expressions_over_a_row_have_the_ends_of_the_result",
    ),
)
