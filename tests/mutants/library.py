"""Faults of the library of mechanisms, and of what is built on it: theorems, the local model, learning."""

from __future__ import annotations

from .fault import Fault

_LIBRARY = "tests/mechanisms/test_library.py"

FAULTS = (
    Fault(
        "rounding-moves-nothing",
        "dpsql.mechanisms.library.base:steps_moved",
        "return math.ceil(sensitivity / spacing)",
        "return max(1, math.floor(sensitivity / spacing))",
        "a value that is rounded to a lattice moves further than the noise covers",
        f"{_LIBRARY}::test_rounding_moves_no_vector_further_than_is_counted",
    ),
    Fault(
        "rounding-of-vectors-moves-nothing",
        "dpsql.mechanisms.library.base:l1_steps_moved",
        "return math.ceil(sensitivity / spacing + dimensions) - 1",
        "return math.ceil(sensitivity / spacing)",
        "a vector that is rounded moves further than the noise covers",
        f"{_LIBRARY}::test_rounding_moves_no_vector_further_than_is_counted",
    ),
    Fault(
        "classical-calibration-at-any-epsilon",
        "dpsql.mechanisms.library.gaussian:GaussianMechanism.__post_init__",
        'self.calibration == "classical" and epsilon >= 1',
        'self.calibration == "classical" and epsilon >= 8',
        "the classical formula is used where nobody has proved it",
        "tests/mechanisms/test_published_claims.py::test_the_classical_gaussian_calibration_fails_for_a_large_epsilon",
    ),
    Fault(
        "lattice-gaussian-as-continuous",
        "dpsql.accounting.tradeoffs:mu_of_discrete_gaussian",
        "return _UP.multiply(_UP.next_plus(length), simple)",
        "return length / root",
        "the μ of a narrow lattice law is taken for the continuous one's, which is less",
        f"{_LIBRARY}::test_the_profile_of_discrete_gaussian_noise_is_above_brute_force",
    ),
    Fault(
        "all-scores-taken-for-monotone",
        "dpsql.mechanisms.library.selection:SelectionMechanism._rate",
        "1 if self.monotone else 2",
        "1 if self.monotone else 1",
        "a selection loses twice what it says",
        f"{_LIBRARY}::test_selections_keep_their_loss_and_attain_it",
    ),
    Fault(
        "vectors-kept-without-their-coin",
        "dpsql.mechanisms.sampler:ball",
        "Coin((norm - total / root) / scale).toss(entropy)",
        "Coin((norm - total / root) / scale / 9).toss(entropy)",
        "the vector mechanism does not follow its law",
        f"{_LIBRARY}::test_the_ball_is_exact_on_small_lattices",
    ),
    Fault(
        "lies-too-seldom",
        "dpsql.mechanisms.sampler:lies",
        "_beyond(loss, choices, 1, size, entropy)",
        "_beyond(loss, choices, 2, size, entropy)",
        "randomised response says the truth too often",
        f"{_LIBRARY}::test_answers_follow_their_law_and_estimate_without_bias",
    ),
    Fault(
        "coins-lie-too-seldom",
        "dpsql.mechanisms.library.responses:RandomizedResponse.sample",
        "above + unit * (self.choices - 1)",
        "above + 1",
        "coins with stated odds say the truth too often",
        f"{_LIBRARY}::test_answers_follow_their_law_and_estimate_without_bias",
    ),
    Fault(
        "wishart-without-its-floor",
        "dpsql.mechanisms.library.wishart:WishartProfile.delta",
        "float(gammainc(half, first / 2) - math.exp(e) * gammainc(half, (first - s) / 2))",
        "0.0",
        "outcomes that the neighbour cannot have count for nothing",
        "tests/mechanisms/test_published_claims.py::test_the_wishart_mechanism_as_published_is_not_pure",
    ),
    Fault(
        "staircase-profile-of-one-side",
        "dpsql.accounting.profiles:StaircaseProfile.delta",
        "((total + 1) / 2 + between) / total",
        "((total + 1) / 2) / total",
        "a profile says less δ than the staircase has",
        f"{_LIBRARY}::test_profiles_of_noise_are_those_of_the_lattice",
    ),
    Fault(
        "parallel-by-the-largest-under-replace",
        "dpsql.accounting.composition:parallel",
        '1 if neighbors == "add_remove" else 2',
        "1",
        "a unit that moves between partitions is charged once",
        "tests/accounting/test_composition.py::test_parallel_composition_of_a_unit_that_moves",
    ),
    Fault(
        "sampling-divides-epsilon",
        "dpsql.accounting.composition:sampled",
        "ln_up(1 + rate * (_exp_up(epsilon) - 1))",
        "rate * epsilon",
        "a sample is said to lose its share of ε, where it loses more",
        "tests/accounting/test_composition.py::test_sampling_amplifies_as_is_said",
    ),
    Fault(
        "sampled-profile-at-the-same-epsilon-over-the-rate",
        "dpsql.accounting.profiles:SampledProfile.delta",
        "1 + (epsilon.exp() - 1) / rate",
        "(epsilon / rate).exp()",
        "the profile of a sample falls too fast",
        "tests/accounting/test_composition.py::test_sampling_amplifies_as_is_said",
    ),
)
