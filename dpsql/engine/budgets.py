"""What a policy lets be spent: the accounts of tables, of analysts at each, and the caps of one query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from dpsql.accounting.events import Pure
from dpsql.analysis.analyse import Analysis
from dpsql.errors import QueryRejected
from dpsql.ledger import Budget, Quote
from dpsql.ledger.digest import text_digest
from dpsql.ledger.protocol import Account, AccountKey, Bill
from dpsql.ledger.refusal import exhausted
from dpsql.plan.nodes import Release, private_tables
from dpsql.policy import Policy
from dpsql.policy.tables import BudgetSpec
from dpsql.request.target import Target


def budget(policy: Policy, table: str) -> Budget:
    """The budget that a policy gives to a private table."""
    return _budget(policy.budget_of(table))


def budgets(policy: Policy, analysts: Iterable[str] = ()) -> dict[str | AccountKey, Budget]:
    """The budgets of all private tables, and of these analysts at each, where the policy gives them any.

    Raises ProgrammingError for a name that is no text.
    """
    found: dict[str | AccountKey, Budget] = {}
    names = [name for name in dict.fromkeys(analysts) if name]
    for name in names:
        text_digest(name)  # refuses what no ledger can hold
    for table in policy.private_tables():
        found[table] = budget(policy, table)
        for name in names:
            spec = policy.budget_of_analyst(table, name)
            if spec is not None:
                found[AccountKey(table, name)] = _budget(spec)
    return found


def _budget(spec: BudgetSpec) -> Budget:
    return Budget(spec.accountant, spec.epsilon, spec.delta, renewal=spec.renew)


def cap(policy: Policy, releases: Iterable[Release]) -> Fraction | None:
    """The most that one query with these releases may ask for: the policy's cap, and those of the tables read."""
    names = (name for release in releases for name in private_tables(release.input))
    tables = (policy.table(name) for name in names)
    caps = [policy.max_epsilon, *(table.max_epsilon for table in tables if table is not None)]
    return min((most for most in caps if most is not None), default=None)


def require_above(least: Fraction, loss: Fraction | Target) -> None:
    """Raises QueryRejected for a loss below the policy's least: noise of any size would be there for nothing.

    A target's loss is searched for above it.
    """
    if not isinstance(loss, Target) and loss < least:
        raise QueryRejected(
            f"epsilon {float(loss):g} is below the policy's min_epsilon of {float(least):g}",
            code="epsilon_floor",
            hint="use a larger epsilon: below it an answer is noise alone",
        )


def require_below(most: Fraction | None, loss: Fraction | Target) -> None:
    """Raises QueryRejected for a loss above a cap. A target's loss is searched for below it."""
    if most is not None and not isinstance(loss, Target) and loss > most:
        raise QueryRejected(
            f"epsilon {float(min(loss, Fraction(10**300))):g} is above the policy's cap of {float(most):g} for one query",
            code="epsilon_cap",
            hint="use a smaller epsilon",
        )


def require_payable(
    analyses: Mapping[Release, Analysis],
    loss: Fraction | Target,
    account_of: Callable[[str], Account],
    quoted: Callable[[Sequence[Bill]], Iterable[Quote]],
) -> None:
    """Raises BudgetExhausted for a loss beyond the whole budget of a table, before anything is planned for it.

    `quoted` says what is left. A target's loss is searched for below the budget.
    """
    if isinstance(loss, Target):
        return
    charged = (release for release, analysis in analyses.items() if not analysis.free)
    for table in dict.fromkeys(name for release in charged for name in private_tables(release.input)):
        account, event = account_of(table), Pure(loss)
        if account.accountant.cost(event).loss <= account.limit.loss:
            continue
        for quote in quoted([Bill(table, event)]):
            if not quote.fits:
                raise exhausted(account, quote)
