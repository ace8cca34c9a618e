"""Parallel composition: the charges of an account on each partition of a table."""
