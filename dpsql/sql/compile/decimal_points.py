"""Emit the lattice points of clamped DECIMAL columns without a conversion to DOUBLE.

Claim: they are the points of the column's value, which is a DOUBLE and clamped to the bounds.
Why: of at most 15 digits each DECIMAL has a DOUBLE of its own, in the same order, and so have the bounds. Times a power of ten the DOUBLE
is off by less than a quarter from the whole number that the DECIMAL is, which is the nearest. No row fails: what is multiplied is between
the bounds, whatever is stored.
Source: IEEE 754-2019, section 5.12.2 (15 digits of a decimal survive in a DOUBLE).
"""

from __future__ import annotations

from dpsql.analysis.decimals import parse_decimal_type
from dpsql.analysis.lattice import Lattice
from dpsql.plan.expressions import Column
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.stored_conditions import emit_stored_decimals

_MOST_DIGITS = 18
"""The digits of a DECIMAL of 64 bits."""


def emit_decimal_lattice_point(column: Column, lattice: Lattice) -> str | None:
    """Return the lattice point of a column that is clamped as it is read; None if it is computed from a DOUBLE."""
    facts, digits = column.facts, parse_decimal_type(column.facts.engine_type)
    if digits is None or facts.domain is not None or not facts.interval.is_bounded:
        return None
    bounds = emit_stored_decimals(column, map(float, facts.interval.ends))
    if bounds is None or (lattice.exponent, lattice.digits) != (0, digits[1]):
        return None
    if sum(digits) + 1 > _MOST_DIGITS:
        return None
    low, high = bounds
    return get_dialect().emit_decimal_lattice_point(
        get_dialect().emit_stored_column(column), low, high, 10 ** digits[1]
    )
