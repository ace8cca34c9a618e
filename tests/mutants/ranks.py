"""Faults of values in order of size, and of the ends of their intervals: penalties, windows, ranges and charges."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "ranks-of-one-row-each",
        "analysis/choose.py",
        "Ranked.step_range(rank) * analysis.bound.rows * (2 if",
        "Ranked.step_range(rank) * (2 if",
        "a unit with several rows moves a value in order as one with a single row",
        "tests/laws/test_ranked.py::test_a_unit_moves_penalties_apart_as_derived",
    ),
    Fault(
        "range-of-one-side",
        "analysis/ranks.py",
        "return 2 * max(share, whole - share)",
        "return max(share, whole - share)",
        "points on both sides of a rank are taken to move the same way",
        "tests/analysis/test_ranks.py::test_one_row_moves_penalties_apart_as_derived",
    ),
    Fault(
        "ends-where-the-value-is",
        "analysis/ranks.py",
        "+ self.end * self.reach",
        "+ self.end * self.shift",
        "an end lies on the wrong side of its value as often as not",
        "tests/analysis/test_ranks.py::test_an_end_is_on_its_side_of_the_value",
    ),
    Fault(
        "ends-of-few-rows-anywhere",
        "analysis/ranks.py",
        "if start == edge and size == 1:",
        "if start == edge and size == 2:",
        "of few rows all points are as good, those on the wrong side too",
        "tests/analysis/test_ranks.py::test_an_end_is_on_its_side_of_the_value",
    ),
    Fault(
        "ends-for-one-in-ten",
        "analysis/ranks.py",
        "_MISSED = 4\n",
        "_MISSED = 1\n",
        "an end is on the wrong side more often than is said",
        "tests/analysis/test_ranks.py::test_an_end_is_on_its_side_of_the_value",
    ),
    Fault(
        "windows-of-the-value-for-its-ends",
        "sql/ranked.py",
        "if ranked.end:",
        "if ranked.end > 1:",
        "values near an end are taken for far ones",
        "tests/laws/test_ranked.py::test_windows_have_all_that_is_near",
    ),
    Fault(
        "ends-free-of-charge",
        "analysis/choose.py",
        "sum((rank, end) not in PUBLIC for _, rank, end in asked)",
        "sum(not end for _, rank, end in asked)",
        "ends of values in order are chosen and not charged",
        "tests/sql/test_interval_ends.py::test_ends_of_values_in_order_are_chosen_beside_them",
    ),
    Fault(
        "keys-that-no-row-can-have",
        "analysis/public.py",
        "    if not all_rows:\n",
        "    if all_rows is None:\n",
        "the best group may be one whose rows nobody can be joined to",
        "tests/analysis/test_public.py::test_the_best_group_is_one_that_a_row_can_be_in",
    ),
    Fault(
        "public-rows-without-private-ones-left-out",
        "sql/public_left_joins.py",
        "release = replace(release, all_public_rows=True)",
        "release = replace(release, all_public_rows=False)",
        "of a public LEFT JOIN, groups are missing that no private row can be joined to",
        "tests/laws/test_public_left_joins.py",
    ),
    Fault(
        "verification-takes-ends-for-bounds",
        "analysis/verify.py",
        "if part.public:",
        "if part.end:",
        "an end that is chosen more sharply than is charged passes",
        "tests/analysis/test_verify.py::test_a_sharper_end_is_refused",
    ),
)
