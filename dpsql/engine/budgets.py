"""The limits of a policy with warnings about them, and the split of a query's loss among its releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final, NoReturn

from dpsql.errors import Position, QueryRejected
from dpsql.ledger import Budget
from dpsql.ledger.digest import compute_text_digest
from dpsql.ledger.protocol import Account, AccountKey
from dpsql.plan.nodes import Release, list_private_scans, list_private_tables
from dpsql.policy import Policy
from dpsql.policy.request.loss import Target, format_rounded
from dpsql.policy.tables import BudgetSpec
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.events import NOTHING, BoundedRange, Pure

if TYPE_CHECKING:
    from dpsql.analysis.release_analysis import Analysis
    from dpsql.planning.choose import LossShare

# The limits of a policy: the accounts of tables, those of analysts at each table, and the caps of one query.


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


# Split the requested privacy loss among the releases of a statement.


def split_loss(
    analyses: Mapping[Release, Analysis],
    get_account: Callable[[str], Account],
    epsilon: Fraction,
    delta: Fraction | None,
    can_refine: Callable[[Sequence[str]], bool],
) -> list[LossShare]:
    """Return the loss share of each release, in the order of `analyses`; `delta` None takes a share of the budget's delta.

    `can_refine` says, for the tables that a release reads, whether it may be refined by coupled noise.

    A release has a weight of one for each aggregate, which minimizes the mean of the logs of all errors. Free releases have none.
    Raises QueryRejected with code "epsilon_small" if a share is too small to be charged.

    Claim: for each table, the spends of the releases that read it add up to at most the spend of one release at the requested loss.
    Why: each release has a share of that spend, in the accountant's own measure, rounded down.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3 (composition adds spends up).
    """
    tables = [list_private_tables(release.input) for release in analyses]
    weights = [
        0 if analysis.is_free else max(1, len(release.aggregations)) for release, analysis in analyses.items()
    ]
    totals = {
        table: sum(weight for weight, read in zip(weights, tables, strict=True) if table in read)
        for table in dict.fromkeys(name for read in tables for name in read)
    }
    accounts = {table: get_account(table) for table in totals}
    return [
        replace(
            _build_loss_share(
                [(accounts[table], _compute_weight_share(weight, totals[table])) for table in read],
                epsilon,
                delta,
            ),
            refinable=can_refine(read),
        )
        for weight, read in zip(weights, tables, strict=True)
    ]


def _compute_weight_share(weight: int, total: int) -> Fraction:
    """Return the part of a weight in a total; 1 for a free release, which spends nothing of it."""
    return Fraction(weight, total) if weight else Fraction(1)


def _build_loss_share(
    shares: Sequence[tuple[Account, Fraction]], epsilon: Fraction, delta: Fraction | None
) -> LossShare:
    from dpsql.planning.choose import LossShare  # commands on budgets alone start without the planner

    part = min(_compute_epsilon(account, epsilon, share) for account, share in shares)
    if part <= 0:
        raise QueryRejected(
            "the privacy loss is too small to be split among the releases of the query", code="epsilon_small"
        )
    deltas = [
        share * (_compute_delta_share(account, epsilon) if delta is None else delta)
        for account, share in shares
    ]
    rhos = [account.accountant.find_gaussian_rho(part) for account, _ in shares]
    known = [rho for rho in rhos if rho is not None]
    units = [(account, _compute_units(account, epsilon, share)) for account, share in shares]

    @cache
    def search_choice_range(fraction: Fraction) -> Fraction:
        """Return the range of an exponential mechanism that spends this share of the release's part of each table."""
        found = min(
            search_largest_epsilon(account.accountant.compute_charge, int(left * fraction), BoundedRange)
            for account, left in units
        )
        if not found:
            raise QueryRejected(
                "the privacy loss is too small to be split among the aggregates", code="epsilon_small"
            )
        return found

    def search_pure_epsilon(fraction: Fraction) -> Fraction:
        """Return the ε of an ε-DP release that spends this share of the release's part of each table."""
        found = min(
            search_largest_epsilon(account.accountant.compute_charge, int(left * fraction))
            for account, left in units
        )
        if not found:
            raise QueryRejected(
                "the privacy loss is too small to be split among the answers of a stream",
                code="epsilon_small",
            )
        return found

    return LossShare(
        part,
        min(known) if len(known) == len(rhos) else None,
        _round_down(min(deltas)),
        search_choice_range,
        pure_of=search_pure_epsilon,
    )


def _compute_epsilon(account: Account, epsilon: Fraction, share: Fraction) -> Fraction:
    """Return the loss at which a release spends at most this share."""
    if share == 1:
        return epsilon
    return search_largest_epsilon(account.accountant.compute_charge, _compute_units(account, epsilon, share))


def _compute_units(account: Account, epsilon: Fraction, share: Fraction) -> int:
    """Return this share of the spend of a release at the loss, in units."""
    return int(account.accountant.compute_charge(Pure(epsilon)).loss * share)


def compute_proportional_delta(account: Account, epsilon: Fraction) -> Fraction:
    """Return the δ of a query on the account's table with this loss, if the query gives none."""
    return _round_down(_compute_delta_share(account, epsilon))


def _compute_delta_share(account: Account, epsilon: Fraction) -> Fraction:
    """Return the part of an account's delta that equals the loss's part of its epsilon, so that both are used up together."""
    loss = account.accountant.compute_charge(Pure(epsilon)).loss_fraction
    return account.limit.delta_fraction * min(loss / account.limit.loss_fraction, Fraction(1))


def _round_down(delta: Fraction) -> Fraction:
    """Round the delta down to a short fraction, which is safe and keeps the arithmetic fast."""
    return Fraction(int(delta * 10**30), 10**30)


# The check of statements over a sample of units: they have one release, and all its private tables have the same sample.


CODE = "sample"


def require_one_sample(
    releases: Sequence[Release], *, replace: bool, targeted: bool, text: str, at: Position | None
) -> None:
    """Refuse a statement that reads some private rows from a sample of the units, and others from another sample or from none.

    Claim: the loss of a statement that passes is that of `dpsql.planning.statistics`.
    Why: there is one release, whose private tables are all restricted to the units of one sample, and neighbors differ by a unit
    that is added or removed. If a unit is replaced, amplification has another form.

    Raises QueryRejected with code "sample".
    """

    def refuse_sample(rule: str, hint: str) -> NoReturn:
        raise QueryRejected(rule, code=CODE, hint=hint, position=at, text=text)

    read = [{scan.sample for scan in list_private_scans(release.input)} for release in releases]
    if not set().union(*read) - {None}:
        return
    if replace:
        refuse_sample(
            "a sample of units is not supported under the policy's `neighbors: replace`, where it does not reduce the loss",
            "remove TABLESAMPLE UNITS",
        )
    if len(releases) > 1:
        refuse_sample(
            f"a query over a sample must make one release, and this one makes {len(releases)}",
            "run a query for each",
        )
    if any(len(rates) > 1 for rates in read):
        refuse_sample(
            "all private tables of a query must have the same sample, or none",
            "write the same TABLESAMPLE UNITS (…) after each private table",
        )
    if targeted:
        refuse_sample(
            "target_error is not supported over a sample of units",
            "pass epsilon, or remove TABLESAMPLE UNITS, which is more accurate at the same loss",
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
    for name in reach:
        yield from _describe_weak_budget(name, get_table_budget(policy, name))
    yield from _describe_idle_caps(policy, reach)
    yield from _describe_idle_analyst_budgets(policy)
    for name in reach:
        for column in policy.tables[name].columns:
            if _IDENTIFIERS.search(column):
                yield f"{name}.{column} looks like an identifier of people: leave it out unless analysts need it"


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
