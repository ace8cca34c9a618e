"""AVG of days and moments, as arithmetic over a released mean.

Claim: it is as private as the mean that it is computed of.
Why: released is how far after the first moment that there can be the others are on average; what is computed of that
is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from sqlglot import exp

from dpsql.analysis.intervals import Known, interval
from dpsql.functions.moments import LENGTHS, at_end
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def mean_moment(
    node: exp.Expr, scalars: Scalars, released: Callable[[str, Expr], Expr], known: Known, argument: Expr
) -> Expr:
    """The mean of a DATE or TIMESTAMP as TIMESTAMP, to the microsecond; NULL where no row is estimated to be."""
    unit = "day" if argument.type is Type.DATE else "microsecond"
    first = Literal(at_end(argument.type, interval(argument, known).low) or _EPOCH, Type.TIMESTAMP)
    mean = released("avg", scalars.call(node, f"date_diff_{unit}", first, argument))
    length = Literal(LENGTHS[unit] // LENGTHS["microsecond"], Type.INTEGER)
    after = scalars.call(node, "cast_bigint", scalars.call(node, "multiply", mean, length))
    return scalars.call(node, "plus_microsecond", first, after)
