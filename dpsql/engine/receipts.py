"""The receipt of a query: its text, mechanisms and charges, without a value of the answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpsql.backends import Backend
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun, describe_mechanisms
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.accounting.events import to_json
from dpsql.results.result import Receipt
from dpsql.version import VERSION


def build_receipt(
    engine: Engine, run: QueryRun, measured: Sequence[MeasurementPlan] | None = None
) -> Receipt:
    """Return the receipt of a query that was charged as its entries say, or, without any, explained.

    `measured` are the plans of its releases with all that was chosen on the way.
    """
    event = run.event
    return Receipt(
        query=run.query.sql,
        plan=run.plan_digest,
        analyst=engine.analyst,
        privacy_unit=engine.policy.privacy_unit,
        neighbors=engine.policy.neighbors,
        data_version=engine.policy.data_version,
        policy=engine.policy_digest,
        mechanisms=tuple(
            run.mechanisms
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
            for entry in run.entries
        ),
        versions=collect_versions(engine.backend),
        constants=dict(run.constants),
        target=run.terms.to_target_record(),
        replayed=run.replayed_entries,
        refined=tuple(dict.fromkeys(base.entry for base in run.refinements)),
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


# The details of a charge in the ledger's entries, so that a receipt can be checked against them.


def build_charge_details(engine: Engine, prepared: QueryRun) -> dict[str, Any]:
    """Return the details of a charge, which follow from the query, the policy and earlier releases.

    `mechanisms` are drawn for this charge. `answered` is the noise of the answer, which differs if a part was released before, or
    is combined with an earlier release; `refinements` and `replayed_entries` are the entries that paid for that. `loss` is the
    event of all releases, if an entry has another. `earlier_charges` are the charges of earlier steps towards the same target.
    """
    event, drawn, answered = prepared.event, prepared.drawn_mechanisms, prepared.mechanisms
    found: dict[str, Any] = {
        "plan": prepared.plan_digest,
        "data_version": engine.policy.data_version,
        "policy": engine.policy_digest,
        "mechanisms": drawn,
        "privacy_unit": engine.policy.privacy_unit,
        "neighbors": engine.policy.neighbors,
        "versions": collect_versions(engine.backend),
    }
    optional: dict[str, Any] = {
        "answered": None if answered == drawn else answered,
        "refines": [base.entry for base in prepared.refinements],
        "replayed": list(prepared.replayed_entries),
        "target": prepared.terms.to_target_record(),
        "steps": list(prepared.earlier_charges),
        "loss": None
        if event is None or all(bill.event == event for bill in prepared.table_charges)
        else json.loads(to_json(event)),
    }
    return found | {name: value for name, value in optional.items() if value}
