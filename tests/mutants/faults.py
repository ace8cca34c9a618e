"""All faults, package by package along the dataflow."""

from __future__ import annotations

from . import (
    accounting,
    agreement,
    analysis,
    asking,
    clamps,
    emitted,
    engine,
    ledger,
    noise,
    parts,
    policy,
    ranks,
    receipts,
    replays,
    slices,
    sql,
    stairs,
    units,
)

FAULTS = tuple(
    fault
    for package in (
        sql,
        asking,
        units,
        emitted,
        analysis,
        agreement,
        clamps,
        ranks,
        noise,
        stairs,
        accounting,
        ledger,
        parts,
        engine,
        policy,
        replays,
        receipts,
        slices,
    )
    for fault in package.FAULTS
)
