"""The details of a charge in the ledger's entries, so that a receipt can be checked against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpsql.engine.prepare import PreparedQuery
from dpsql.policy import Policy
from dpsql.privacy.accounting.events import to_json


def build_charge_details(
    prepared: PreparedQuery, policy: Policy, policy_digest: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Return the details of a charge, which follow from the query, the policy and earlier releases.

    `mechanisms` are drawn for this charge. `answered` is the noise of the answer, which differs if a part was released before, or
    is combined with an earlier release; `refinements` and `replayed_entries` are the entries that paid for that. `loss` is the
    event of all releases, if an entry has another. `earlier_charges` are the charges of earlier steps towards the same target.
    """
    event, drawn, answered = prepared.event, prepared.drawn_mechanisms, prepared.mechanisms
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
        "refines": [base.entry for base in prepared.refinements],
        "replayed": list(prepared.replayed_entries),
        "target": prepared.terms.to_target_record(),
        "steps": list(prepared.earlier_charges),
        "loss": None
        if event is None or all(bill.event == event for bill in prepared.table_charges)
        else json.loads(to_json(event)),
    }
    return found | {name: value for name, value in optional.items() if value}
