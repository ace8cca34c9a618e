"""The serialized form of a released table: its keys, noisy components, chosen clamps, and noise.

All of it was released. Values and their intervals are computed again when it is read.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import uuid
from dataclasses import dataclass, replace
from typing import Any

from dpsql.engine.release.released_table import Components, Keys, ReleasedTable, build_released_table
from dpsql.errors import IntegrityError
from dpsql.plan.steps import KnownValues, substitute_subqueries
from dpsql.plan.text import compute_equality_text, compute_equality_texts
from dpsql.plan.types import Value
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy import Policy
from dpsql.privacy.accounting.events import Event, from_json, to_json
from dpsql.privacy.mechanisms import CombinedNoise, Mechanism
from dpsql.privacy.mechanisms.base import from_stored_list, to_stored_list

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


# Fingerprints: the digests by which a stored release is found again for an equal measurement.


_FORM = "2"
"""Changed when stored components change their meaning."""
_NOT_MEASURED = frozenset(
    {
        "budget",
        "max_epsilon",
        "min_epsilon",
        "default_epsilon",
        "max_failures",
        "per_analyst",
        "analysts",
    }
)
"""Keys of a policy and of its tables that concern budgets, and not what is measured."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests of a release: `statistic` of what is measured, `measurement` also of the noise."""

    statistic: str
    measurement: str


@dataclass(frozen=True, slots=True)
class FingerprintRules:
    """The part of a fingerprint that does not depend on the plan: policy, data version, neighbors, database, analyst.

    Claim: a stored release is found only for the same measurement of the same data, as far as the owner identifies the
    data.
    Why: the digest covers the whole policy except budgets, including `data_version`, and the `database` that identifies the
    database; nothing is inferred from the data.
    """

    digest: str

    @classmethod
    def from_policy(cls, policy: Policy, analyst: str, database: str) -> FingerprintRules:
        """Return the rules of a policy and a database for an analyst.

        If analysts have their own budgets, each sees only the releases that were charged to it: otherwise an analyst
        would see more than it was charged for.
        """
        content = _drop_budget_keys(policy.model_dump(mode="json"))
        content["tables"] = {name: _drop_budget_keys(table) for name, table in content["tables"].items()}
        own = analyst if policy.analysts or policy.per_analyst is not None else None
        return cls(compute_digest(compute_equality_text((_freeze_content(content), own, database))))

    def compute_fingerprint(self, plan: MeasurementPlan, values: KnownValues) -> Fingerprint:
        """Return the fingerprint of a plan; `values` are those of the subqueries that it uses."""
        analysis = substitute_subqueries(plan.analysis, values)
        chosen = (plan.quantiles, plan.top_k, plan.clamps, *filter(None, [plan.synthesis]))
        vectors = tuple(measurement.vector for measurement in plan.vectors)
        statistic = (vectors, chosen, plan.selection is None)
        noised = (plan.vectors, chosen, plan.selection, plan.event)
        texts = compute_equality_texts((analysis,), statistic, noised)
        return Fingerprint(*(compute_digest(f"{_FORM} {self.digest} {text}") for text in texts))

    def compute_rows_digest(self, plan: MeasurementPlan, values: KnownValues) -> str:
        """Return the digest of the rows and groups of a release, whatever is measured of them."""
        analysis = substitute_subqueries(plan.analysis, values)
        keys = tuple(key.expr for key in analysis.release.keys)
        content = compute_equality_text(
            (analysis.release.input, keys, analysis.bound, analysis.domains, analysis.replace)
        )
        return compute_digest(f"{_FORM} {self.digest} rows {content}")


def compute_digest(text: str) -> str:
    """Return a digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _drop_budget_keys(level: dict[str, Any]) -> dict[str, Any]:
    """Return one level of the policy without budgets; at deeper levels such a key is the name of a table or column."""
    return {name: value for name, value in level.items() if name not in _NOT_MEASURED}


def _freeze_content(content: Any) -> Any:
    if isinstance(content, dict):
        return tuple((name, _freeze_content(content[name])) for name in sorted(content))
    return tuple(map(_freeze_content, content)) if isinstance(content, list) else content
