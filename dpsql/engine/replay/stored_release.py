"""The serialized form of a released table: its keys, noisy components, chosen clamps, and noise.

All of it was released. Values and their intervals are computed again when it is read.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import dataclass, replace
from typing import Any

from dpsql.engine.released_table import Components, Keys, ReleasedTable, build_released_table
from dpsql.errors import IntegrityError
from dpsql.plan.types import Value
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.accounting.events import Event, from_json, to_json
from dpsql.privacy.mechanisms import CombinedNoise, Mechanism
from dpsql.privacy.mechanisms.records import from_stored_list, to_stored_list

_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """A release as it is stored: its keys, components, clamps and noise, and the event that was charged.

    `source` is the digest of the statement that read the data and of the engine that ran it.
    """

    keys: tuple[Keys, ...]
    components: tuple[Components, ...]
    clamp_points: tuple[tuple[int, ...], ...]
    noise: tuple[Mechanism, ...]
    event: Event
    source: str

    @classmethod
    def from_table(cls, table: ReleasedTable, event: Event, source: str) -> StoredRelease:
        """Return the stored form of a released table."""
        plan = table.plan
        width = len(plan.analysis.release.keys)
        return cls(
            tuple(row[:width] for row in table.rows),
            table.components,
            tuple(clamp.chosen for clamp in plan.clamps),
            tuple(measurement.mechanism for measurement in plan.vectors),
            event,
            source,
        )

    def to_table(self, plan: MeasurementPlan) -> ReleasedTable:
        """Return the released table, for a plan of the same statistic, with the stored noise."""
        plan = plan.with_released_groups(len(self.keys))
        clamps = tuple(
            replace(clamp, chosen=points)
            for clamp, points in zip(plan.clamps, self.clamp_points, strict=True)
        )
        made = plan.with_clamps(clamps)
        vectors = tuple(
            measurement.with_finer_lattice(noise, noise.subdivisions)
            if isinstance(noise, CombinedNoise)
            else replace(measurement, mechanism=noise)
            for measurement, noise in zip(made.vectors, self.noise, strict=True)
        )
        return build_released_table(
            replace(made, vectors=vectors, event=self.event), self.keys, self.components
        )

    def to_text(self) -> str:
        """Return the release as canonical JSON."""
        record = {
            "v": _VERSION,
            "keys": [[_to_json_value(value) for value in keys] for keys in self.keys],
            "cells": self.components,
            "chosen": self.clamp_points,
            "noise": [to_stored_list(noise) for noise in self.noise],
            "event": to_json(self.event),
            "source": self.source,
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def parse(cls, text: str) -> StoredRelease:
        """Parse the result of `text`. Raises IntegrityError (`ledger_corrupt`) for any other text."""
        try:
            record = json.loads(text)
            if record.pop("v") != _VERSION:
                raise IntegrityError("the stored release was written by a newer dpsql", code="ledger_version")
            return cls(
                tuple(tuple(map(_parse_value, keys)) for keys in record["keys"]),
                tuple(
                    tuple(tuple(map(_require_integer, part)) for part in components)
                    for components in record["cells"]
                ),
                tuple(tuple(map(_require_integer, points)) for points in record["chosen"]),
                tuple(map(from_stored_list, record["noise"])),
                from_json(record["event"]),
                str(record["source"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError):
            raise make_corruption_error() from None


def make_corruption_error() -> IntegrityError:
    """Return the error for a stored release that cannot be parsed."""
    return IntegrityError("the ledger has a stored release that dpsql did not write", code="ledger_corrupt")


def _to_json_value(value: Value) -> Any:
    """Return the JSON form of a key's value; a type that JSON lacks is given by name."""
    match value:
        case float():
            return {"double": value.hex()}
        case dt.datetime():
            return {"timestamp": value.isoformat()}
        case dt.date():
            return {"date": value.isoformat()}
        case dt.time():
            return {"time": value.isoformat()}
        case uuid.UUID():
            return {"uuid": str(value)}
        case bytes():
            return {"blob": value.hex()}
        case _:
            return value


def _parse_value(record: Any) -> Value:
    match record:
        case None | bool() | int() | str():
            return record
        case {"double": str(text)}:
            return float.fromhex(text)
        case {"timestamp": str(text)}:
            return dt.datetime.fromisoformat(text)
        case {"date": str(text)}:
            return dt.date.fromisoformat(text)
        case {"time": str(text)}:
            return dt.time.fromisoformat(text)
        case {"uuid": str(text)}:
            return uuid.UUID(text)
        case {"blob": str(text)}:
            return bytes.fromhex(text)
        case _:
            raise ValueError(record)


def _require_integer(record: Any) -> int:
    if type(record) is not int:
        raise TypeError(record)
    return record
