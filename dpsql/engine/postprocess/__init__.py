"""Refinements of released values that cost nothing: consistency, controlled rounding."""
