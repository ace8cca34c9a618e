"""Fixtures that every folder of tests shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines are shared and noisy: no test may fail because it was slow.
settings.register_profile("dpsql", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpsql")
