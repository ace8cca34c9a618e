"""How much one privacy unit can change the rows below the release boundary.

Each rule has the form: if the input's rows of one unit are at most r, then the output's rows of that
unit are at most c·r, and no other unit's rows change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dpsql.errors import QueryRejected
from dpsql.plan.expr import columns
from dpsql.plan.nodes import Filter, Join, Relation, Release, Scan, UnitKind, private_scan
from dpsql.policy import fold

MAX_ROWS = 2**30
"""Most rows of a unit that may count: keeps every per-unit sum within 64 bits."""


class PublicFacts(Protocol):
    """What may be looked up in public tables, whose values are no secret."""

    def multiplicity(self, join: Join) -> int:
        """The most rows of the right side of `join` that one row can be equal to; 0 for an empty table."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """What one privacy unit can contribute to a release, as the engine enforces it.

    At most `rows` rows in all, in at most `groups` groups. `limited` says that the number of groups
    has to be enforced for itself, because neither the rows nor the keys bound it as tightly.
    `per_unit` is false where each row is a unit of its own, so that nothing needs to be enforced.
    `fanout` is the part of `rows` that joins brought in.
    """

    rows: int
    groups: int
    limited: bool
    per_unit: bool
    min_frequency: int
    fanout: int = 1


def fanout(relation: Relation, facts: PublicFacts) -> int:
    """How many rows each private row can become.

    Claim: a join with a public table multiplies the rows of a unit by at most the largest number of
    public rows that share a key; scans and filters do not add rows.
    Why: a row joins only rows whose key equals its own, and a LEFT JOIN keeps an unmatched row once.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2 (stability of transformations).
    """
    match relation:
        case Scan():
            return 1
        case Filter():
            return fanout(relation.input, facts)
        case Join():
            return fanout(relation.left, facts) * max(1, facts.multiplicity(relation))


def bound(release: Release, domain_size: int | None, facts: PublicFacts) -> Bound:
    """The contribution bound of a release.

    Claim: after the engine has enforced it, one unit has at most `rows` rows that count, in at most
    `groups` groups.
    Why: a unit's groups are ranked by its own rows alone, and the rows and groups beyond the bounds are
    left out in the same statement that aggregates. `groups` never needs to pass the number of rows or of keys.
    Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
    """
    scan = private_scan(release.input)
    contribution = scan.contribution
    if contribution is None:
        raise TypeError("a private scan has contribution bounds")
    times = fanout(release.input, facts)
    rows = contribution.rows * times
    if rows > MAX_ROWS:
        raise QueryRejected(
            f"one privacy unit could have {rows:,} rows after the joins",
            code="fanout",
            hint="join on a key that is unique in the public table, or lower rows_per_unit",
        )
    proven = min(rows, domain_size or rows) if release.keys else 1
    constant = 1 if _constant_keys(release) else None
    stated = min(filter(None, (constant, contribution.groups, release.max_groups)), default=proven)
    return Bound(
        rows=rows,
        groups=min(proven, stated),
        limited=stated < proven,
        per_unit=scan.unit.kind is UnitKind.COLUMN or rows > 1,
        min_frequency=contribution.min_frequency,
        fanout=times,
    )


def _constant_keys(release: Release) -> bool:
    """Whether all rows of a unit go to one group, by what the owner has declared.

    The declaration is not trusted: the engine lets one group of each unit count.
    """
    contribution = private_scan(release.input).contribution
    if contribution is None or not release.keys:
        return False
    source = private_scan(release.input).alias
    return all(
        column.source == source and (column.facts.is_unit or fold(column.name) in contribution.constant)
        for key in release.keys
        for column in columns(key.expr)
    )


def describe(relation: Relation, facts: PublicFacts) -> str:
    """The stability of one node, in words for EXPLAIN."""
    match relation:
        case Scan() if not relation.unit.private:
            return "public"
        case Scan():
            contribution = relation.contribution
            rows = 1 if contribution is None else contribution.rows
            whose = "each row is a unit" if relation.unit.column is None else f"unit {relation.unit.column}"
            return f"{whose}, {rows} row{'s' * (rows != 1)} of a unit count"
        case Filter():
            return "stability 1"
        case Join():
            times = max(1, facts.multiplicity(relation))
            return f"stability {times}: at most {times} public row{'s' * (times != 1)} for a key"
