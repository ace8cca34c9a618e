"""Partitions: which units of a table a release can read, derived from its conditions, for parallel composition."""
