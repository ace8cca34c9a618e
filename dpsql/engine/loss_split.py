"""Split the requested loss among the releases of a statement, and require one sample for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import NoReturn

from dpsql.analysis.release_analysis import Analysis
from dpsql.errors import Position, QueryRejected
from dpsql.ledger.protocol import Account
from dpsql.plan.nodes import Release, list_private_scans, list_private_tables
from dpsql.planning.choose import LossShare
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.events import BoundedRange, Pure


def split_loss(
    analyses: Mapping[Release, Analysis],
    get_accounts: Callable[[Sequence[str]], Mapping[str, Account]],
    epsilon: Fraction,
    delta: Fraction | None,
    can_refine: Callable[[Sequence[str]], bool],
) -> list[LossShare]:
    """Return the loss share of each release, in the order of `analyses`; `delta` None takes a share of the budget's delta.

    `get_accounts` gives the accounts that pay for tables, by their names. `can_refine` says, for the tables that a release reads,
    whether it may be refined by coupled noise.

    A release has a weight of one for each aggregate, which minimizes the mean of the logs of all errors. Free releases have none.
    Raises QueryRejected with code "epsilon_small" if a share is too small to be charged.

    Claim: for each account, the spends of the releases that read its tables add up to at most the spend of one release at the
    requested loss.
    Why: each release has a share of that spend, in the accountant's own measure, rounded down.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3 (composition adds spends up).
    """
    tables = [list_private_tables(release.input) for release in analyses]
    weights = [
        0 if analysis.is_free else max(1, len(release.aggregations)) for release, analysis in analyses.items()
    ]
    charged = [get_accounts(read) for read in tables]
    totals = {
        name: sum(weight for weight, accounts in zip(weights, charged, strict=True) if name in accounts)
        for name in dict.fromkeys(name for accounts in charged for name in accounts)
    }
    return [
        replace(
            _build_loss_share(
                [
                    (account, _compute_weight_share(weight, totals[name]))
                    for name, account in accounts.items()
                ],
                epsilon,
                delta,
            ),
            refinable=can_refine(read),
        )
        for weight, accounts, read in zip(weights, charged, tables, strict=True)
    ]


def _compute_weight_share(weight: int, total: int) -> Fraction:
    """Return the part of a weight in a total; 1 for a free release, which spends nothing of it."""
    return Fraction(weight, total) if weight else Fraction(1)


def _build_loss_share(
    shares: Sequence[tuple[Account, Fraction]], epsilon: Fraction, delta: Fraction | None
) -> LossShare:
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
