"""All faults, package by package along the dataflow."""

from __future__ import annotations

from . import (
    accounting,
    analysis,
    asking,
    chains,
    clamping,
    consistency,
    emitted,
    engine,
    engines,
    http,
    ledger,
    library,
    meaning,
    noise,
    partitions,
    policy,
    quantiles,
    read_types,
    receipts,
    replays,
    reservations,
    server,
    sources,
    sql,
    staircase,
    suggested,
    synthesis,
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
        consistency,
        clamping,
        quantiles,
        noise,
        library,
        staircase,
        suggested,
        synthesis,
        accounting,
        ledger,
        partitions,
        engine,
        engines,
        policy,
        replays,
        receipts,
        reservations,
        sources,
        server,
        http,
        read_types,
    )
    for fault in package.FAULTS
)
