"""Faults of synthetic tables and of streams: what they lose, what ends them, and what they are charged."""

from __future__ import annotations

from .fault import Fault

_LAWS = "tests/synthesis/test_mechanism.py"
_STREAM = "tests/synthesis/test_stream.py"

FAULTS = (
    Fault(
        "marginals-of-replaced-units-too-short",
        "dpsql.synthesis.mechanism:of_marginal",
        "Sensitivity(Fraction(l1), Fraction(l1 * l1, 2 if replace else 1))",
        "Sensitivity(Fraction(l1), Fraction(l1))",
        "two rows of a unit in one cell of a marginal are taken for rows in two",
        f"{_LAWS}::test_no_neighbour_moves_what_is_read_further_than_derived",
    ),
    Fault(
        "choices-of-marginals-half-price",
        "dpsql.synthesis.mechanism:Mwem.of",
        "Exponential.calibrate(2 * l1, choices[0].epsilon)",
        "Exponential.calibrate(l1, choices[0].epsilon)",
        "scores are taken to move in one direction",
        "tests/planning/test_synthesis.py::test_plans_are_verified",
    ),
    Fault(
        "marginals-measured-in-parts-of-the-loss-that-overlap",
        "dpsql.synthesis.mechanism:Mwem.of",
        "(1 - _CHECK - chosen) / (len(shape) + most)",
        "(1 - _CHECK - chosen) / max(len(shape), most)",
        "columns and marginals share one part of the loss",
        f"{_LAWS}::test_transcripts_lose_no_more_than_is_charged",
    ),
    Fault(
        "small-databases-by-their-parts",
        "dpsql.synthesis.mechanism:SmallDatabase.of",
        "Exponential.calibrate(2 * chosen * l1, event.epsilon)",
        "Exponential.calibrate(2 * l1, event.epsilon)",
        "penalties that are times the size of a database are taken for rows",
        f"{_LAWS}::test_small_databases_lose_no_more_than_is_charged",
    ),
    Fault(
        "the-distance-of-one-marginal-for-all",
        "dpsql.synthesis.mechanism:of_distance",
        "Sensitivity(Fraction(l1 * marginals), Fraction((l1 * marginals) ** 2))",
        "Sensitivity(Fraction(l1), Fraction(l1**2))",
        "a sum of distances has the noise of one",
        "tests/planning/test_synthesis.py::test_plans_are_verified",
    ),
    Fault(
        "distances-shown-without-noise",
        "dpsql.synthesis.mechanism:Synthesis.run",
        "self.distance(histogram, found) + noise",
        "self.distance(histogram, found) + 0 * noise",
        "the exact distance of a synthetic table is released",
        f"{_LAWS}::test_the_distance_is_released_with_noise",
    ),
    Fault(
        "synthetic-plans-not-verified",
        "dpsql.planning.verify_synthesis:spent_by",
        'spent["range"] += found.selection.range(1) * 2 * l1 * found.rounds',
        'spent["range"] += found.selection.range(1) * l1',
        "the second derivation counts one choice, in one direction",
        "tests/planning/test_synthesis.py::test_plans_are_verified",
    ),
    Fault(
        "scores-tested-with-half-the-noise",
        "dpsql.mechanisms.sparse_vector:AboveThreshold.calibrate",
        "Geometric.calibrate(Fraction(2 * sensitivity), epsilon - part)",
        "Geometric.calibrate(Fraction(sensitivity), epsilon - part)",
        "the threshold and the score move together, and that is forgotten",
        "tests/mechanisms/test_sparse_vector.py::test_the_loss_is_as_claimed",
    ),
    Fault(
        "a-threshold-that-is-kept",
        "dpsql.synthesis.stream:RunningStream.answer",
        "self._threshold = self.mechanism.test.start(entropy)",
        "",
        "the noise of the threshold is used for more than one mistake",
        f"{_STREAM}::test_each_mistake_has_a_threshold_of_its_own",
    ),
    Fault(
        "the-tested-score-shown",
        "dpsql.synthesis.stream:RunningStream.answer",
        "found = exact + noise",
        "found = exact + 0 * noise",
        "a mistake is answered by the exact count",
        f"{_STREAM}::test_each_mistake_has_a_threshold_of_its_own",
    ),
    Fault(
        "streams-without-an-end",
        "dpsql.synthesis.stream:RunningStream.known",
        "self._busy or not self.left",
        "self._busy",
        "a stream goes on when its updates are used up",
        f"{_STREAM}::test_it_ends_when_its_updates_are_used_up",
    ),
    Fault(
        "streams-that-go-on-after-an-interrupt",
        "dpsql.synthesis.stream:RunningStream.answer",
        "self._busy = True",
        "self._busy = False",
        "a test whose outcome was interrupted is repeated",
        f"{_STREAM}::test_an_interrupt_ends_it",
    ),
    Fault(
        "streams-in-two-processes",
        "dpsql.synthesis.stream:RunningStream.known",
        "self._process != os.getpid()",
        "self._process < 0",
        "a fork has the same noisy threshold, and updates of its own",
        f"{_STREAM}::test_a_stream_is_one",
    ),
    Fault(
        "synthetic-tables-not-told-apart",
        "dpsql.replay.fingerprint:FingerprintRules.fingerprint",
        "(plan.quantiles, plan.top_k, plan.clamps, *filter(None, [plan.synthesis]))",
        "(plan.quantiles, plan.top_k, plan.clamps)",
        "a table of another workload is answered from a stored one",
        "tests/api/test_synthetic.py::test_another_workload_is_another_table",
    ),
)
