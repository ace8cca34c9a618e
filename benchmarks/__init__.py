"""Measurements of dpsql's speed, each a module to run: `python -m benchmarks.overhead`."""
