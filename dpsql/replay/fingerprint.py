"""What a release is called where it is kept: two digests that equal measurements share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dpsql.plan.dependencies import Known, substitute
from dpsql.plan.equality import equal_text
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy import Policy

_FORM = "2"
"""Changed where components that are kept no longer mean what they did."""
_NOT_MEASURED = frozenset({"budget", "max_epsilon", "min_epsilon", "max_failures", "per_analyst", "analysts"})
"""Keys of a policy, and of its tables, that say what may be spent, and nothing of what is measured."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests of a release: of what is measured, whatever the noise, and of that with its noise."""

    statistic: str
    measurement: str


@dataclass(frozen=True, slots=True)
class FingerprintRules:
    """What besides a plan decides what a release is: the policy, its data version and neighbours among it, the database.

    Claim: a release is found again for the same measurement of the same data alone, as far as the owner says
    which data it is.
    Why: the digest is of all that the policy says but budgets, of which `data_version` is a part, and of the `mark`
    that tells the database from others; nothing is inferred from the data.
    """

    digest: str

    @classmethod
    def of(cls, policy: Policy, analyst: str, mark: str) -> FingerprintRules:
        """The rules of a policy and a database for whoever asks.

        Where analysts have budgets of their own, each sees the releases alone that were charged to it: else what one
        has seen would be more than what that one was charged for.
        """
        told = _measured(policy.model_dump(mode="json"))
        told["tables"] = {name: _measured(table) for name, table in told["tables"].items()}
        own = analyst if policy.analysts or policy.per_analyst is not None else None
        return cls(digest(equal_text((_frozen(told), own, mark))))

    def fingerprint(self, plan: MeasurementPlan, values: Known) -> Fingerprint:
        """The digests of a release; `values` are those of earlier answers that stand in it."""
        analysis = substitute(plan.analysis, values)
        chosen = (plan.quantiles, plan.top_k, plan.clamps)
        vectors = tuple(measured.vector for measured in plan.vectors)
        statistic = equal_text((analysis, vectors, chosen, plan.selection is None))
        noised = equal_text((analysis, plan.vectors, chosen, plan.selection, plan.event))
        return Fingerprint(*(digest(f"{_FORM} {self.digest} {text}") for text in (statistic, noised)))

    def rows_digest(self, plan: MeasurementPlan, values: Known) -> str:
        """The digest of the rows of a release and of its groups, whatever is measured of them."""
        analysis = substitute(plan.analysis, values)
        keys = tuple(key.expr for key in analysis.release.keys)
        told = equal_text((analysis.release.input, keys, analysis.bound, analysis.domains, analysis.replace))
        return digest(f"{_FORM} {self.digest} rows {told}")


def digest(text: str) -> str:
    """A digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _measured(told: dict[str, Any]) -> dict[str, Any]:
    """What one level says; further down such a word is the name of a table or a column."""
    return {name: value for name, value in told.items() if name not in _NOT_MEASURED}


def _frozen(told: Any) -> Any:
    if isinstance(told, dict):
        return tuple((name, _frozen(told[name])) for name in sorted(told))
    return tuple(map(_frozen, told)) if isinstance(told, list) else told
