"""Planted faults: each breaks one rule of dpsql in one place, and a named test must notice.

`python -m tests.mutants` plants them one after another in copies of the project. A fault that no test
notices, or whose code is no longer in the source, fails the run.
"""
