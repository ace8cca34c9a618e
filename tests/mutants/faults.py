"""All faults, package by package along the dataflow."""

from __future__ import annotations

from . import accounting, analysis, asking, emitted, engine, ledger, noise, policy, sql, units

FAULTS = tuple(
    fault
    for package in (sql, asking, units, emitted, analysis, noise, accounting, ledger, engine, policy)
    for fault in package.FAULTS
)
