"""Faults of receipts, and of what is answered after a charge."""

from __future__ import annotations

from .fault import Fault

_FORGED = "tests/attacks/test_a37_receipts.py::test_forged_fields_are_refused"
_LAW = "tests/properties/test_receipts.py::test_genuine_receipts_pass_and_changed_ones_fail"
_CHARGED = "tests/api/test_charged_answers.py"
_STEPS = "tests/api/test_relative.py"

FAULTS = (
    Fault(
        "receipts-with-fields-of-their-own",
        "dpsql.ledger.receipts:_require_receipt_fields",
        "unknown = receipt.keys() - _FIELDS",
        "unknown = set[str]()",
        "an analyst's word stands in a receipt as dpsql's",
        f"{_FORGED}[a field of its own]",
    ),
    Fault(
        "entries-with-fields-of-their-own",
        "dpsql.ledger.receipts:_get_named_entry",
        "named.keys() - recorded.keys()",
        "set[str]()",
        "an analyst's word stands in an entry as the ledger's",
        f"{_FORGED}[a field of an entry]",
    ),
    Fault(
        "refined-by-hearsay",
        "dpsql.ledger.receipts:_verify_sources",
        '_require_equal(last.id, "refined", data["refined"], refined)',
        "",
        "a receipt names other releases than those that were refined",
        f"{_FORGED}[nothing was refined]",
    ),
    Fault(
        "replayed-by-hearsay",
        "dpsql.ledger.receipts:_verify_sources",
        '_matches_all_records(data["mechanisms"], recorded) and data["replayed"] == replayed',
        '_matches_all_records(data["mechanisms"], recorded)',
        "a receipt names others that paid",
        f"{_FORGED}[something was replayed]",
    ),
    Fault(
        "notices-of-anything",
        "dpsql.ledger.receipts:_require_notices",
        '(met == "no") != bool(data["notices"])',
        "False",
        "a receipt says what the owner never said",
        f"{_FORGED}[a notice]",
    ),
    Fault(
        "units-outside-the-ledger",
        "dpsql.engine.charging:build_charge_details",
        """
        {
            "plan": prepared.plan_digest,
            "data_version": engine.policy.data_version,
            "policy": engine.policy_digest,
            "mechanisms": drawn,
            "privacy_unit": engine.policy.privacy_unit,
            "neighbors": engine.policy.neighbors,
            "versions": collect_versions(engine.backend),
        }
        """,
        """
        {
            "plan": prepared.plan_digest,
            "data_version": engine.policy.data_version,
            "policy": engine.policy_digest,
            "mechanisms": drawn,
            "neighbors": engine.policy.neighbors,
            "versions": collect_versions(engine.backend),
        }
        """,
        "the unit that a receipt names is in no entry, so that the receipt cannot be verified",
        "tests/attacks/test_a37_receipts.py::test_genuine_receipts_pass_the_check[refined]",
    ),
    Fault(
        "noise-that-was-not-drawn",
        "dpsql.engine.query_run:Refinement.get_drawn_plan",
        "return plan if isinstance(self.law, CoupledRefinement) else self.law.plan",
        "return plan",
        "the ledger records noise that nobody drew",
        "tests/attacks/test_a37_receipts.py::test_entry_of_a_refinement_states_the_drawn_noise",
    ),
    Fault(
        "noise-of-the-answer-unsaid",
        "dpsql.engine.charging:build_charge_details",
        "None if answered == drawn else answered",
        "None",
        "receipts of refined answers are refused",
        "tests/attacks/test_a37_receipts.py::test_genuine_receipts_pass_the_check[refined]",
    ),
    Fault(
        "steps-left-out",
        "dpsql.ledger.receipts:_verify_target",
        '[charge.id for charge in charges[:-1]] != last.details.get("steps", [])',
        "not charges",
        "a search looks cheaper than it was",
        "tests/attacks/test_a37_receipts.py::test_missing_step_is_refused",
    ),
    Fault(
        "losses-of-all-tables-by-hearsay",
        "dpsql.engine.charging:build_charge_details",
        "all(bill.event == event for bill in prepared.table_charges)",
        "bool(event)",
        "of several parts that are charged the loss of all is unsaid",
        f"{_LAW}[pure-several parts]",
    ),
    Fault(
        "receipts-with-two-readings",
        "dpsql.ledger.receipts:_to_unique_dict",
        "len(found) != len(pairs)",
        "len(found) > len(pairs)",
        "what is checked is not what is read",
        'tests/attacks/test_a37_receipts.py::test_receipt_has_one_reading[{"query": "a", "query": "b"}]',
    ),
    Fault(
        "charged-steps-lost",
        "dpsql.engine.relative_targets:_StepwiseSearch.run_steps",
        "Exception",
        "AttributeError",
        "what was charged is not answered",
        f"{_STEPS}::test_a_step_that_fails_ends_with_the_answer_so_far[pure-2-arithmetic]",
    ),
    Fault(
        "failures-in-notices",
        "dpsql.engine.relative_targets:_StepwiseSearch.run_steps",
        "notice = self._describe_failure(type(error).__name__)",
        "notice = self._describe_failure(str(error))",
        "a notice quotes what may be private",
        f"{_STEPS}::test_a_step_that_fails_ends_with_the_answer_so_far[pure-2-arithmetic]",
    ),
    Fault(
        "errors-of-nothing-wanted",
        "dpsql.engine.relative_targets:Cell.is_exact_zero",
        "return not self.half_width and not self.value",
        "return False",
        "an exact zero ends a search by a division by zero",
        f"{_STEPS}::test_cells_that_are_known_exactly_are_never_aimed_at",
    ),
    Fault(
        "no-variance",
        "dpsql.engine.replay.reuse:compute_noise_variance",
        "return max(noise.compute_variance() / float(noise.subdivisions) ** 2, _LEAST)",
        "return noise.compute_variance() / float(noise.subdivisions) ** 2",
        "a refinement at a large loss divides by zero",
        f"{_CHARGED}::test_a_refinement_at_any_loss_is_answered[zcdp]",
    ),
    Fault(
        "lattices-of-any-fineness",
        "dpsql.engine.replay.reuse:can_combine_noises",
        "math.lcm(*(noise.subdivisions for noise in noises)) * len(noises) * _WEIGHTS < _FINEST",
        "math.lcm(*(noise.subdivisions for noise in noises)) * len(noises) * _WEIGHTS > 0",
        "the square of a weight passes the largest float",
        f"{_CHARGED}::test_noise_is_combined_on_lattices_within_float_range",
    ),
    Fault(
        "sums-within-floats",
        "dpsql.plan.aggregates.base:to_values",
        "divide_to_double(each, denominator)",
        "each / denominator",
        "a sum beyond the largest float is charged and not answered",
        f"{_CHARGED}::test_sums_beyond_every_float_are_answered[1-SELECT SUM(cost + 1e308) AS s FROM visits]",
    ),
    Fault(
        "factorials-of-both-ends",
        "dpsql.plan.functions.integers:_derive_factorial_interval",
        "0 if of[0].low is None else max(0, min(33, math.floor(of[0].low)))",
        """
        max(0, of[0].narrow_to(Interval(0, 33)).ends[0].numerator)
        if of[0].high is None
        else max(0, min(33, math.floor(of[0].low)))
        """,
        "bounds of a factorial are an error of Python's",
        "tests/plan/functions/test_odd_bounds.py::test_factorials_of_one_end_have_an_interval[9223372036854775808]",
    ),
    Fault(
        "factorials-unrounded",
        "dpsql.plan.functions.integers:_derive_factorial_interval",
        "return round_to_doubles(Interval(math.factorial(low), math.factorial(high)))",
        "return Interval(math.factorial(low), math.factorial(high))",
        "the greatest factorial is beyond its bounds",
        "tests/plan/functions/test_odd_bounds.py::test_extremes_lie_in_the_interval[factorial]",
    ),
    Fault(
        "second-interrupt-leaves-the-query",
        "dpsql.ledger.workers:_interrupt_until_done",
        "continue",
        "raise",
        "a second Ctrl-C leaves the query running, and its connection in use",
        "tests/backends/test_interrupts.py::test_second_ctrl_c_leaves_no_query_running",
    ),
    Fault(
        "interrupts-as-failures",
        "dpsql.backends.duckdb.statements:find_cancellation",
        'str(error) == "Query interrupted"',
        'str(error) == ""',
        "Ctrl-C is reported as a failure of the engine, and counted as one",
        "tests/backends/test_interrupts.py::test_other_errors_are_not_cancellations",
    ),
    Fault(
        "terminals-steered-by-csv",
        "dpsql.interfaces.shell.answers:_escape_csv_cell",
        'category(char) != "Cc"',
        'category(char) != "Zl"',
        "a group key moves the cursor of whoever prints CSV",
        r"tests/interfaces/shell/test_answers.py::test_csv_steers_no_terminal_and_computes_nothing[a\x1b[2J\x07\x9b1m\r-a\\x1b[2J\\x07\\x9b1m\\r]",
    ),
    Fault(
        "figures-rounded-the-wrong-way",
        "dpsql.policy.request.loss:DisplayedFraction.__str__",
        "return format_rounded(Fraction(self), 6, up=self._up)",
        "return format_rounded(Fraction(self), 6, up=not self._up)",
        "more seems to be left than there is",
        f"{_CHARGED}::test_budget_figures_are_short_and_exact",
    ),
)
