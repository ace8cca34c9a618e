"""Synthetic data: a histogram whose marginals are near those of private rows, and from which rows are made.

`workload` parses the marginals that matter, `weights` has the core of multiplicative weights, `rounding` makes whole rows,
and `mechanism` is the private part: the measurements, the choices, and their loss. If a histogram of all columns would be too
large, `mst` is the private part, and `tree` makes rows. `methods` lists the methods by name.
"""
