"""Faults of totals and parts that are made to agree."""

from __future__ import annotations

from .fault import Fault

_TEST = "tests/planning/test_hierarchy.py"
_LEFT = f"{_TEST}::test_totals_that_are_not_additive_are_not_adjusted"
_SEEN = "tests/api/test_agreement.py"

FAULTS = (
    Fault(
        "parts-weigh-as-totals",
        "dpsql.planning.hierarchy:Hierarchy.weights",
        "1 / (self.compute_variance(member) * self.count_groups(member.keys - effect))",
        "1 / self.compute_variance(member)",
        "a sum of many noisy parts counts as much as a total, and the estimate is worse than need be",
        f"{_TEST}::test_adjusted_cells_are_the_generalised_least_squares_estimate",
    ),
    Fault(
        "weights-that-leave-something",
        "dpsql.planning.hierarchy:Hierarchy.weights",
        "parts[precise.index(max(precise))] += WEIGHTS - sum(parts)",
        "",
        "weights that were rounded do not add up to one, and estimates are off",
        f"{_TEST}::test_adjusting_increases_no_variance",
    ),
    Fault(
        "noise-of-few-of-the-parts",
        "dpsql.planning.hierarchy:Hierarchy.derive_noise",
        "prod(self.sizes[key] - 1 for key in shared - equal) * self.count_groups(other.keys - shared)",
        "prod(self.sizes[key] - 1 for key in shared - equal)",
        "the noise of one part is told for that of all, and intervals are too narrow",
        f"{_TEST}::test_law_states_the_weight_of_each_noise",
    ),
    Fault(
        "units-add-up",
        "dpsql.planning.hierarchy:_is_additive",
        "Moment.UNITS in moments and bound.groups > 1",
        "Moment.UNITS in moments and bound.groups > 1 and bound.limits_groups",
        "units that are in several groups are counted once in the total, which is pulled to the sum",
        f"{_LEFT}[units in several groups]",
    ),
    Fault(
        "groups-left-out-add-up",
        "dpsql.planning.hierarchy:_is_additive",
        "bound.covers_groups",
        "True",
        "a total is pulled to parts in which some rows do not count",
        f"{_TEST}::test_groups_that_are_left_out_of_a_unit",
    ),
    Fault(
        "clamps-chosen-apart",
        "dpsql.planning.hierarchy:list_hierarchies",
        "measured.clamp is None and _is_additive(plan.analysis, measured.vector)",
        "_is_additive(plan.analysis, measured.vector)",
        "sums with different clamps are taken for totals and parts",
        f"{_TEST}::test_selected_clamps_are_unchanged",
    ),
    Fault(
        "other-rows-agree",
        "dpsql.planning.hierarchy:_compute_statistic_key",
        "(analysis.release.input, analysis.measures, analysis.replace, components)",
        "(analysis.measures, analysis.replace, components)",
        "totals of some rows are pulled to those of others",
        f"{_LEFT}[other rows]",
    ),
    Fault(
        "shared-totals-forgotten",
        "dpsql.planning.hierarchy:Hierarchy.closure",
        "found |= more",
        "break",
        "many parts are rounded one by one, and few parts by other keys take all that this adds up to",
        f"{_TEST}::test_parts_do_not_pile_their_rounding_up",
    ),
    Fault(
        "one-shared-total-kept-of-two",
        "dpsql.engine.postprocess.consistency:move_units",
        "values[at] += sign",
        "pass",
        "sets that overlap in a ring show different totals by the key that both have",
        f"{_TEST}::test_units_move_until_totals_are_kept",
    ),
    Fault(
        "totals-kept-at-any-price",
        "dpsql.engine.postprocess.consistency:_round_tables",
        "agreement.can_round and _can_round_accurately(after, agreement, statistic)",
        "agreement.can_round",
        "where noise is small, rounding for the sake of totals moves more numbers than least squares mends",
        "tests/statistical/test_agreement.py::test_rounded_numbers_are_no_worse_than_released_ones[zcdp]",
    ),
    Fault(
        "interval-about-the-estimate",
        "dpsql.engine.intervals.cells:_compute_intervals",
        "adjusted and item.type is Type.INTEGER and item in plan.analysis.release.aggregations",
        "False",
        "the number that is shown lies beside the middle of its interval, and plus or minus the half-width misses the truth",
        f"{_SEEN}::test_the_displayed_number_is_the_middle_of_its_interval[zcdp]",
    ),
    Fault(
        "discrete-noise-taken-for-normal",
        "dpsql.engine.intervals.noise_laws:_compute_half_width",
        """
        if (bound := mechanism.find_sum_bound(confidence)) is not None:
            return bound([float(size) for size in sizes])
        if mechanism.is_gaussian:
            return _compute_normal_quantile(confidence) * mechanism.std * math.sqrt(sum(float(size) ** 2 for size in sizes))
        """,
        """
        if mechanism.is_gaussian:
            return _compute_normal_quantile(confidence) * mechanism.std * math.sqrt(sum(float(size) ** 2 for size in sizes))
        if (bound := mechanism.find_sum_bound(confidence)) is not None:
            return bound([float(size) for size in sizes])
        """,
        "an interval of less than one step on each side misses noise of a step, which is one case of seven",
        "tests/engine/intervals/test_noise_laws.py::test_small_lattice_noise_is_not_treated_as_normal",
    ),
    Fault(
        "read-before-it-agrees",
        "dpsql.plan.steps:list_final_releases",
        "found[last + 1 :]",
        "found",
        "a query has read one value, and the answer shows another",
        f"{_LEFT}[a total that a query has read]",
    ),
    Fault(
        "contradictions-averaged",
        "dpsql.engine.postprocess.consistency:make_consistent",
        "not _has_contradiction(agreement, columns, adjusted)",
        "True",
        "a total without bias is pulled to parts that leave rows out",
        f"{_SEEN}::test_totals_over_different_rows_are_not_adjusted",
    ),
    Fault(
        "whole-numbers-one-by-one",
        "dpsql.engine.postprocess.consistency:make_consistent",
        "after = _round_tables(after, agreement)",
        "pass",
        "counts are rounded each for itself, and do not add up",
        f"{_SEEN}::test_totals_are_sums[zcdp]",
    ),
    Fault(
        "left-over-forgotten",
        "dpsql.engine.postprocess.consistency:_split_totals",
        "rest + sum(part.get_residual(cell) for part in left)",
        "rest",
        "what rounding leaves over piles up in totals by other keys",
        f"{_TEST}::test_rounding_does_not_accumulate_in_crossing_totals[(1000, 3)]",
    ),
    Fault(
        "kept-as-it-agrees",
        "dpsql.engine.replay.release_store:ReleaseStore.store_releases",
        "new, values = [], released.known_values",
        """
        from dpsql.engine.postprocess.consistency import make_consistent
        released = replace(released, released_tables=tuple(make_consistent(released.released_tables)))
        new, values = [], released.known_values
        """,
        "adjusted cells are stored as released ones, and adjusted again",
        f"{_SEEN}::test_stored_releases_are_adjusted_in_the_same_way[zcdp]",
    ),
)
