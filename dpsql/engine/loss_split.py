"""What each release of a statement may spend, so that all together cost each table what was asked for.

Claim: the spends of the releases that read a table add up to at most the spend of one release at the
loss that was asked for.
Why: each gets a share of that spend, in the accountant's own measure, rounded down.
Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3 (composition adds spends up).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

from dpsql.accounting.accountants.base import largest_epsilon
from dpsql.accounting.events import BoundedRange, Pure
from dpsql.analysis.analyse import Analysis
from dpsql.errors import QueryRejected
from dpsql.ledger.protocol import Account
from dpsql.plan.nodes import Release, private_tables
from dpsql.planning.loss_share import LossShare


def loss_shares(
    analyses: Mapping[Release, Analysis],
    account_of: Callable[[str], Account],
    epsilon: Fraction,
    delta: Fraction | None,
    refined: Callable[[Sequence[str]], bool],
) -> list[LossShare]:
    """The price of each release, in the order of their analyses; `delta` is what was asked for, None for a share like the loss's.

    `refined` says of the tables that a release reads whether it may be refined given its noise.

    A release has a share for each of its aggregates: at equal scores of all aggregates, the least
    mean of the logs of their errors. What is free takes no share. Raises QueryRejected with code
    "epsilon_small" where a share is too small to be accounted for.
    """
    tables = [private_tables(release.input) for release in analyses]
    weights = [
        0 if analysis.free else max(1, len(release.aggregations)) for release, analysis in analyses.items()
    ]
    totals = {
        table: sum(weight for weight, read in zip(weights, tables, strict=True) if table in read)
        for table in dict.fromkeys(name for read in tables for name in read)
    }
    accounts = {table: account_of(table) for table in totals}
    return [
        replace(
            _price([(accounts[table], _share(weight, totals[table])) for table in read], epsilon, delta),
            refined=refined(read),
        )
        for weight, read in zip(weights, tables, strict=True)
    ]


def _share(weight: int, total: int) -> Fraction:
    """The part of a weight in a total; of what is free the whole, of which nothing is spent."""
    return Fraction(weight, total) if weight else Fraction(1)


def _price(
    shares: Sequence[tuple[Account, Fraction]], epsilon: Fraction, delta: Fraction | None
) -> LossShare:
    part = min(_epsilon(account, epsilon, share) for account, share in shares)
    if part <= 0:
        raise QueryRejected(
            "the privacy loss is too small to be split among the releases of the query", code="epsilon_small"
        )
    deltas = [share * (_delta(account, epsilon) if delta is None else delta) for account, share in shares]
    rhos = [account.accountant.gaussian_rho(part) for account, _ in shares]
    known = [rho for rho in rhos if rho is not None]
    units = [(account, _units(account, epsilon, share)) for account, share in shares]

    @cache
    def choice(of: Fraction) -> Fraction:
        """The range of a choice that spends that share of each table's part."""
        found = min(
            largest_epsilon(account.accountant.cost, int(left * of), BoundedRange) for account, left in units
        )
        if not found:
            raise QueryRejected(
                "the privacy loss is too small to be split among the aggregates", code="epsilon_small"
            )
        return found

    return LossShare(part, min(known) if len(known) == len(rhos) else None, _short(min(deltas)), choice)


def _epsilon(account: Account, epsilon: Fraction, share: Fraction) -> Fraction:
    """The loss at which a release spends at most that share."""
    if share == 1:
        return epsilon
    return largest_epsilon(account.accountant.cost, _units(account, epsilon, share))


def _units(account: Account, epsilon: Fraction, share: Fraction) -> int:
    """That share of what a release at the loss spends, in units."""
    return int(account.accountant.cost(Pure(epsilon)).loss * share)


def proportional_delta(account: Account, epsilon: Fraction) -> Fraction:
    """The δ that a query on that account's table spends with that loss where it asks for none."""
    return _short(_delta(account, epsilon))


def _delta(account: Account, epsilon: Fraction) -> Fraction:
    """The delta of an account that goes with a loss, so that neither is used up before the other."""
    loss = account.accountant.cost(Pure(epsilon)).loss_fraction
    return account.limit.delta_fraction * min(loss / account.limit.loss_fraction, Fraction(1))


def _short(delta: Fraction) -> Fraction:
    """The delta as a short fraction: rounding it down is safe, and long ones only slow the arithmetic."""
    return Fraction(int(delta * 10**30), 10**30)
