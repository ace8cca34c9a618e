"""Faults of the noise: its scale, its law, its tails and where it comes from."""

from __future__ import annotations

from .fault import Fault

_LAWS = "tests/mechanisms/test_laws.py"

FAULTS = (
    Fault(
        "geometric-scale-halved",
        "mechanisms/geometric.py",
        'return cls(l1_sensitivity / positive_loss(epsilon, "epsilon"))',
        'return cls(l1_sensitivity / (2 * positive_loss(epsilon, "epsilon")))',
        "geometric noise is half as wide as the loss asks for",
        "tests/mechanisms/test_losses.py::test_calibration_is_exact",
    ),
    Fault(
        "gaussian-variance-halved",
        "mechanisms/gaussian.py",
        'return cls(l2_squared / (2 * positive_loss(rho, "rho")))',
        'return cls(l2_squared / (4 * positive_loss(rho, "rho")))',
        "Gaussian noise has half the variance that the loss asks for",
        "tests/mechanisms/test_losses.py::test_calibration_is_exact",
    ),
    Fault(
        "geometric-loss-halved",
        "mechanisms/geometric.py",
        "return l1_sensitivity / self.scale",
        "return l1_sensitivity / (2 * self.scale)",
        "noise is said to lose half of what it does",
        "tests/mechanisms/test_losses.py::test_geometric_loss_is_attained",
    ),
    Fault(
        "geometric-tail-rounded-down",
        "mechanisms/geometric.py",
        "math.nextafter(float(upper), math.inf)",
        "math.nextafter(float(upper), 0.0)",
        "a bound on a probability lies below it",
        f"{_LAWS}::test_wide_scales_and_small_probabilities_are_in_closed_form",
    ),
    Fault(
        "gaussian-tail-of-one-side-of-zero",
        "mechanisms/gaussian.py",
        "tail = float(beyond / (2 * half - 1))",
        "tail = float(beyond / (2 * half))",
        "the tail is divided by more than the whole",
        f"{_LAWS}::test_tail_up_bounds_the_tail_and_is_tight",
    ),
    Fault(
        "sum-bounded-as-one-draw",
        "mechanisms/base.py",
        "Fraction(self.sum_tail_up(terms, t))",
        "Fraction(self.sum_tail_up(1, t))",
        "several draws are said to stray no further than one",
        f"{_LAWS}::test_sum_threshold_holds_and_is_small",
    ),
    Fault(
        "threshold-one-step-low",
        "mechanisms/base.py",
        "    return high\n",
        "    return high - 1\n",
        "noise reaches a threshold more often than it may",
        f"{_LAWS}::test_sum_threshold_holds_and_is_small",
    ),
    Fault(
        "zero-in-two-ways",
        "mechanisms/sampler.py",
        "np.where(negative, ~magnitude, magnitude)",
        "np.where(negative, -magnitude, magnitude)",
        "zero is drawn twice as often as the law says",
        "tests/mechanisms/test_sampler.py::test_ties_are_settled_coin_by_coin",
    ),
    Fault(
        "tail-cut-off",
        "mechanisms/sampler.py",
        "magnitude[index] += laps << len(digits)",
        "magnitude[index] += 0 * laps",
        "no draw lies far out",
        "tests/mechanisms/test_sampler.py::test_laps_are_counted_without_end_or_wrap",
    ),
    Fault(
        "ties-left-to-the-first-bits",
        "mechanisms/sampler.py",
        "np.flatnonzero(words == thresholds)",
        "np.flatnonzero(words != words)",
        "the law holds to 16 bits",
        "tests/mechanisms/test_sampler.py::test_ties_are_settled_coin_by_coin",
    ),
    Fault(
        "every-proposal-accepted",
        "mechanisms/sampler.py",
        "proposals[_accepted(proposals, variance, scale, entropy)]",
        "proposals[_accepted(proposals, variance, scale, entropy) | True]",
        "Gaussian noise is geometric",
        "tests/statistical/test_samplers.py::test_gaussian_law[10]",
    ),
    Fault(
        "acceptance-by-float",
        "mechanisms/sampler.py",
        "np.flatnonzero(np.abs(uniform - probability) <= _MARGIN)",
        "np.flatnonzero(np.abs(uniform - probability) < 0)",
        "rounding decides what is accepted",
        "tests/mechanisms/test_sampler.py::test_acceptance_within_the_margin_is_exact",
    ),
    Fault(
        "probability-rounded-to-nearest",
        "mechanisms/coin.py",
        "return max(0, value - 1), value + 2",
        "return max(0, value), value",
        "a coin's probability is what a decimal says",
        "tests/mechanisms/test_coin.py::test_threshold_of_probabilities_near_their_ends",
    ),
    Fault(
        "one-draw-for-all",
        "mechanisms/geometric.py",
        "two_sided_geometric(self.scale, size, entropy).tolist()",
        "two_sided_geometric(self.scale, 1, entropy).tolist() * size",
        "all cells of a block share their noise",
        f"{_LAWS}::test_draws_agree_with_the_thresholds",
    ),
    Fault(
        "seeded-entropy",
        "mechanisms/entropy.py",
        "np.frombuffer(os.urandom(8 * count), dtype=np.uint64)",
        "np.random.Generator(np.random.PCG64(7)).integers(0, 2**64, count, np.uint64)",
        "the noise is known beforehand",
        "tests/attacks/test_a18_predictable_noise.py::test_no_module_seeds_or_keeps_a_generator",
    ),
    Fault(
        "entropy-shared-by-a-fork",
        "mechanisms/entropy.py",
        "        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)",
        "        kept = globals().setdefault('_KEPT', iter(np.frombuffer(os.urandom(1 << 20), np.uint64)))\n"
        "        return np.fromiter(kept, np.uint64, count)",
        "two children of a process draw the same noise",
        "tests/attacks/test_a18_predictable_noise.py::test_forked_children_draw_different_noise",
    ),
)
