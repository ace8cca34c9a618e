"""The way of a query: prepare, charge, run, release, post-process.

`pipeline` is the way itself, in order; `prepare` holds what is decided before the charge. The rest serves a part of it
or asks the same way something else: `explain`, `forecast`, `reservation`, `progressive`.
"""
