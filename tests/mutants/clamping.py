"""Faults of learnt clamps: their grid and prior, what the engine counts, what is charged, and the noise that follows."""

from __future__ import annotations

from .fault import Fault

_COMPUTED = "tests/properties/test_clamps.py::test_clamped_values_match_plain_python[0-by group]"
_LAW = "tests/properties/test_clamps.py::test_no_neighbour_moves_a_clamped_statistic_beyond_its_sensitivity"
_STAGES = "tests/properties/test_stages.py"
_JOINT = "tests/properties/test_joint_intervals.py::test_joint_and_separate_histograms_are_equal"
_REFUSED = "tests/planning/test_clamping.py::test_verification_refuses_sharper_choices_and_less_noise"

FAULTS = (
    Fault(
        "rung-off-by-one",
        "dpsql.sql.compile.contribution_bounds:_emit_interval_search",
        """
        f"CASE WHEN {amount} <= {low[-1]} THEN {_emit_interval_search(amount, low, first)} "
        f"ELSE {_emit_interval_search(amount, high, first + half + 1)} END"
        """,
        """
        f"CASE WHEN {amount} < {low[-1]} THEN {_emit_interval_search(amount, low, first)} "
        f"ELSE {_emit_interval_search(amount, high, first + half + 1)} END"
        """,
        "what is exactly a point is counted as more",
        "tests/planning/test_clamping.py::test_the_engine_finds_the_least_point_that_is_no_less",
    ),
    Fault(
        "one-side-of-a-total-alone",
        "dpsql.sql.compile.contribution_bounds:_emit_contribution",
        """
        f"{'-' * (sign < 0)}{name_total(measure)}"
        """,
        """
        f"{'-' * (sign < -1)}{name_total(measure)}"
        """,
        "what is below zero is counted as what is above",
        "tests/planning/test_clamping.py::test_noise_follows_the_choice",
    ),
    Fault(
        "totals-of-the-other-sign",
        "dpsql.sql.compile.contribution_bounds:_has_other_side",
        "measure.lattice.low < 0 if sign > 0 else measure.lattice.high > 0",
        "False",
        "what a unit contributes to one side is less than nothing, and its square is more",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "small-groups-left-out-of-the-choice",
        "dpsql.sql.compile.staged_statement:emit_stages",
        "f\"SELECT unit_id, {', '.join(totals)} FROM {PAIRS} GROUP BY unit_id\"",
        "f\"SELECT unit_id, {', '.join(totals)} FROM {PAIRS} WHERE group_key_1 IN (SELECT group_key_1 FROM {PAIRS} GROUP BY group_key_1 HAVING COUNT(*) > 4) GROUP BY unit_id\"",
        "a unit that makes a group large enough moves all that its other units have",
        "tests/planning/test_clamping.py::test_units_of_hidden_groups_decide_on_clamps_too",
    ),
    Fault(
        "one-group-decides",
        "dpsql.planning.clamp_histogram:select_clamp_points",
        "[group[side] for group in groups]",
        "[group[side] for group in groups[:1]]",
        "the clamp is chosen by what units have in the first group",
        "tests/planning/test_clamping.py::test_all_groups_take_part_in_the_choice",
    ),
    Fault(
        "clamp-not-times-groups",
        "dpsql.planning.clamping:compute_clamped_sensitivity",
        "l1 = min(analysis.bound.groups * top, clamp.upper_limit * unit)",
        "l1 = min(top, clamp.upper_limit * unit)",
        "a unit is taken to be in one group alone",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by group]",
    ),
    Fault(
        "choice-sharper-by-groups",
        "dpsql.planning.clamping:compute_step_range",
        "return people * (sides or analysis.bound.groups)",
        "return people * (sides or 1)",
        "a unit in several groups moves penalties further than is charged",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by group]",
    ),
    Fault(
        "replaced-units-choose-as-added-ones",
        "dpsql.planning.clamping:compute_step_range",
        "return people * (sides or analysis.bound.groups)",
        "return sides or analysis.bound.groups",
        "a unit that takes another's place moves penalties twice as far as is charged",
        _REFUSED,
    ),
    Fault(
        "choice-free-of-charge",
        "dpsql.planning.choose:_iterate_clamped",
        "choices = tuple(BoundedRange(clamp.compute_range(analysis)) for clamp in clamps)",
        "choices = ()",
        "clamps are chosen and not charged",
        _REFUSED,
    ),
    Fault(
        "noise-costs-the-whole-share",
        "dpsql.planning.choose:_iterate_clamped",
        "share - clamp_selection.part",
        "share",
        "the choice comes on top of what was asked for",
        "tests/planning/test_clamping.py::test_choices_and_noise_cost_the_requested_loss",
    ),
    Fault(
        "prior-of-another-power",
        "dpsql.planning.clamping:Clamp.weights",
        "scale // point**power",
        "scale // point",
        "points weigh otherwise than was tried out",
        "tests/planning/test_clamping.py::test_points_weigh_by_their_inverse_to_a_power",
    ),
    Fault(
        "coarse-prior",
        "dpsql.planning.clamping:Clamp.weights",
        "_LEAST_WEIGHT * self.upper_limit**power",
        "self.upper_limit**power",
        "all points of the last octave weigh the same, so that clamps are larger than need be",
        "tests/planning/test_clamping.py::test_points_weigh_by_their_inverse_to_a_power",
    ),
    Fault(
        "the-least-choice-is-expected",
        "dpsql.planning.build_clamps:_compute_default_index",
        "next(at for at, point in enumerate(clamp.grid) if weights * point**2 >= squares)",
        "first",
        "plans with clamps are chosen as if the choice cost nothing but its loss",
        "tests/planning/test_clamping.py::test_the_expected_noise_is_that_of_a_choice_by_the_prior_weights",
    ),
    Fault(
        "beyond-the-clamp-counts-nothing",
        "dpsql.planning.clamp_histogram:compute_clamped_series",
        "amounts = totals.compute_weighted_sums(number, index, (2, clamp.subdivisions), (1, point))",
        "amounts = totals.compute_weighted_sums(number, index, (2, clamp.subdivisions), (1, 0))",
        "units with more than the clamp do not count at all",
        _COMPUTED,
    ),
    Fault(
        "noise-as-was-expected",
        "dpsql.planning.measurement:MeasurementPlan.with_clamps",
        "measured if measured.clamp is None else measured.with_clamp(clamps[measured.clamp], self.analysis)",
        "measured",
        "the noise is for the clamp that was expected, not for the one that was chosen",
        "tests/planning/test_clamping.py::test_noise_follows_the_choice",
    ),
    Fault(
        "verification-passes-sharp-choices",
        "dpsql.planning.verify:verify_plan",
        "chosen += sum((_derive_clamp_range(clamp, plan.analysis) for clamp in plan.clamps), start=Fraction(0))",
        "chosen += 0",
        "a choice of a clamp that is sharper than is charged passes",
        _REFUSED,
    ),
    Fault(
        "noise-at-the-chosen-point-not-verified",
        "dpsql.engine.release.noise:_draw_noisy_groups",
        """plan = source.select_clamps(plan, unchosen, entropy)
verify_plan(plan)""",
        "plan = source.select_clamps(plan, unchosen, entropy)",
        "noise at a point that was not tried before the charge is drawn unseen",
        "tests/planning/test_verified_points.py::test_the_chosen_point_is_verified_before_noise_is_drawn",
    ),
    Fault(
        "clamps-verified-at-the-expected-point-alone",
        "dpsql.planning.verify:iterate_tried_points",
        "{(0,), (clamp.default_index,), (last,)}",
        "{(clamp.default_index,)}",
        "a plan whose noise is too small at another point is charged",
        "tests/planning/test_verified_points.py::test_ends_are_verified_before_the_charge",
    ),
    Fault(
        "groups-beyond-the-clamp-count",
        "dpsql.planning.clamp_histogram:compute_clamped_series",
        "found[UNITS] = totals.compute_weighted_sums(number, index, (1, 1), (1, 0))",
        "found[UNITS] = totals.compute_weighted_sums(number, len(clamp.grid), (1, 1), (1, 0))",
        "a unit counts in all its groups, with noise for some",
        f"{_LAW}[SELECT k, i, COUNT(DISTINCT u) FROM t WHERE u > 0 GROUP BY k, i []]",
    ),
    Fault(
        "groups-clamp-not-derived",
        "dpsql.planning.clamping:compute_clamped_bound",
        "return replace(analysis.bound, groups=clamp.bound_groups(analysis))",
        "return replace(analysis.bound, groups=1)",
        "the noise is for units of one group",
        _REFUSED,
    ),
    Fault(
        "units-told-a-point-too-late",
        "dpsql.planning.clamp_histogram:_count_exceeding_units",
        "return at",
        "return [at[0], *at[:-1]]",
        "the penalty of a point is that of the one before it",
        "tests/properties/test_clamps.py::test_units_count_in_the_chosen_number_of_groups",
    ),
    Fault(
        "places-in-the-order-of-keys",
        "dpsql.sql.compile.contribution_bounds:emit_group_order",
        """
        f"PARTITION BY unit_id ORDER BY {compiler.dialect.hashes.emit_shuffle_key(seed)}, {', '.join(keys)}"
        """,
        """
        f"PARTITION BY unit_id ORDER BY {', '.join(keys)}"
        """,
        "the same groups are left out of all units",
        "tests/properties/test_clamps.py::test_no_group_is_preferred",
    ),
    Fault(
        "threshold-of-the-groups-that-were-expected",
        "dpsql.planning.measurement:MeasurementPlan.with_clamps",
        "chosen.calibrate_to(vectors[chosen.vector].mechanism, held.bound_groups(chosen.vector))",
        "chosen",
        "where units count in more groups than was expected, the key of one is shown more often than delta allows",
        "tests/planning/test_clamping.py::test_the_threshold_follows_the_groups_that_are_chosen",
    ),
    Fault(
        "both-sides-for-the-larger",
        "dpsql.planning.clamping:compute_clamped_sensitivity",
        "l1 = min(sum(points), clamp.upper_limit) * unit",
        "l1 = max(points) * unit",
        "a unit that has one side in one group and the other in another moves both",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by sum]",
    ),
    Fault(
        "sides-at-the-price-of-one",
        "dpsql.planning.clamping:Clamp.compute_range",
        "len(self.sides) if self.across_groups else 0",
        "1 if self.across_groups else 0",
        "a unit with both sides moves two choices, of which one is charged",
        _REFUSED,
    ),
    Fault(
        "rest-of-a-unit-in-no-group",
        "dpsql.planning.verify_norms:_compute_group_sums",
        "full * top + rest, full * top**2 + rest**2",
        "full * top, full * top**2",
        "verification leaves out the group in which a unit has the rest of its rows",
        "tests/planning/test_norms.py::test_groups_are_added_up_as_if_one_by_one",
    ),
    Fault(
        "verification-takes-sides-for-one",
        "dpsql.planning.verify:_derive_clamp_range",
        "len(clamp.sides) if clamp.across_groups else analysis.bound.groups",
        "1 if clamp.across_groups else analysis.bound.groups",
        "a choice that is sharper than is charged passes",
        _REFUSED,
    ),
    Fault(
        "pairs-told-for-units",
        "dpsql.sql.compile.contribution_bounds:build_clamp_summands",
        '(name_total_column(target.clamp, target.side), _build_indicator("group_rank", (1,)))',
        "(name_total_column(target.clamp, target.side), ONE)",
        "a unit moves the penalties once for each of its groups",
        "tests/properties/test_clamps.py::test_no_neighbour_moves_penalties_beyond_its_groups",
    ),
    Fault(
        "parts-rounded-up",
        "dpsql.sql.compile.contribution_bounds:build_clamp_summands",
        """
        compiler.dialect.integers.emit_integer_quotient(f"{compiler.dialect.integers.to_wide_int(amount)} * {clamp.subdivisions}", f"GREATEST({compared}, 1)")
        """,
        """
        compiler.dialect.integers.emit_integer_quotient(f"{compiler.dialect.integers.to_wide_int(amount)} * {clamp.subdivisions}", f"GREATEST({compared}, 1)") + " + 1"
        """,
        "what a unit has in all its groups is more than the point",
        f"{_LAW}[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by sum]",
    ),
    Fault(
        "rows-and-values-by-their-own-measure",
        "dpsql.sql.compile.contribution_bounds:_emit_total_term",
        "clamp.measures[0]",
        "clamp.measures[-1]",
        "rows without a value are parts of the rows that have one",
        "tests/properties/test_clamps.py::test_clamped_values_match_plain_python[0-sum]",
    ),
    Fault(
        "parts-not-told-apart",
        "dpsql.planning.choose:_iterate_clamped",
        "vector if place is None else vector.with_subdivisions(clamps[place].subdivisions)",
        "vector",
        "estimates are as many times too large as there are parts",
        "tests/planning/test_clamping.py::test_noise_follows_the_choice",
    ),
    Fault(
        "parts-for-one-group",
        "dpsql.planning.build_clamps:_compute_subdivisions",
        "return SUBDIVISIONS << (analysis.bound.groups - 1).bit_length()",
        "return 2**10",
        "what a unit has in many groups is rounded away",
        "tests/properties/test_clamps.py::test_no_count_is_lost_among_many_groups",
    ),
    Fault(
        "norms-for-sums",
        "dpsql.planning.clamping:compute_clamped_sensitivity",
        "compute_ceil_sqrt(analysis.bound.groups * squares) * unit, squares * unit**2",
        "compute_ceil_sqrt(squares) * unit, squares * unit**2 // analysis.bound.groups",
        "noise is for a unit whose contributions are equal in all its groups",
        f"{_LAW}[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "squares-not-squared",
        "dpsql.sql.compile.contribution_bounds:_emit_total_term",
        """
        f"({held}) * ({held})"
        """,
        """
        f"({held})"
        """,
        "units are taken to have a smaller norm than they have",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "long-squares-are-lost",
        "dpsql.backends.duckdb.dialect:DuckDBIntegers.to_narrow_int",
        "fits_int64(low) and fits_int64(high)",
        "True",
        "units whose squares add up to more than 64 bits have no norm",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [neighbors=replace] by norm]",
    ),
    Fault(
        "parts-of-norms-rounded-up",
        "dpsql.sql.compile.contribution_bounds:_emit_norm_share",
        """
        f"FLOOR({part} * {compiler.emit_constant(float(clamp.subdivisions))})"
        """,
        """
        f"CEIL({part} * {compiler.emit_constant(float(clamp.subdivisions))}) + 1"
        """,
        "the contributions of a unit beyond the clamp have a larger norm than the point",
        f"{_LAW}[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "norms-not-rounded-up",
        "dpsql.sql.compile.contribution_bounds:_emit_norm_share",
        """
        f"SQRT({compiler.dialect.integers.to_double(f'GREATEST({squares}, 1)')}) * {compiler.emit_constant(2.0**clamp.norm_shift * (1 + 2.0**-50))}"
        """,
        """
        f"SQRT({compiler.dialect.integers.to_double(f'GREATEST({squares}, 1)')}) * {compiler.emit_constant(2.0**clamp.norm_shift * (1 - 2.0**-9))}"
        """,
        "the contributions of a unit beyond the clamp have a larger norm than the point",
        f"{_LAW}[SELECT SUM(x) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "evidence-counted-twice",
        "dpsql.planning.clamping:Clamp.compute_penalties",
        "(some - beyond[-1])",
        "2 * (some - beyond[-1])",
        "a unit moves the penalties of two points further apart than is charged",
        "tests/properties/test_clamps.py::test_no_neighbour_moves_penalties_beyond_its_groups",
    ),
    Fault(
        "clamps-lowered-without-evidence",
        "dpsql.planning.clamping:Clamp.compute_penalties",
        "max(0, self._needed_units - (some - beyond[-1]))",
        "0",
        "where few units contribute, the clamp is the least point, and the interval holds nothing of what is cut",
        "tests/planning/test_clamping.py::test_few_units_do_not_lower_a_clamp",
    ),
    Fault(
        "all-points-favoured-in-proportion",
        "dpsql.planning.clamping:Clamp.compute_penalties",
        """
        found[-1] -= max(0, self._needed_units - (some - beyond[-1]))
        """,
        """
        found = [
            each - max(0, self._needed_units * place // max(1, len(found) - 1) - (some - beyond[place]))
            for place, each in enumerate(found)
        ]
        """,
        "a point that all units are beyond gains as much as it loses, so that a clamp cuts something off of all of them",
        "tests/planning/test_clamping.py::test_no_clamp_is_below_the_value_of_all_units",
    ),
    Fault(
        "all-carriers-are-alike",
        "dpsql.planning.layouts:_compute_carrier_key",
        """
        return (
            functions,
            is_always_present(analysis, index),
            lattice is None,
            counted,
            index in separated,
            *interval,
        )
        """,
        "return (lattice is None, *interval)",
        "the first measure carries COUNT(*), and a better one is not tried",
        "tests/planning/test_choose.py::test_trying_one_of_equal_carriers_misses_no_plan[40-SUM(2 * i), AVG(i), COUNT(*)]",
    ),
    Fault(
        "what-is-cut-is-no-error",
        "dpsql.planning.choose:compute_mean_log_error",
        "compute_predicted_std(plan, item) * _compute_error_factor(plan, item)",
        "compute_predicted_std(plan, item)",
        "a clamp is learnt that makes the noise a little less, and cuts more than that",
        "tests/planning/test_choose.py::test_candidates_are_compared_with_the_clamping_error",
    ),
    Fault(
        "all-units-tolerated",
        "dpsql.planning.clamping:Clamp.compute_penalties",
        "max(0, more - self.tolerated_units)",
        "max(0, more - self.tolerated_units - 1000)",
        "what is cut is far more than the noise",
        "tests/planning/test_clamping.py::test_clamps_cut_off_less_than_the_noise",
    ),
    Fault(
        "a-total-limited-by-rows",
        "dpsql.planning.clamp_histogram:compute_clamped_series",
        "target.measure in apart",
        "target.measure is None",
        "a total is limited by the clamp on rows, and its noise is calibrated to a clamp of its own",
        f"{_LAW}[SELECT AVG(x) FROM t WHERE u > 0 GROUP BY k [] by sum]",
    ),
    Fault(
        "two-clamps-on-a-total",
        "dpsql.planning.verify:derive_loss_by_kind",
        "index in totals - {own}",
        "index in totals - {own, index}",
        "verification passes a vector that reads a total by another clamp than limits it",
        "tests/planning/test_clamping.py::test_two_clamps_on_one_total_are_refused",
    ),
    Fault(
        "mean-interval-without-the-count",
        "dpsql.engine.intervals.noise_laws:make_ratio_interval.is_explained",
        "z * math.hypot(total.std, theta * count.std)",
        "z * total.std",
        "the interval of a mean whose total and count are measured apart leaves out the noise of the count",
        "tests/engine/intervals/test_noise_laws.py::test_ratio_interval_covers_the_ratio[gaussian]",
    ),
    Fault(
        "mean-interval-without-what-is-cut",
        "dpsql.engine.intervals.noise_laws:make_ratio_interval.compute_interval.is_plausible",
        "max(apart - most, least - apart, 0.0)",
        "abs(apart)",
        "the interval of such a mean leaves out what the clamps cut off",
        "tests/engine/intervals/test_noise_laws.py::test_ratio_interval_covers_what_clamps_cut_off",
    ),
    Fault(
        "tails-too-small-to-compare",
        "dpsql.engine.intervals.post_selection:PostSelection._compute_conditional_tail",
        "min(share, self._compute_noise_tail(noisy - self.threshold) / self._compute_noise_tail(0))",
        "share",
        "the interval of a count in a chosen group begins at 1 where the noise is so small that its tails underflow",
        "tests/engine/intervals/test_post_selection.py::test_count_far_above_the_threshold_has_the_interval_of_its_noise",
    ),
    Fault(
        "clamps-chosen-without-evidence",
        "dpsql.planning.build_clamps:_ClampBuilder._build_clamp",
        "RULE.compute_min_support(mechanism)",
        "0",
        "clamps fall low where units are in many groups, and intervals hold the noise alone",
        "tests/planning/test_clamping.py::test_no_clamp_is_below_the_value_of_all_units[300-0.4-pure]",
    ),
    Fault(
        "few-groups-weigh-as-many",
        "dpsql.planning.clamping:Clamp.power",
        "min(self.exponent, get_tier(self.released_groups).exponent) if self.min_support else self.exponent",
        "self.exponent",
        "the clamp of a single total of a long tail cuts off more than its interval holds",
        "tests/planning/test_clamping.py::test_interval_of_a_single_total_covers_the_clamped_part[power law of 1.5-1/10-pure]",
    ),
    Fault(
        "cut-off-not-allowed-for",
        "dpsql.engine.intervals.cells:_compute_intervals",
        "[(low - below, high + above) for (low, high), (below, above) in zip(found, cut.tolist(), strict=True)]",
        "[*found]",
        "intervals hold the noise alone, though units beyond a clamp were overlooked",
        "tests/planning/test_clamping.py::test_intervals_are_wider_to_the_side_to_which_clamps_cut",
    ),
    Fault(
        "cut-off-to-the-other-side",
        "dpsql.engine.intervals.noise_laws:_convert_to_value_units",
        "return by_side.get(-1, 0.0) * step, by_side.get(1, 0.0) * step",
        "return by_side.get(1, 0.0) * step, by_side.get(-1, 0.0) * step",
        "intervals are wider to the side to which nothing is cut off",
        "tests/planning/test_clamping.py::test_intervals_are_wider_to_the_side_to_which_clamps_cut",
    ),
    Fault(
        "cut-off-spread-evenly",
        "dpsql.engine.intervals.noise_laws:compute_allowances",
        "_compute_group_allowances(plan.clamps[clamp], lattice, shares, most, confidence)",
        "_compute_group_allowances(plan.clamps[clamp], lattice, 0 * shares + 1 / len(shares), most, confidence)",
        "intervals of the largest groups miss what a clamp cuts off there",
        "tests/statistical/test_unequal_groups.py::test_intervals_of_the_largest_groups_hold_as_often_as_others[counts-zcdp]",
    ),
    Fault(
        "units-of-many-groups-lose-as-those-of-few",
        "dpsql.engine.intervals.noise_laws:_compute_group_allowances",
        "clamp.estimate_clipped_amounts(spread * clamp.tolerated_units, spread)",
        "clamp.estimate_clipped_amounts(0, spread)",
        "intervals of large groups miss what units lose that are spread over many groups",
        "tests/statistical/test_unequal_groups.py::test_intervals_of_large_groups_include_lost_contributions",
    ),
    Fault(
        "simulations-without-what-is-cut-off",
        "dpsql.engine.intervals.simulation:_RowSimulation.compute_intervals",
        "self._iterate_corners(confidence)",
        "()",
        "intervals of arithmetic on clamped totals hold the noise alone",
        "tests/planning/test_clamping.py::test_intervals_are_wider_to_the_side_to_which_clamps_cut",
    ),
    Fault(
        "nothing-said-of-what-is-cut-off",
        "dpsql.engine.notices:_describe_answer",
        "yield from _describe_clamped_units(table)",
        "yield from ()",
        "an answer is shown without a word on units whose contributions are not counted",
        "tests/engine/test_notices.py::test_clamped_units_are_noticed_if_they_matter",
    ),
    Fault(
        "units-beyond-a-clamp-refused",
        "dpsql.ledger.receipts:_undo_clamp_selection",
        '("chosen", "beyond")',
        '("chosen",)',
        "a genuine receipt is refused where another point was chosen than was expected",
        "tests/interfaces/cli/test_ledger.py::test_bounds_released_after_the_charge_are_in_the_receipt_only",
    ),
    Fault(
        "totals-of-all-intervals",
        "dpsql.sql.compile.joint_intervals:_JointIntervals.emit_totals",
        'f"SUM({part}) FILTER (WHERE {first} IS NOT NULL) AS {name}"',
        'f"SUM({part}) AS {name}"',
        "units and rows count once for each clamp",
        f"{_JOINT}[SELECT COUNT(*), AVG(x) FROM t WHERE u > 0 []]",
    ),
    Fault(
        "joint-intervals-of-two-clamps",
        "dpsql.sql.compile.joint_intervals:_JointIntervals.__init__",
        'self.intervals.setdefault(interval, f"interval_{len(self.intervals) + 1}")',
        'self.intervals.setdefault(interval, f"interval_{min(len(self.intervals), 1) + 1}")',
        "a clamp is chosen by the contributions that another one limits",
        f"{_JOINT}[SELECT COUNT(*), AVG(x) FROM t WHERE u > 0 []]",
    ),
    Fault(
        "each-group-a-unit-s-first",
        "dpsql.sql.compile.statement:_emit_pairs",
        '["group_rank"]',
        '["1 AS group_rank"]',
        "a unit moves the penalties once for each of its groups, on an engine that ranks those of all units",
        f"{_JOINT}[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "sums-over-units-of-64-bits",
        "dpsql.sql.compile.contribution_bounds:Summand.emit_sum",
        "compiler.dialect.integers.emit_exact_sum(self.text, self.max_magnitude)",
        'f"SUM({self.text})"',
        "a sum over many units ends a query in Spark",
        "tests/engines/test_spark.py::test_sums_over_units_have_more_than_64_bits[k]",
    ),
    Fault(
        "totals-of-pairs-among-the-intervals",
        "dpsql.sql.compile.joint_intervals:_JointIntervals.emit_histogram_rows",
        "len(self._lists) + place // len(columns)",
        "place // len(columns)",
        "totals of a group are those of an interval, where there are many clamps",
        f"{_JOINT}[SELECT COUNT(*), AVG(x) FROM t WHERE u > 0 []]",
    ),
    Fault(
        "many-clamps-of-all-rows-in-one-statement",
        "dpsql.sql.compile.statement:_needs_stages",
        "few and (compiler.dialect.capabilities.materializes_ctes or not analysis.release.keys)",
        "(few and compiler.dialect.capabilities.materializes_ctes) or not analysis.release.keys",
        "a statement of 90 sums takes the engine ten times as long",
        "tests/sql/test_many_sums.py::test_many_sums_of_all_rows_are_read_in_stages",
    ),
    Fault(
        "stages-count-pairs-for-units",
        "dpsql.sql.compile.staged_statement:_emit_histogram",
        "_emit_unit_rows(compiler) if of_units else PAIRS",
        'f"{PAIRS} JOIN {UNITS} USING (u)" if of_units else PAIRS',
        "a unit moves the penalties once for each of its groups",
        f"{_STAGES}::test_stages_match_the_single_statement[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "pairs-taken-for-units",
        "dpsql.sql.compile.staged_statement:_emit_unit_rows",
        'f"SELECT * FROM {PAIRS} WHERE group_rank = 1"',
        'f"SELECT * FROM {PAIRS}"',
        "a unit moves the penalties once for each of its groups",
        f"{_STAGES}::test_stages_match_with_ordered_groups[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "one-group-more-than-the-clamp",
        "dpsql.sql.compile.staged_statement:_emit_ranked_pairs",
        """
        f"(SELECT unit_id FROM {UNITS} WHERE {GROUPS} {compared} {clamp.points[0]})"
        """,
        """
        f"(SELECT unit_id FROM {UNITS} WHERE {GROUPS} {compared} {clamp.points[0] + 1})"
        """,
        "a unit counts in one group more than the noise is calibrated to",
        f"{_STAGES}::test_stages_match_the_single_statement[SELECT k, i, COUNT(DISTINCT u) FROM t WHERE u > 0 GROUP BY k, i []]",
    ),
    Fault(
        "units-by-interval-taken-for-units-beyond",
        "dpsql.planning.clamp_histogram:ClampHistogram.from_unit_counts",
        "clamp.amount is not Amount.GROUPS",
        "True",
        "a clamp on groups is chosen by other numbers than it says",
        f"{_STAGES}::test_stages_match_the_single_statement[SELECT k, i, COUNT(DISTINCT u) FROM t WHERE u > 0 GROUP BY k, i []]",
    ),
    Fault(
        "sums-of-stages-below-the-point",
        "dpsql.sql.compile.staged_statement:_emit_target_sums",
        'f"{compared} <= {point}"',
        'f"{compared} < {point}"',
        "contributions of just the chosen point are scaled as if they were beyond it",
        f"{_STAGES}::test_stages_match_the_single_statement[SELECT COUNT(*) FROM t WHERE u > 0 GROUP BY k [] by norm]",
    ),
    Fault(
        "sums-of-stages-without-what-has-no-clamp",
        "dpsql.engine.query_run:_collect_unclamped_statistics",
        "part.clamp is None or plan.clamps[part.clamp].chosen",
        "part.clamp is not None and plan.clamps[part.clamp].chosen",
        "statistics without a clamp are not read where others have one",
        f"{_STAGES}::test_unclamped_columns_are_read_with_clamped_ones",
    ),
    Fault(
        "sums-of-stages-without-means",
        "dpsql.sql.compile.staged_statement:_emit_target_sums",
        "(1, 4)",
        "(1,)",
        "the values of rows beyond a clamp are added up whole",
        f"{_STAGES}::test_stages_match_the_single_statement[SELECT COUNT(*), AVG(x) FROM t WHERE u > 0 GROUP BY k [] by norm together]",
    ),
    Fault(
        "selected-groups-without-null",
        "dpsql.sql.compile.staged_statement:emit_clamped_groups",
        'on = " AND ".join(f"{PAIRS}.{key} IS NOT DISTINCT FROM {SELECTED}.{key}" for key in keys)',
        'on = " AND ".join(f"{PAIRS}.{key} = {SELECTED}.{key}" for key in keys)',
        "the sums of a selected group are not read if its key is NULL",
        f"{_STAGES}::test_only_selected_groups_are_read",
    ),
    Fault(
        "groups-of-another-key",
        "dpsql.engine.release.noise:StagedSource.read_groups",
        'raise InternalError("two statements disagree about the groups", code="release")',
        "pass",
        "sums of other groups than the selected ones are taken for theirs",
        f"{_STAGES}::test_unselected_groups_are_refused",
    ),
    Fault(
        "quantiles-read-for-selected-groups-alone",
        "dpsql.sql.compile.statement:can_read_selected",
        "return comparable and not beside and not emit_key_values(compiler, analysis)",
        "return comparable and not emit_key_values(compiler, analysis)",
        "groups that only quantiles or distinct values have are among the selected ones",
        f"{_STAGES}::test_other_columns_are_read_for_all_groups",
    ),
    Fault(
        "stages-are-left-behind",
        "dpsql.backends.duckdb.connection:DuckDBBackend.stage_tables",
        'f"DROP TABLE IF EXISTS temp.{name}"',
        'f"SELECT {name!r}"',
        "contributions of units stay on the connection after the answer",
        f"{_STAGES}::test_stages_leave_no_tables",
    ),
    Fault(
        "variances-of-totals-apart",
        "dpsql.planning.layouts:_iterate_separated_measures",
        "index not in subtracted",
        "True",
        "a deviation is computed of totals and counts that two clamps have cut: four times the error",
        "tests/planning/test_clamping.py::test_subtracted_means_are_not_measured_separately",
    ),
)
