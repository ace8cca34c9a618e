"""Faults of what is proved: stability, lattices, sensitivities, the choice of noise and its verification."""

from __future__ import annotations

from .fault import Fault

_AGREE = "tests/planning/test_verify.py::test_both_derivations_agree"
_MOVED = "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_further_than_derived"

FAULTS = (
    Fault(
        "scores-move-one-way",
        "dpsql.planning.top_k:top_k_selection",
        "steps = max(1, high - low) * (2 if analysis.replace else 1)",
        "steps = max(1, high - low)",
        "a unit in another's place moves two scores apart by the share of one",
        "tests/planning/test_verify.py::test_the_best_groups_are_charged",
    ),
    Fault(
        "choices-of-several-for-one",
        "dpsql.planning.top_k:TopKSelection.event",
        "return Composed((each,) * self.top.count) if self.top.count > 1 else each",
        "return each",
        "of several groups the first alone is paid for",
        "tests/planning/test_verify.py::test_the_best_groups_are_charged",
    ),
    Fault(
        "choices-not-charged",
        "dpsql.planning.choose:_least_error",
        "events = (*noise, *choices)",
        "events = noise or (*choices,)",
        "beside noise, values in order are chosen for nothing",
        "tests/planning/test_verify.py::test_values_in_order_are_charged",
    ),
    Fault(
        "fanout-forgotten",
        "dpsql.analysis.stability:_Rows._forwards",
        "return 1 if is_answered(join.right) else self.facts.multiplicity(join)",
        "return 1",
        "a public table that repeats rows does not raise the bound",
        "tests/analysis/test_stability.py::test_bounds",
    ),
    Fault(
        "repeated-row-units-unbounded",
        "dpsql.analysis.stability:contribution_bound",
        """
        rows > 1
        or _computed(release.input)
        or any(scan.unit.kind is UnitKind.COLUMN for scan in tables)
        """,
        "_computed(release.input) or any(scan.unit.kind is UnitKind.COLUMN for scan in tables)",
        "a row that a join repeats is as many units",
        "tests/planning/test_partition_selection.py::test_a_join_makes_no_crowd_of_one_row",
    ),
    Fault(
        "bounds-follow-the-data",
        "dpsql.analysis.stability:contribution_bound",
        "rows = most_rows(release.input, facts)",
        """
        found = facts.backend.public_number(f'SELECT COUNT(*) FROM "{tables[0].table}"')
        rows = min(most_rows(release.input, facts), found + 1)
        """,
        "the noise says how many rows there are",
        "tests/attacks/test_a14_budget_as_output.py::test_the_statement_and_the_explanation_are_equal",
    ),
    Fault(
        "rows-without-a-partner-forgotten",
        "dpsql.analysis.public_tables:_public_part",
        "not is_private(source) and not needs(source) and source.alias not in outer",
        "not is_private(source) and not needs(source)",
        "public rows count only if a LEFT JOIN finds a partner of theirs",
        "tests/analysis/test_public_tables.py::test_keys_over_public_columns_are_public",
    ),
    Fault(
        "key-of-rows-without-a-partner-forgotten",
        "dpsql.analysis.public_tables:looked_up_values",
        "all(held)",
        "not all(held)",
        "the key of rows that a LEFT JOIN finds no partner of is taken not to be",
        "tests/analysis/test_public_tables.py::test_no_key_is_left_out",
    ),
    Fault(
        "derived-tables-always-have-a-partner",
        "dpsql.analysis.public_tables:_traced",
        "aliases & optional_sources(relation)",
        "aliases & optional_sources(relation) and not any(map(is_private, read))",
        "the key NULL of rows without a partner in a derived table is taken not to be",
        "tests/analysis/test_public_tables.py::test_no_key_is_left_out",
    ),
    Fault(
        "tables-joined-as-they-are-written",
        "dpsql.sql.lower.joins:_Assembly.turn",
        "self._repeats(item, pairs)",
        "0",
        "a public table is joined before all of its keys are there, and repeats rows",
        "tests/analysis/test_public_tables.py::test_tables_are_joined_where_they_repeat_rows_least",
    ),
    Fault(
        "one-side-of-or-lists-for-both",
        "dpsql.analysis.domains:_either",
        "return {expr: _in_either(left[expr], right[expr]) for expr in left.keys() & right.keys()}",
        "return {**left, **right}",
        "a key that one side of an OR lists is taken to have no other values",
        "tests/properties/test_bounds.py::test_keys_lie_in_their_domain",
    ),
    Fault(
        "no-null-on-one-side-of-or",
        "dpsql.analysis.domains:_in_either",
        "None if ours is None or theirs is None else tuple(dict.fromkeys((*ours, *theirs)))",
        "theirs or ours if ours is None or theirs is None else tuple(dict.fromkeys((*ours, *theirs)))",
        "a key that is not NULL on one side of an OR is taken to be what the other lists",
        "tests/properties/test_bounds.py::test_listed_keys_are_public",
    ),
    Fault(
        "query-raises-the-group-limit",
        "dpsql.analysis.stability:contribution_bound",
        "min(filter(None, (*groups, release.max_groups, natural)))",
        "max(filter(None, (*groups, release.max_groups, natural)))",
        "the larger of the policy's and the query's bound holds",
        "tests/analysis/test_stability.py::test_a_query_may_only_lower_the_bound",
    ),
    Fault(
        "group-limit-not-asked-for",
        "dpsql.analysis.stability:contribution_bound",
        "stated < proven",
        "stated > proven",
        "a bound is counted on that nobody enforces",
        "tests/analysis/test_stability.py::test_bounds",
    ),
    Fault(
        "declared-keys-trusted",
        "dpsql.analysis.stability:contribution_bound",
        "stated < proven",
        "stated < natural",
        "a unit with several rows where one is declared is in several groups, with noise for one",
        "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_further_than_derived"
        "[SELECT t.k, COUNT(DISTINCT u), COUNT(*) FROM t LEFT JOIN p ON t.k = p.k GROUP BY t.k [rows=1]]",
    ),
    Fault(
        "lattice-rounded-inward",
        "dpsql.analysis.lattice:Lattice.of",
        "cls(exponent, math.floor(low / step), math.ceil(high / step))",
        "cls(exponent, math.ceil(low / step), math.floor(high / step))",
        "a value at its bound is a step larger than the largest",
        "tests/analysis/test_lattice.py::test_a_value_at_a_bound_that_is_no_multiple_of_the_step_stays_within",
    ),
    Fault(
        "lattice-finer-than-it-says",
        "dpsql.analysis.lattice:Lattice.step",
        "return Fraction(2) ** self.exponent",
        "return Fraction(2) ** (self.exponent - 1)",
        "values are twice as many steps as was derived",
        "tests/analysis/test_lattice.py::test_a_lattice_encloses_its_interval_by_less_than_a_step",
    ),
    Fault(
        "replacement-not-doubled",
        "dpsql.planning.sensitivity:sensitivity",
        "not replace",
        "not replace or grouped",
        "a unit that is replaced moves a histogram as one that is added",
        f"{_AGREE}[SELECT COUNT(*) FROM t WHERE k = 'A' GROUP BY k [neighbors=replace]]",
    ),
    Fault(
        "opposite-shares-forgotten",
        "dpsql.planning.sensitivity:sensitivity",
        "2 if vector.nonnegative else 4",
        "2",
        "a replaced unit's share of the other sign does not count fully",
        f"{_AGREE}[SELECT SUM(x - 1.5) FROM t GROUP BY k [neighbors=replace]]",
    ),
    Fault(
        "units-move-one-group",
        "dpsql.planning.sensitivity:sensitivity",
        "l1, l2_squared, span = bound.groups * each, bound.groups * each**2, vector.range",
        "l1, l2_squared, span = each, each**2, vector.range",
        "a unit that counts in many groups moves one",
        f"{_AGREE}[SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k []]",
    ),
    Fault(
        "total-bounded-by-its-upper-end",
        "dpsql.planning.statistics:total_vector",
        "max(-low, high)",
        "high",
        "a negative value moves a sum by no more than a positive one",
        f"{_AGREE}[SELECT SUM(-x) FROM t []]",
    ),
    Fault(
        "partition-moves-half",
        "dpsql.planning.statistics:complementary_vector",
        'StatisticVector(f"partition of x{measure}", tuple(components), tuple(weights), width, None, nonnegative=True)',
        """
        StatisticVector(
            f"partition of x{measure}",
            tuple(components),
            tuple(weights),
            max(1, width // 2),
            None,
            nonnegative=True,
        )
        """,
        "a row is said to move the partition of unity by half of what it does",
        f"{_AGREE}[SELECT AVG(x) FROM t []]",
    ),
    Fault(
        "whole-loss-for-each-block",
        "dpsql.planning.choose:_without_clamps",
        "_pure_noise(*pair, loss.epsilon * share)",
        "_pure_noise(*pair, loss.epsilon)",
        "two blocks spend the loss twice",
        "tests/planning/test_verify.py::test_less_noise_is_refused",
    ),
    Fault(
        "threshold-without-delta",
        "dpsql.planning.partition_selection:Threshold.calibrated",
        "self.scale * self.min_frequency + surplus",
        "self.scale * self.min_frequency",
        "a lone unit's key is shown every other time",
        f"{_AGREE}[SELECT k, COUNT(*), AVG(x) FROM t GROUP BY k [domain=False]]",
    ),
    Fault(
        "threshold-without-least-frequency",
        "dpsql.planning.partition_selection:Threshold.calibrated",
        "self.scale * self.min_frequency",
        "self.scale",
        "delta covers one unit, not the last of the fewest",
        "tests/attacks/test_a11_secret_keys.py::test_a_small_department_is_never_shown",
    ),
    Fault(
        "delta-for-each-group",
        "dpsql.planning.partition_selection:Threshold.calibrated",
        "self.delta / groups",
        "self.delta",
        "each of a unit's keys is shown with probability delta",
        "tests/planning/test_partition_selection.py::test_a_lone_unit_s_keys_together_take_no_more_than_the_delta",
    ),
    Fault(
        "delta-beyond-the-loss",
        "dpsql.planning.choose:_with_threshold",
        "delta = min(delta, _least_loss(plan, epsilon / parts) / 4, Fraction(1, 4))",
        "delta = max(delta, Fraction(0))",
        "a query may show keys with any probability that the budget bears",
        "tests/planning/test_partition_selection.py::test_delta_stays_below_the_loss_of_the_counts",
    ),
    Fault(
        "delta-beyond-the-loss-of-gaussian-noise",
        "dpsql.planning.choose:_least_loss",
        "return min([epsilon, *gaussian])",
        "return min([epsilon, *(epsilon for _ in gaussian)])",
        "of Gaussian noise the delta is held against ε, not against ρ",
        "tests/planning/test_partition_selection.py::test_gaussian_thresholds_take_no_more_delta_than_the_noise_loses",
    ),
    Fault(
        "selection-free-of-charge",
        "dpsql.planning.choose:_with_threshold",
        "event = Composed((*noise, Selection(delta)))",
        "event = plan.event",
        "delta is spent and not charged",
        "tests/planning/test_verify.py::test_a_threshold_that_is_too_low_is_refused",
    ),
    Fault(
        "rows-select-keys",
        "dpsql.planning.choose:_selection_statistic",
        "return UNITS if analysis.bound.per_unit else ROWS",
        "return ROWS",
        "the threshold is on rows, of which one unit has many",
        "tests/planning/test_verify.py::test_a_threshold_that_is_too_low_is_refused",
    ),
    Fault(
        "declared-keys-skip-the-least-frequency",
        "dpsql.analysis.analyse:Analysis.selects",
        "return self.grouped and (self.domains is None or self.bound.min_frequency > 1)",
        "return self.grouped and self.domains is None",
        "a declared key is shown however few units have it",
        "tests/attacks/test_a21_small_groups.py::test_below_the_minimum_frequency_nothing_is_shown",
    ),
    Fault(
        "null-is-no-key",
        "dpsql.analysis.domains:_derived",
        "return (*distinct, None) if nullable(expr) or None in values else distinct",
        "return distinct",
        "rows without the key are left out where it is public",
        "tests/properties/test_bounds.py::test_keys_lie_in_their_domain[k-]",
    ),
    Fault(
        "verification-needs-both-kinds-of-noise",
        "dpsql.planning.verify:verify",
        'spent["pure"] > charged["pure"] or spent["gaussian"] > charged["gaussian"]',
        'spent["pure"] > charged["pure"] and spent["gaussian"] > charged["gaussian"]',
        "too little noise of one kind passes",
        "tests/planning/test_verify.py::test_less_noise_is_refused",
    ),
    Fault(
        "joint-cells-rescaled-but-not-their-extents",
        "dpsql.planning.joint:_vector",
        "extents = tuple(m * extent for m, extent in zip(times, made.extents, strict=True))",
        "extents = tuple(made.extents)",
        "the l∞ norm is that of cells before they are multiplied",
        _AGREE,
    ),
    Fault(
        "joint-cell-left-out-of-the-norm",
        "dpsql.planning.joint:_vector",
        "by_row = extents[:-1] if unit_extent else extents",
        "by_row = extents[:-1] if len(extents) > 1 else extents",
        "the last cell is measured for nothing",
        _AGREE,
    ),
    Fault(
        "total-about-its-middle-half-as-wide",
        "dpsql.planning.joint:_JointBuilder._about_the_middle",
        'self.component(f"x{index} about its middle", ((total, 2), (count, -ends)), lattice.width)',
        """
        self.component(
            f"x{index} about its middle", ((total, 2), (count, -ends)), max(1, lattice.width // 2)
        )
        """,
        "a row at an end moves a total about its middle twice as far as is said",
        _AGREE,
    ),
    Fault(
        "middle-taken-of-rows-without-a-value",
        "dpsql.planning.joint:_JointBuilder._about_the_middle",
        "(count, -ends)",
        "(ROWS, -ends)",
        "a NULL lies farther from the middle than any value",
        _AGREE,
    ),
    Fault(
        "every-cell-of-a-joint-block-selects",
        "dpsql.release:_is_selected",
        "sum(components[at] for at in chosen.components)",
        "sum(components)",
        "rows and totals count as units where a key is selected",
        "tests/test_release.py::test_only_the_count_of_units_selects_keys",
    ),
    Fault(
        "groups-of-a-unit-share-a-cube",
        "dpsql.planning.sensitivity:_joint",
        "bound.rows",
        "max(1, bound.rows // bound.groups)",
        "what a unit adds in several groups is not added up",
        _AGREE,
    ),
    Fault(
        "cube-not-charged-for",
        "dpsql.planning.verify:_cube",
        'return "pure", change.linf / noise.scale',
        'return "pure", 0 * change.linf / noise.scale',
        "a cube of any width passes",
        "tests/planning/test_verify.py::test_a_cube_has_exactly_enough_noise",
    ),
    Fault(
        "verification-forgets-a-joint-cell",
        "dpsql.planning.verify:_joint_norms",
        """
        for component in vector.components:
            of = {index for (_, index), _ in component.combination if index is not None}
            if len(of) > 1 or (component in units and len(component.combination) > 1):
                raise VerificationError(f"{component.name} mixes statistics that must be in separate components")
            if component not in units:
                parts.setdefault(next(iter(of), None), []).append(component)
        """,
        """
        for component in vector.components[1:]:
            of = {index for (_, index), _ in component.combination if index is not None}
            if len(of) > 1 or (component in units and len(component.combination) > 1):
                raise VerificationError(f"{component.name} mixes statistics that must be in separate components")
            if component not in units:
                parts.setdefault(next(iter(of), None), []).append(component)
        """,
        "a cell that is larger than its extent passes",
        "tests/planning/test_verify.py::test_a_cell_that_no_extent_tells_of_is_found",
    ),
    Fault(
        "cube-narrower-in-intervals",
        "dpsql.mechanisms.cube:_sum_quantile",
        "math.factorial(j) * 2**j",
        "math.factorial(j) * 4**j",
        "intervals of totals and means of a cube are too narrow",
        "tests/statistical/test_answers.py::test_intervals_cover",
    ),
    Fault(
        "verification-needs-both-norms",
        "dpsql.planning.verify:_loss",
        "_above(l1, known.l1) or _above(l2_squared, known.l2_squared) or _above(linf, known.linf)",
        "_above(l1, known.l1) and _above(l2_squared, known.l2_squared) and _above(linf, known.linf)",
        "a sensitivity that is too small in one norm passes",
        "tests/planning/test_norms.py::test_either_norm_that_is_too_small_is_refused",
    ),
    Fault(
        "distinct-totals-by-one",
        "dpsql.planning.statistics:distinct_total_vector",
        "max(-low, high)",
        "1",
        "a value that one unit alone has moves a total of distinct values by more than is derived",
        "tests/properties/test_sensitivity.py::test_no_neighbour_moves_a_statistic_further_than_derived[SELECT SUM(DISTINCT i) FROM t []]",
    ),
    Fault(
        "verification-forgets-rows-without-a-value",
        "dpsql.planning.verify:_extreme_rows",
        "yield {ROWS: 1, UNITS: 1, count: 0, total: 0, values: 0, added: 0}",
        "yield {ROWS: 0, UNITS: 0, count: 0, total: 0, values: 0, added: 0}",
        "what a row whose argument is NULL moves is not looked at",
        "tests/planning/test_norms.py::test_each_kind_of_row_is_tried",
    ),
    Fault(
        "verification-passes-low-thresholds",
        "dpsql.planning.verify:_verify_selection",
        "Fraction(noise.sum_tail_up(len(chosen.components), above)) * groups > delta",
        "Fraction(noise.sum_tail_up(len(chosen.components), above)) * groups > 1",
        "a threshold that shows a lone unit's key too often passes",
        "tests/planning/test_verify.py::test_a_threshold_that_is_too_low_is_refused",
    ),
    Fault(
        "filled-rows-of-one-row",
        "dpsql.planning.statistics:padded_vector",
        'StatisticVector(f"{vector.name}, and units", components, estimates, most, None, nonnegative=True, padded=most)',
        """
        StatisticVector(
            f"{vector.name}, and units",
            components,
            estimates,
            most,
            None,
            nonnegative=True,
            padded=vector.contribution,
        )
        """,
        "a unit moves the cells by as much as a row is said to",
        f"{_MOVED}[SELECT k, COUNT(*) FROM t GROUP BY k [rows=3 groups=2 domain=False accountant=pure]]",
    ),
    Fault(
        "filled-to-less-than-the-rows-that-count",
        "dpsql.planning.statistics:padded_vector",
        "most, none = rows * vector.contribution, Fraction(0)",
        "most, none = (rows - 1) * vector.contribution, Fraction(0)",
        "a unit of as many rows as count moves the cells by more than is said",
        f"{_MOVED}[SELECT k, COUNT(*), SUM(x) FROM t GROUP BY k [rows=3 groups=1 domain=False accountant=pure]]",
    ),
    Fault(
        "few-values-of-a-branch",
        "dpsql.analysis.distinct_values:most_distinct",
        "sum(count for count in each if count is not None)",
        "max((count for count in each if count is not None), default=0)",
        "one person has values of several branches",
        f"{_MOVED}[SELECT COUNT(DISTINCT CASE WHEN i > 2 THEN u WHEN i < 1 THEN -5 END) FROM t GROUP BY k [rows=3]]",
    ),
    Fault(
        "few-values-without-reason",
        "dpsql.analysis.distinct_values:most_distinct",
        "return min(found, default=None)",
        "return min(found, default=1)",
        "any expression is taken to have one value for a person",
        f"{_MOVED}[SELECT COUNT(DISTINCT s) FROM t GROUP BY k []]",
    ),
    Fault(
        "pairs-of-one-group",
        "dpsql.planning.statistics:most_pairs",
        "min(bound.rows, most_distinct * bound.groups)",
        "min(bound.rows, most_distinct)",
        "one person's value in many groups is charged as in one",
        "tests/planning/test_verify.py::test_both_derivations_agree",
    ),
    Fault(
        "squares-of-few-values",
        "dpsql.planning.sensitivity:sensitivity",
        "full * most**2 + rest**2",
        "full * most + rest",
        "several values of one person in one group are charged as in several",
        f"{_MOVED}[SELECT COUNT(DISTINCT k), COUNT(DISTINCT -u) FROM t GROUP BY k [rows=3]]",
    ),
    Fault(
        "few-values-without-null",
        "dpsql.analysis.distinct_values:most_distinct",
        "prod(count + 1 for count in read if count is not None)",
        "prod(count for count in read if count is not None)",
        "NULL is no value of a column that a function reads",
        f"{_MOVED}[SELECT COUNT(DISTINCT COALESCE(k, 'Q')) FROM t GROUP BY s [rows=4]]",
    ),
)
