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
    meaning,
    noise,
    parts,
    policy,
    ranks,
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
        meaning,
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
        slices,
    )
    for fault in package.FAULTS
)
