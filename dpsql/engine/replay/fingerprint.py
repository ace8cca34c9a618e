"""Fingerprints: the digests by which a stored release is found again for an equal measurement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dpsql.plan.dependencies import KnownValues, substitute_subqueries
from dpsql.plan.equality import compute_equality_text, compute_equality_texts
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy import Policy

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
