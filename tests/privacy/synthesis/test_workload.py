"""Workloads are what they are called, and distances of marginals change no more than histograms do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpsql.errors import ProgrammingError
from dpsql.privacy.synthesis.workload import (
    MOST_MARGINALS,
    Counts,
    compute_marginal,
    compute_marginal_distance,
    expand_marginal,
    parse_workload,
)


@pytest.mark.parametrize(
    "asked",
    [
        "",
        7,
        None,
        "marginals",
        "marginals(0)",
        "marginals(2); DROP",
        "all",
        [],
        [[]],
        [["x"]],
        [["a"], [3]],
        [[["a"]]],
    ],
    ids=str,
)
def test_invalid_workloads_are_refused(asked: object) -> None:
    with pytest.raises(ProgrammingError) as caught:
        parse_workload(asked, ["a", "b"])  # type: ignore[arg-type]
    assert caught.value.code == "workload"


def test_a_workload_is_bounded() -> None:
    """Of 16 columns, all marginals of five would be too many; of more columns than there are, there is one."""
    names = [f"c{place}" for place in range(16)]
    with pytest.raises(ProgrammingError, match=f"{MOST_MARGINALS:,}"):
        parse_workload("marginals(5)", names)
    assert len(parse_workload("Marginals(2) ", names)) == math.comb(16, 2)
    assert parse_workload("marginals(9)", names[:3]) == ((0, 1, 2),)


TABLES = arrays.arrays(np.int64, (2, 3, 2), elements=st.integers(0, 50))


@given(
    TABLES,
    TABLES,
    st.sampled_from(parse_workload("marginals(2)", "abc") + parse_workload("marginals(1)", "abc")),
)
def test_distances_change_by_no_more_than_histograms(
    one: Counts, other: Counts, part: tuple[int, ...]
) -> None:
    """The distance of a marginal is at most that of the histograms, and its counts are sums of cells."""
    assert compute_marginal_distance(one, other, part) <= np.abs(one - other).sum()
    counts = compute_marginal(one, part)
    assert counts.sum() == one.sum()
    back = expand_marginal(counts.astype(float), part, 3)
    for place in np.ndindex(one.shape):
        assert back[tuple(place[axis] if axis in part else 0 for axis in range(3))] >= one[place]
