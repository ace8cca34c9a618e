"""Faults of what is answered again: which release is meant, who pays for it, and how it is refined."""

from __future__ import annotations

from .fault import Fault

_REFINED = "tests/recall/test_refining.py"
_REPLAYED = "tests/recall/test_replay.py"
_KEPT = "tests/accounting/test_kept_releases.py"

_LAYOUTS = "tests/recall/test_layouts.py"
_OTHER = f"{_LAYOUTS}::test_what_was_not_released_is_not_there"

FAULTS = (
    Fault(
        "statistics-of-any-lattice",
        "recall/layouts.py",
        "equal_text((analysis.release.input, measure.expr, lattice))",
        "equal_text((analysis.release.input, lattice))",
        "a sum of one expression is answered by that of another",
        f"{_OTHER}[pure-another expression]",
    ),
    Fault(
        "more-of-other-rows",
        "recall/keys.py",
        "equal_text((analysis.release.input, keys, analysis.bound,",
        "equal_text((keys, analysis.bound,",
        "a count of some rows is answered by that of others",
        f"{_OTHER}[pure-other rows]",
    ),
    Fault(
        "more-with-chosen-keys",
        "recall/layouts.py",
        "if plan.selection is not None or plan.best is not None or plan.ranked or plan.clamps:",
        "if plan.best is not None or plan.ranked or plan.clamps:",
        "cells of groups that were chosen are kept as those of all groups",
        f"{_LAYOUTS}::test_chosen_keys_have_no_layout[zcdp]",
    ),
    Fault(
        "more-that-agrees-with-anything",
        "analysis/agreement.py",
        "    if not moments:\n        return False",
        "    if not moments:\n        pass",
        "cells that are known by nothing are taken for each other's totals",
        f"{_LAYOUTS}::test_parts_of_a_total_are_answered_as_they_were_released",
    ),
    Fault(
        "replayed-with-other-noise",
        "recalling.py",
        "if release.released.measurement == names.measurement:",
        "if release.released.statistic == names.statistic:",
        "an answer has more noise than was asked for",
        f"{_REPLAYED}::test_what_differs_is_charged",
    ),
    Fault(
        "replayed-of-other-data",
        "recall/keys.py",
        '_NOT_MEASURED = frozenset({"budget",',
        '_NOT_MEASURED = frozenset({"data_version", "budget",',
        "new data are answered by what was released of the old",
        f"{_REPLAYED}::test_new_data_are_asked_anew",
    ),
    Fault(
        "sources-of-one-name",
        "plan/equal.py",
        'names.setdefault(part.alias, f"#{len(names)}")',
        'names.setdefault(part.alias, "#")',
        "two sources are taken for one, and a query gets the answer of another",
        "tests/recall/test_equal.py::test_what_differs_has_another_name",
    ),
    Fault(
        "comparisons-in-any-order",
        "plan/equal.py",
        '_SYMMETRIC = frozenset({"eq", "ne"})',
        '_SYMMETRIC = frozenset({"eq", "ne", "lt", "gt"})',
        "more is taken for less",
        "tests/recall/test_equal.py::test_what_differs_has_another_name",
    ),
    Fault(
        "kept-after-it-is-seen",
        "engine.py",
        "        self._keep(prepared, [table], {}, entries)\n",
        "",
        "an answer that was paid for is charged again",
        f"{_REPLAYED}::test_the_same_is_answered_again_and_free",
    ),
    Fault(
        "replays-charged",
        "prepared.py",
        "        if self.recalled is not None:\n            return None\n",
        "",
        "what was paid for is charged again",
        f"{_REPLAYED}::test_the_same_is_answered_again_and_free",
    ),
    Fault(
        "releases-of-another-analyst",
        "recall/keys.py",
        "own = analyst if policy.analysts or policy.per_analyst is not None else None",
        "own = None",
        "an analyst sees more than that one's budget",
        f"{_REFINED}::test_analysts_with_budgets_of_their_own_pay_for_what_they_see",
    ),
    Fault(
        "refined-twice",
        "accounting/releases.py",
        "if not known or connection.execute(charged.union_all(released)).first() is not None:",
        "if not known:",
        "two refinements of one release cost more than is charged",
        f"{_KEPT}::test_a_refinement_that_was_released_says_so_itself",
    ),
    Fault(
        "refined-without-a-claim",
        "accounting/releases.py",
        '    connection.execute(insert(REFINEMENTS), [{"base": base, "entry": entry} for base in bases])\n',
        "",
        "two programs refine one release at one time",
        f"{_REFINED}::test_a_refinement_that_was_charged_and_lost_is_not_tried_again",
    ),
    Fault(
        "refined-beyond-a-reset",
        "accounting/releases.py",
        'row["number"] in refined or row["entry"] < reset',
        'row["number"] in refined',
        "what was paid before a budget was begun anew pays for what comes after",
        f"{_REFINED}::test_an_account_that_was_begun_anew_pays_whole",
    ),
    Fault(
        "refined-beyond-a-renewal",
        "recalling.py",
        " and not any(map(self._renews, tables))",
        "",
        "what was paid in one period pays for the next",
        f"{_REFINED}::test_what_is_not_refined_is_charged_whole",
    ),
    Fault(
        "refined-of-unsaid-data",
        "recalling.py",
        '"data_version" in self.policy.model_fields_set and ',
        "",
        "noise is taken from data that it was not added to",
        f"{_REFINED}::test_what_is_not_refined_is_charged_whole",
    ),
    Fault(
        "refined-by-another-engine",
        "recalling.py",
        "or written.source != self._source(part, values):",
        "or False:",
        "noise is taken from sums that another engine has made",
        f"{_REFINED}::test_another_engine_does_not_refine",
    ),
    Fault(
        "coupled-under-any-accountant",
        "recalling.py",
        "if self.draws_on(part.tables):",
        "if True:",
        "a difference is charged where it bounds nothing",
        "tests/recall/test_merging.py::test_gaussian_noise_is_refined_by_a_second_release",
    ),
    Fault(
        "refined-at-half-the-difference",
        "recall/refining.py",
        "Pure(plan.event.epsilon - before.event.epsilon)",
        "Pure((plan.event.epsilon - before.event.epsilon) / 2)",
        "refinements pass the budget",
        f"{_REFINED}::test_less_noise_costs_the_difference",
    ),
    Fault(
        "fresh-noise-for-the-difference",
        "recall/refining.py",
        "noise = [old - true for old, true in zip(before, exact, strict=True)]",
        "noise = [0 for old, true in zip(before, exact, strict=True)]",
        "the second answer does not know the first, and both cost more than the second",
        f"{_REFINED}::test_the_noise_that_was_there_is_what_is_refined",
    ),
    Fault(
        "a-chain-counted-twice",
        "recalling.py",
        "ends = [release for release in kept if release.number not in refined]",
        "ends = list(kept)",
        "a mean of releases has more noise than it says",
        "tests/recall/test_merging.py::test_a_chain_counts_once",
    ),
)
