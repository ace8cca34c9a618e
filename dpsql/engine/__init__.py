"""The path of a query: prepare, charge, run, release, post-process.

`pipeline` has the stages in order; `prepare` holds what is decided before the charge. The other modules serve one stage, or
drive the stages for another purpose: `explain`, `forecast`, `reservation`, `progressive`, `streams`, `synthetic`.
"""
