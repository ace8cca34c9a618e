"""All faults, package by package along the dataflow."""

from __future__ import annotations

from . import (
    accounting,
    agreement,
    analysis,
    asking,
    chains,
    clamps,
    emitted,
    engine,
    ledger,
    meaning,
    noise,
    parts,
    policy,
    ranks,
    receipts,
    replays,
    slices,
    sources,
    sql,
    stairs,
    units,
)

FAULTS = tuple(
    fault
    for package in (
        sql,
        meaning,
        asking,
        units,
        chains,
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
        sources,
    )
    for fault in package.FAULTS
)
