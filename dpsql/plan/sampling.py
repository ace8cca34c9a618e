"""The Poisson sample of privacy units that a release reads."""

from __future__ import annotations

from fractions import Fraction

from dpsql.plan.nodes import Relation, list_private_scans


def find_sampling_rate(relation: Relation) -> Fraction | None:
    """Return the probability that a unit is in the sample of a relation; None without a sample.

    Claim: what follows from the relation over a sample is what follows from it over a database of the sampled units alone.
    Why: a private row of a relation depends on rows of its own unit and on public rows, and all private tables are read from
    the same sample; so leaving out the rows of the other units at the end is leaving out these units before.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2 (rows grouped by their source).

    Raises ValueError where tables differ in it.
    """
    rates = {scan.sample for scan in list_private_scans(relation)}
    if len(rates) > 1:
        raise ValueError("a release must read either all or none of its private tables from one sample")
    return next(iter(rates), None)


def format_percent(rate: Fraction) -> str:
    """Return a rate for people.

    >>> format_percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(rate * 100):.6g}%"
