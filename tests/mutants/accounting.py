"""Faults of what a release is charged, and of what its privacy is said to be."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "gdp-cost-rounded-down",
        "accounting/accountants/gdp.py",
        "return units_up(squared_up(mu_of_pure(epsilon)))",
        "return units_down(squared_up(mu_of_pure(epsilon)))",
        "many small releases are free under gdp",
        "tests/accounting/test_accountant_laws.py::test_the_smallest_loss_costs_a_unit",
    ),
    Fault(
        "gdp-limit-in-the-analysts-favour",
        "accounting/normal.py",
        "        return mu * (1 - slack)\n",
        "        return mu * (1 + Decimal('1e-20'))\n",
        "a μ is admitted that does not keep the budget",
        "tests/accounting/test_normal.py::test_conversions_are_enclosed_and_tight",
    ),
    Fault(
        "delta-of-basic-not-added",
        "accounting/accountants/basic.py",
        "return Spend(units_up(epsilon), units_up(delta))",
        "return Spend(units_up(epsilon), 0)",
        "releases with a δ spend none",
        "tests/accounting/test_adaptive.py::test_the_best_adversary_stays_within_the_budget",
    ),
    Fault(
        "discrete-noise-charged-as-continuous",
        "accounting/tradeoffs.py",
        "return min(_UP.multiply(2, quantile_up(log_tail)), _UP.next_plus(simple))",
        "return _UP.divide(simple, Decimal(2))",
        "noise on integers is taken for noise on the line, which is more private",
        "tests/accounting/test_tradeoffs.py::test_discrete_noise_costs_its_middle_step",
    ),
    Fault(
        "choice-at-a-quarter-of-its-range",
        "accounting/tradeoffs.py",
        "return mu_of_pure(epsilon / 2)",
        "return mu_of_pure(epsilon / 4)",
        "choices of bounded range are charged half their μ",
        "tests/accounting/test_adaptive.py::test_the_best_adversary_stays_within_the_budget",
    ),
    Fault(
        "pure-release-with-the-wrong-odds",
        "accounting/tradeoffs.py",
        "log_tail = -(asked + (1 + (-asked).exp()).ln())",
        "log_tail = -(asked / 2 + (1 + (-asked).exp()).ln())",
        "a pure release is charged the μ of a smaller one",
        "tests/accounting/test_adaptive.py::test_the_best_adversary_stays_within_the_budget",
    ),
    Fault(
        "selection-free-under-gdp",
        "accounting/accountants/gdp.py",
        "return Spend(0, units_up(delta))",
        "return Spend(0, 0)",
        "group keys are chosen for nothing",
        "tests/accounting/test_adaptive.py::test_the_best_adversary_stays_within_the_budget",
    ),
    Fault(
        "profile-refined-the-wrong-way",
        "accounting/profiles.py",
        "lost = (1 - (at - epsilon).exp()) / (1 + (-epsilon).exp())",
        "lost = (1 - (epsilon - at).exp()) / (1 + (-epsilon).exp())",
        "a condition is said to imply a stronger one",
        "tests/accounting/test_profiles.py::test_what_a_point_implies_is_the_leaking_response",
    ),
    Fault(
        "grid-taken-for-the-line",
        "accounting/measurement.py",
        "if gaussian_delta(high, stop).low >= before.high:",
        "if gaussian_delta(high, start).low >= before.high:",
        "between two points of the grid nothing is checked",
        "tests/accounting/test_profiles.py::test_the_best_mu_may_lie_inside",
    ),
    Fault(
        "delta-floor-called-gaussian",
        "accounting/profiles.py",
        "        return None\n",
        "        return Decimal(0)\n",
        "a selection of keys is said to be Gaussian",
        "tests/accounting/test_profiles.py::test_measured_profiles_lie_below_the_gaussian",
    ),
    Fault(
        "losses-of-a-batch-rounded-down",
        "accounting/batch.py",
        "first = int(epsilon / exactly(self.step)) + 1",
        "first = int(epsilon / exactly(self.step)) + 3",
        "a batch is said to be more private than it is",
        "tests/accounting/test_profiles.py::test_a_batch_of_responses_is_binomial",
    ),
)
