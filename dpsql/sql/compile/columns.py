"""Names of the columns in emitted statements, which owners and auditors read in EXPLAIN.

| column | holds |
|---|---|
| `value_1` | the values of the first measure (x0 in a plan), or their lattice points |
| `value_count_1`, `total_1` | the number and the sum of these: of a unit's rows in a group, then limited to its counted rows, then of all units |
| `distinct_count_1`, `distinct_total_1` | the number and the sum of the distinct values of a measure |
| `total_above_1`, `total_below_1` | a unit's contribution to all groups, above or below zero, for the first clamp; for an l2 norm its square |
| `compared_1`, `interval_1`, `summand_1` | what is compared with the grid of a clamp, the interval that it is in, and what is added up by interval |
| `histogram_1` | the list of intervals of a clamp target, each with its index and sums |
| `clamped_1_2` | the second sum of the first clamp target, clamped to the chosen points |
| `window_1` | the values near the rank of a quantile: how many there are, how many lie before, then each point and its number |
| `score` | what a top-k selection is by |

A row per privacy unit and group ("pair") has `unit_id`, the group keys, `unit_rows` (its rows) and `counted_rows` (those within the
bounds); where groups are ranked, `group_rank` and `rows_up_to` (the unit's rows up to this group). A group has `unit_count`, `row_count`
and the statistics of the measures. Names with # are those of scans and common table expressions: no table of a policy, and no column
of one, has such a name.
"""

from __future__ import annotations

from dpsql.plan.nodes import Key, Release


def name_group_keys(release: Release) -> list[str]:
    """Return the names of the columns of a release's keys."""
    return [f"group_key_{place + 1}" for place in range(len(release.keys))]


def name_group_key(release: Release, key: Key) -> str:
    """Return the name of the column of a key."""
    return f"group_key_{release.keys.index(key) + 1}"


def name_value(measure: int) -> str:
    """Return the name of the column of a measure's values, or of their lattice points."""
    return f"value_{measure + 1}"


def name_value_count(measure: int) -> str:
    """Return the name of the column of the number of a measure's values."""
    return f"value_count_{measure + 1}"


def name_total(measure: int) -> str:
    """Return the name of the column of the sum of a measure's lattice points."""
    return f"total_{measure + 1}"


def name_histogram(target: int) -> str:
    """Return the name of the column of the histogram of a clamp target."""
    return f"histogram_{target + 1}"


def name_window(quantile: int) -> str:
    """Return the name of the column of the window of values near a quantile's rank."""
    return f"window_{quantile + 1}"
