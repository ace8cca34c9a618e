"""The receipt of a query: its text, mechanisms and charges, without a value of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from dpsql.backends import Backend
from dpsql.engine.prepare import PreparedQuery, describe_mechanisms
from dpsql.ledger import Entry
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy import Policy
from dpsql.privacy.accounting.events import to_json
from dpsql.results.result import Receipt
from dpsql.version import VERSION


def build_receipt(  # noqa: PLR0917  (each is a fact of who asked and of what)
    prepared: PreparedQuery,
    entries: Sequence[Entry],
    measured: Sequence[MeasurementPlan] | None,
    policy: Policy,
    policy_digest: str,
    backend: Backend,
    analyst: str,
) -> Receipt:
    """Return the receipt of a query that was charged as `entries` say, or, without any, explained.

    `measured` are the plans of its releases with all that was chosen on the way.
    """
    event = prepared.event
    return Receipt(
        query=prepared.query.sql,
        plan=prepared.plan_digest,
        analyst=analyst,
        privacy_unit=policy.privacy_unit,
        neighbors=policy.neighbors,
        data_version=policy.data_version,
        policy=policy_digest,
        mechanisms=tuple(
            prepared.mechanisms
            if measured is None
            else [mechanism for plan in measured for mechanism in describe_mechanisms(plan)]
        ),
        loss=None if event is None else json.loads(to_json(event)),
        entries=tuple(
            {
                "id": entry.id,
                "table": entry.table,
                "at": entry.at.isoformat(),
                "loss": str(entry.spend.loss_fraction),
                "delta": str(entry.spend.delta_fraction),
                "digest": entry.digest,
                **({} if entry.box is None else {"box": entry.box}),
                **({} if entry.reservation is None else {"slice": entry.reservation}),
                **({"account": entry.account_analyst} if entry.account_analyst else {}),
            }
            for entry in entries
        ),
        versions=collect_versions(backend),
        constants=dict(prepared.constants),
        target=prepared.terms.to_target_record(),
        replayed=prepared.replayed_entries,
        refined=tuple(dict.fromkeys(base.entry for base in prepared.refinements)),
    )


def collect_versions(backend: Backend) -> dict[str, str]:
    """Return the versions of the engine, of dpsql and of its parser."""
    return {backend.name: backend.version, "dpsql": VERSION, "sqlglot": _get_parser_version()}


@cache
def _get_parser_version() -> str:
    try:
        return version("sqlglot")
    except PackageNotFoundError:
        return "unknown"
