"""Parallel composition: what an account has spent on each partition of a table."""
