"""The comparison of synthetic tables: a tree of pairs is nearer than noisy counts and than columns without pairs."""

from __future__ import annotations

import pytest

from benchmarks.marginals import adult, connected, few, made_by


@pytest.mark.deep
def test_tree_of_pairs_is_nearer_on_a_table_like_adult() -> None:
    """On 14 columns at ε = 1, pairs are nearer than noisy counts, and so are unmeasured triples."""
    people = adult()
    with connected(people, "zcdp") as con:
        made = made_by(con, people, "mst", 1.0)
        assert made is not None
        assert made_by(con, people, "mwem", 1.0) is None
    for ways, most in ((2, 0.06), (3, 0.18)):
        error = people.error(made.rows, ways)
        assert error < most
        assert error < people.independent[ways] / 1.4
        assert error < people.noisy("zcdp", 1.0, ways) / 3


def test_methods_for_few_columns_are_compared() -> None:
    """Each method has rows; pairs are far nearer than independent columns, BLR knows few rows."""
    people = few(20_000, (0, 3, 4))
    with connected(people, "zcdp") as con:
        for method in ("mwem", "mst", "blr"):
            made = made_by(con, people, method, 3.0)
            assert made is not None
            assert people.error(made.rows, 2) < (1 if method == "blr" else people.independent[2] / 3)
