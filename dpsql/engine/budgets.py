"""The limits of a policy: the accounts of tables and analysts, the caps of one query, and warnings about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from dpsql.errors import QueryRejected
from dpsql.ledger import Budget
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import compute_text_digest
from dpsql.ledger.protocol import Account
from dpsql.ledger.quote import describe_capacity
from dpsql.plan.nodes import Release, list_private_tables
from dpsql.policy import Policy
from dpsql.policy.request.loss import Target, format_rounded
from dpsql.policy.tables import BudgetSpec
from dpsql.privacy.accounting.events import NOTHING


def get_table_budget(policy: Policy, table: str) -> Budget:
    """Return the budget that a policy gives to a private table."""
    return _build_budget(policy.get_budget(table))


def collect_budgets(policy: Policy, analysts: Iterable[str] = ()) -> dict[str | AccountKey, Budget]:
    """Return the budgets of all accounts of private tables, and those of these analysts at each where the policy has one.

    Raises ProgrammingError for a name that is not a text.
    """
    found: dict[str | AccountKey, Budget] = {}
    names = [name for name in dict.fromkeys(analysts) if name]
    for name in names:
        compute_text_digest(name)  # refuses what no ledger can hold
    for table in policy.list_private_tables():
        account = policy.get_account_name(table)
        found[account] = get_table_budget(policy, table)
        for name in names:
            spec = policy.find_analyst_budget(table, name)
            if spec is not None:
                found[AccountKey(account, name)] = _build_budget(spec)
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


# Warnings about a valid policy that the owner may not intend: settings that are weak, unreachable, or without effect.


_LARGE_DELTA: Final = Fraction(1, 100_000)
_LARGE_EPSILON: Final = 10
_IDENTIFIERS: Final = re.compile(
    r"(?:^|_)(?:(?:first|last|full|sur|family|given)_?name|name|e?_?mail|phone|mobile|fax|address|street|ssn|nino|"
    r"passport|iban|licen[cs]e|birth_?date|date_of_birth|dob|ip|mac|uuid|guid)(?:$|_)",
    re.IGNORECASE,
)


def iterate_policy_warnings(policy: Policy) -> Iterator[str]:
    """Yield a sentence for each setting that an owner should check. It follows from the policy alone."""
    reach = {
        name: _compute_largest_epsilon(get_table_budget(policy, name))
        for name in policy.list_private_tables()
    }
    accounts = {policy.get_account_name(name): get_table_budget(policy, name) for name in reach}
    for name, own in accounts.items():
        yield from _describe_weak_budget(name, own)
    yield from _describe_idle_caps(policy, reach)
    yield from _describe_idle_analyst_budgets(policy)
    for name in reach:
        for column in policy.tables[name].columns:
            if _IDENTIFIERS.search(column):
                yield f"{name}.{column} looks like an identifier of people: leave it out unless analysts need it"


def describe_capacities(policy: Policy) -> Iterator[str]:
    """Yield what the budgets hold: a line for each different one, and the sum for a unit with rows in several tables."""
    names, own = list(policy.list_private_tables()), dict[Budget, list[str]]()
    if policy.budget.shared and names:
        yield from _describe_shared_capacity(policy, names)
        return
    for name in names:
        own.setdefault(get_table_budget(policy, name), []).append(name)
    for budget, tables in own.items():
        account = Account.from_budget(budget)
        holds = describe_capacity(account, account.limit, policy.default_epsilon)
        yield f"the budget of {' and '.join(tables)} holds {holds}{' each' if len(tables) > 1 else ''}"
    if len(names) > 1:
        budgets = [get_table_budget(policy, name) for name in names]
        total, delta = sum(each.epsilon for each in budgets), sum(each.delta for each in budgets)
        of_delta = f", δ {format_rounded(delta, 6)}" if delta else ""
        yield (
            f"whoever has rows in each of {' and '.join(names)} is protected at the sum of their budgets: ε {float(total):g}{of_delta}"
        )


def _describe_shared_capacity(policy: Policy, names: list[str]) -> Iterator[str]:
    account = Account.from_budget(get_table_budget(policy, names[0]))
    holds = describe_capacity(account, account.limit, policy.default_epsilon)
    yield f"the budget that {' and '.join(names)} share holds {holds}, whichever of them a question reads"
    if len(names) > 1:
        of_delta = f", δ {format_rounded(account.budget.delta, 6)}" if account.budget.delta else ""
        yield (
            f"whoever has rows in several of them is protected at this budget: ε {float(account.budget.epsilon):g}{of_delta};"
            " this requires that a unit has the same id in each of them"
        )


def _describe_weak_budget(name: str, own: Budget) -> Iterator[str]:
    if own.epsilon > _LARGE_EPSILON:
        yield f"{name}: ε {float(own.epsilon):g} is weak: above {_LARGE_EPSILON}, one unit has little protection"
    if own.delta > _LARGE_DELTA:
        yield (
            f"{name}: δ {float(own.delta):g} is large: with that probability everything about a unit may be revealed;"
            " use a number far below 1 / (number of units), such as 1e-7"
        )


def _describe_idle_caps(policy: Policy, reach: dict[str, Fraction]) -> Iterator[str]:
    """Yield the caps and defaults that exceed the ε of the largest single query that each budget allows."""
    if not reach:
        return
    most = max(reach.values())
    if policy.max_epsilon is not None and policy.max_epsilon > most:
        yield (
            f"max_epsilon {float(policy.max_epsilon):g} has no effect: no table's budget allows a query above"
            f" ε {_format_rounded_down(most)}"
        )
    for name, own in reach.items():
        cap = policy.tables[name].max_epsilon
        if cap is not None and cap > own:
            yield f"{name}: max_epsilon {float(cap):g} has no effect: its budget allows no query above ε {_format_rounded_down(own)}"
        if policy.default_epsilon is not None and policy.default_epsilon > own:
            yield (
                f"{name}: default_epsilon {float(policy.default_epsilon):g} is refused: its budget allows no query"
                f" above ε {_format_rounded_down(own)}"
            )
        if policy.min_epsilon > own:
            yield f"{name}: no query can be answered: its budget allows no query of min_epsilon {float(policy.min_epsilon):g}"


def _describe_idle_analyst_budgets(policy: Policy) -> Iterator[str]:
    """Yield the budgets of analysts that are not below the table's own."""
    named = [*policy.analysts, *([] if policy.per_analyst is None else ["#"])]
    found = {key: own for key, own in collect_budgets(policy, named).items() if isinstance(key, AccountKey)}
    for key, own in found.items():
        table = Account.from_budget(collect_budgets(policy)[key.table])
        if table.limit.is_within(Account.from_budget(own).limit):
            whose = "per_analyst" if key.analyst == "#" else f"the budget of {key.analyst}"
            yield f"{key.table}: {whose} has no effect: it is not less than the budget of the table"


def _compute_largest_epsilon(own: Budget) -> Fraction:
    """Return the ε of the largest single query that a budget allows."""
    account = Account.from_budget(own)
    return account.accountant.compute_remaining_epsilon(NOTHING, account.limit)


def _format_rounded_down(value: Fraction) -> str:
    return format_rounded(value)
