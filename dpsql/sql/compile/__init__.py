"""Compile plans to the engine's SQL. It holds nothing of the analyst's text.

A release is one statement, or a few stages. From the inside out:

| module | writes |
|---|---|
| `compiler` | scalar expressions, in the dialect of the statement, which is passed on with its secret and its held queries |
| `relations` | FROM and WHERE of private and public rows, with the unit of each row; `scan_conditions` what a scan leaves out |
| `per_unit_aggregates`, `unit_windows` | aggregates and windows over the rows of one unit |
| `group_keys`, `lattice` | the keys that rows are grouped by, and values as whole numbers of steps |
| `contribution_bounds` | which rows and groups of a unit count |
| `joint_intervals`, `staged_statement` | the histograms by which clamps are chosen, in one statement or in stages |
| `quantile_windows` | the values near the rank of a quantile |
| `statement` | the whole statement of a release |
| `outer_query` | what is computed from released and public values, on a scratch engine |

`columns` has the names of the columns that a statement shows.
"""
