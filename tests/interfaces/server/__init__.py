"""Tests of dpsql serve: a package, for its modules share helpers."""
