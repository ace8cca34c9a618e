"""All faults, package by package along the dataflow."""

from __future__ import annotations

from . import accounting, analysis, asking, clamps, emitted, engine, ledger, noise, policy, sql, units

FAULTS = tuple(
    fault
    for package in (sql, asking, units, emitted, analysis, clamps, noise, accounting, ledger, engine, policy)
    for fault in package.FAULTS
)
