"""Stored releases: fingerprints, serialization, coverage, combination and refinement, so that no release is charged twice."""

from __future__ import annotations
