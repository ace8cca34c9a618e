"""Spark: the session, its settings and types, and the dialect in which statements are emitted for it."""
