"""The limits of a policy: the accounts of tables, those of analysts at each table, and the caps of one query."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from dpsql.errors import QueryRejected
from dpsql.ledger import Budget
from dpsql.ledger.digest import compute_text_digest
from dpsql.ledger.protocol import AccountKey
from dpsql.plan.nodes import Release, list_private_tables
from dpsql.policy import Policy
from dpsql.policy.request.target import Target
from dpsql.policy.tables import BudgetSpec


def get_table_budget(policy: Policy, table: str) -> Budget:
    """Return the budget that a policy gives to a private table."""
    return _build_budget(policy.get_budget(table))


def collect_budgets(policy: Policy, analysts: Iterable[str] = ()) -> dict[str | AccountKey, Budget]:
    """Return the budgets of all private tables, and those of these analysts at each table for which the policy has one.

    Raises ProgrammingError for a name that is not a text.
    """
    found: dict[str | AccountKey, Budget] = {}
    names = [name for name in dict.fromkeys(analysts) if name]
    for name in names:
        compute_text_digest(name)  # refuses what no ledger can hold
    for table in policy.list_private_tables():
        found[table] = get_table_budget(policy, table)
        for name in names:
            spec = policy.find_analyst_budget(table, name)
            if spec is not None:
                found[AccountKey(table, name)] = _build_budget(spec)
    return found


def _build_budget(spec: BudgetSpec) -> Budget:
    return Budget(spec.accountant, spec.epsilon, spec.delta, renewal=spec.renew)


def compute_epsilon_cap(policy: Policy, releases: Iterable[Release]) -> Fraction | None:
    """Return the largest ε of one query with these releases: the policy's cap, or that of a table which it reads."""
    names = (name for release in releases for name in list_private_tables(release.input))
    tables = (policy.find_table(name) for name in names)
    caps = [policy.max_epsilon, *(table.max_epsilon for table in tables if table is not None)]
    return min((most for most in caps if most is not None), default=None)


def require_above_floor(least: Fraction, loss: Fraction | Target) -> None:
    """Raise QueryRejected for a loss below the policy's minimum, at which the answer is only noise.

    The loss of a target is searched for above the minimum.
    """
    if not isinstance(loss, Target) and loss < least:
        raise QueryRejected(
            f"epsilon {float(loss):g} is below the policy's min_epsilon of {float(least):g}",
            code="epsilon_floor",
            hint="use a larger epsilon: below the minimum, an answer is only noise",
        )


def require_below_cap(most: Fraction | None, loss: Fraction | Target) -> None:
    """Raise QueryRejected for a loss above a cap. The loss of a target is searched for below the cap."""
    if most is not None and not isinstance(loss, Target) and loss > most:
        raise QueryRejected(
            f"epsilon {float(min(loss, Fraction(10**300))):g} is above the policy's cap of {float(most):g} for one query",
            code="epsilon_cap",
            hint="use a smaller epsilon",
        )
