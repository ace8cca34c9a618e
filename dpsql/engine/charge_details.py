"""What the ledger's entries of a charge say of the query beside its text, so that a receipt can be held against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dpsql.accounting.events import to_json
from dpsql.backends import Backend
from dpsql.engine.prepare import PreparedQuery
from dpsql.policy import Policy
from dpsql.version import VERSION


def charge_details(
    prepared: PreparedQuery, policy: Policy, policy_digest: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """The details of a charge, known before it: they follow from the query, the policy and what was released.

    `mechanisms` is what is drawn for this charge. `answered` is the noise of the answer, which differs where a part
    was released before or is put together with what was; `refines` and `replayed` are the entries that paid for it.
    `loss` is the event of all releases, where an entry has another; `steps` are the charges of earlier steps to
    the same target.
    """
    event, drawn, answered = prepared.event, prepared.drawn, prepared.mechanisms
    found: dict[str, Any] = {
        "plan": prepared.plan_digest,
        "data_version": policy.data_version,
        "policy": policy_digest,
        "mechanisms": drawn,
        "privacy_unit": policy.privacy_unit,
        "neighbors": policy.neighbors,
        "versions": dict(versions),
    }
    optional: dict[str, Any] = {
        "answered": None if answered == drawn else answered,
        "refines": [base.entry for base in prepared.refines],
        "replayed": list(prepared.replayed),
        "target": prepared.terms.targeted(),
        "steps": list(prepared.steps),
        "loss": None
        if event is None or all(bill.event == event for bill in prepared.bills)
        else json.loads(to_json(event)),
    }
    return found | {name: value for name, value in optional.items() if value}


def versions(backend: Backend) -> dict[str, str]:
    """The versions of the engine, of dpsql and of the parser."""
    return {backend.name: backend.version, "dpsql": VERSION, "sqlglot": _parser_version()}


@cache
def _parser_version() -> str:
    try:
        return version("sqlglot")
    except PackageNotFoundError:
        return "unknown"
