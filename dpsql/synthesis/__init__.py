"""Synthetic data: a histogram whose marginals are near those of private rows, and from which rows are made.

`workload` says which marginals matter, `weights` has the one core of multiplicative weights, `rounding` makes whole rows of
it, and `mechanism` is the private part: what is measured, how it is chosen, and what that loses. Where a histogram of all
columns is too large, `mst` is the private part, and `tree` makes rows. `methods` lists them by name.
"""
