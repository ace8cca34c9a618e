"""Faults of samples of units: who is in them, and what is charged for what is read of them."""

from __future__ import annotations

from .fault import Fault

_LAW = "tests/properties/test_samples.py"
_LOSS = "tests/planning/test_sampling.py"
_SECRET = "tests/attacks/test_a18_predictable_samples.py"

FAULTS = (
    Fault(
        "a-sample-of-all-units",
        "dpsql.sql.compile.relations:emit_rows",
        "where.append(emit_sample_condition(compiler, name, rate))",
        "pass",
        "all units are read, at the price of a part of them",
        f"{_LAW}::test_answer_of_a_sample_keeps_its_epsilon[COUNT(*)-50-epsilon0]",
    ),
    Fault(
        "one-secret-for-all",
        "dpsql.engine.query_run:PreparedRelease.with_sampling_secret",
        "drawn = draw_secret(entropy)",
        "drawn = PLACEHOLDER",
        "everybody can compute who is in a sample, which is the same in all releases",
        f"{_SECRET}::test_no_two_answers_share_a_sample",
    ),
    Fault(
        "last-stage-of-another-sample",
        "dpsql.engine.query_run:PreparedRelease.emit_group_sums",
        "Compiler(self.dialect, self.secret)",
        "Compiler(self.dialect)",
        "statements of one release read several samples, of which each amplifies a part alone",
        f"{_LAW}::test_all_statements_of_a_release_read_one_sample",
    ),
    Fault(
        "samples-rounded-up",
        "dpsql.sql.compile.scan_conditions:compute_sampling_threshold",
        "int(rate * 2**256)",
        "int(rate * 2**256) + 1",
        "a unit is in a sample more often than is charged for",
        f"{_LAW}::test_rate_is_rounded_down",
    ),
    Fault(
        "loss-divided-by-the-rate",
        "dpsql.planning.statistics:compute_sample_loss",
        "grown = 1 / rate - Fraction(power, 10**_DIGITS) * (1 / rate - 1)",
        "grown = 1 / rate",
        "a small loss is taken to grow by the inverse of the rate, which is beyond the theorem",
        f"{_LOSS}::test_loss_on_a_sample_is_amplified_to_the_charge",
    ),
    Fault(
        "verification-takes-any-loss-on-a-sample",
        "dpsql.planning.verify:derive_sample_loss",
        "known = rate * 10**_CHARGE_PLACES + (1 - rate) * of_loss <= of_rest",
        "known = loss <= epsilon / rate",
        "the planner's amplification is not derived again",
        f"{_LOSS}::test_loss_on_a_sample_is_amplified_to_the_charge",
    ),
    Fault(
        "verification-does-not-amplify",
        "dpsql.planning.verify:derive_allowed_loss",
        "charged if rate is None else derive_sample_loss(charged, loss, rate, replace=plan.analysis.replace)",
        "charged | {'pure': loss, 'range': loss}",
        "any loss on a sample passes",
        f"{_LOSS}::test_a_release_of_a_sample_is_charged_as_one_of_all",
    ),
    Fault(
        "replaced-units-amplified",
        "dpsql.engine.loss_split:require_one_sample",
        """
        if replace:
            refuse_sample(
                "a sample of units is not supported under the policy's `neighbors: replace`, where it does not reduce the loss",
                "remove TABLESAMPLE UNITS",
            )
        """,
        "",
        "a unit that replaces another is charged as one that leaves",
        f"{_LAW}::test_unproven_samples_are_refused",
    ),
    Fault(
        "one-table-of-two-sampled",
        "dpsql.engine.loss_split:require_one_sample",
        "any(len(rates) > 1 for rates in read)",
        "False",
        "rows of units that are not in the sample are read from another table",
        "tests/sql/test_fixtures.py::test_refused_query_has_its_code_and_position[samples: One table of two]",
    ),
    Fault(
        "several-releases-of-one-sample",
        "dpsql.engine.loss_split:require_one_sample",
        "len(releases) > 1",
        "False",
        "totals and parts are made to agree that are of two samples",
        "tests/sql/test_fixtures.py::test_refused_query_has_its_code_and_position[samples: Several releases]",
    ),
    Fault(
        "samples-refined",
        "dpsql.engine.replay.release_store:ReleaseStore._find_refinement",
        "not self._can_refine(part.tables) or find_sampling_rate(part.release.input) is not None",
        "not self._can_refine(part.tables)",
        "the difference is charged for another sample, whose loss is not a part of the first one's",
        f"{_LAW}::test_sample_is_replayed_and_never_refined_or_combined",
    ),
    Fault(
        "synthetic-tables-of-samples",
        "dpsql.engine.synthetic:_prepare_synthesis",
        "find_sampling_rate(part.release.input) is not None",
        "False",
        "a synthetic table is charged as though its choices were amplified",
        f"{_LAW}::test_synthetic_table_of_a_sample_is_refused",
    ),
)
