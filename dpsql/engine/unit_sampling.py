"""The check of statements over a sample of units: they have one release, and all its private tables have the same sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dpsql.errors import Position, QueryRejected
from dpsql.plan.nodes import Release, list_private_scans

CODE = "sample"


def require_one_sample(
    releases: Sequence[Release], *, replace: bool, targeted: bool, text: str, at: Position | None
) -> None:
    """Refuse a statement that reads some private rows from a sample of the units, and others from another sample or from none.

    Claim: the loss of a statement that passes is that of `dpsql.planning.sampling`.
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
